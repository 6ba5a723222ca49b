import { pages, query } from "../lib/call";
import { useLive } from "../lib/live";
import { constraintsText, keyText, number, plural } from "../lib/text";
import type { Group, Pending, Reservation } from "../lib/types";
import { Action } from "../parts/action";
import { Ago, Card, Facts, Page, Problem, sinceOf } from "../parts/basics";
import { Commands } from "../parts/commands";
import { LongTable, usePages } from "../parts/virtual";
import { MarkReady } from "./overview";

export function Queues() {
  const list = usePages<Group>("/v1/reservations:pending", 500, "groups", (g) => g.id);
  const totals = list.first as unknown as Pending;
  return (
    <Page
      title="Queues"
      tools={<Commands of={[{ what: "All queues", path: "/v1/reservations:pending", berth: ["get", "pending", "-o", "wide"] }]} />}
    >
      <p class="lead">
        Each group of equal constraints is one strict queue. While the head of a queue does not fit, nothing behind it
        starts.
        {list.loaded && (
          <>
            {" "}
            {plural(totals.totalGroups ?? list.rows.length, "queue")} with{" "}
            {plural(totals.totalReservations ?? 0, "reservation")} and {plural(totals.totalWorkers ?? 0, "worker")}.
          </>
        )}
      </p>
      <Problem error={list.error} what="Queues" />
      {list.error?.reason === "REGISTRY_NOT_READY" && <MarkReady />}
      <LongTable
        caption="Queues"
        pages={list}
        id={(g) => g.id}
        total={totals.totalGroups}
        empty="No reservation is pending."
        columns={[
          { name: "Queue", cell: (g) => <a href={pages.queue(g.id)}>{g.id}</a> },
          { name: "Constraints", cell: (g) => constraintsText(g.constraints), wide: true },
          { name: "Reservations", cell: (g) => number(g.reservations), number: true },
          { name: "Workers", cell: (g) => number(g.workers), number: true },
          {
            name: "Head",
            cell: (g) => g.head && <a href={pages.reservation(g.head.job, g.head.stage, g.head.name)}>{keyText(g.head)}</a>,
          },
          { name: "Waits", cell: (g) => <Ago time={g.headSince} />, by: (g) => sinceOf(g.headSince), number: true },
          { name: "Why", cell: (g) => <span title={g.message}><code>{g.reason}</code> {g.message}</span> },
        ]}
      />
    </Page>
  );
}

export function Queue({ group }: { group: string }) {
  const all = useLive<Pending>("/v1/reservations:pending?pageSize=1000");
  const path = query("/v1/reservations", { group });
  const list = usePages<Reservation>(path, 500, "reservations", (r) => r.uid);
  // With more than 1,000 queues, this one may be on another page of their list.
  const first = list.rows[0];
  const of: Partial<Group> | undefined = all.data?.groups.find((g) => g.id === group) ?? (first && { head: first, constraints: first.constraints, message: first.message, reason: first.reason });
  return (
    <Page
      kind="Queue"
      title={group}
      tools={
        <>
          <Commands of={[{ what: "The reservations of this queue in order", path, berth: ["get", "reservations", "--group", group] }]} />
          {of && <Action
            label="Cancel all queued"
            danger
            title={`Cancel all queued reservations of ${group}?`}
            method="Reservations/FlushReservations"
            effect={<p>{of ? plural(of.reservations ?? list.rows.length, "queued reservation") : "All queued reservations"} of this queue will be cancelled. Held and dispatched reservations stay.</p>}
            command={(v) => ({
              what: `Cancel everything that is queued in ${group}`,
              method: "POST",
              path: "/v1/reservations:flush",
              body: { group, requestId: v.requestId },
              berth: ["flush", "--group", group],
            })}
            done={(a: { cancelled?: number }) => `${plural(a.cancelled ?? 0, "reservation")} cancelled`}
          />}
        </>
      }
    >
      <Card title="Head of the queue">
        {of ? (
          <>
            <Facts
              of={[
                ["Head", of.head && <a href={pages.reservation(of.head.job, of.head.stage, of.head.name)}>{keyText(of.head)}</a>],
                ["Waits", of.headSince && <Ago time={of.headSince} />],
                ["Reservations", of.reservations && number(of.reservations)],
                ["Workers", of.workers && number(of.workers)],
                ["Constraints", constraintsText(of.constraints)],
                ["Reason", of.reason && <a href={pages.search(of.reason)}>{of.reason}</a>],
              ]}
            />
            {of.message && <p>{of.message}</p>}
          </>
        ) : (
          <p class="empty">{all.data ? "Nothing is queued in this group." : "Loading…"}</p>
        )}
      </Card>
      <Problem error={list.error} what="Reservations" />
      <LongTable
        caption="Reservations in the order of the queue"
        pages={list}
        id={(r) => r.uid}
        total={of?.reservations}
        empty="The queue is empty."
        columns={[
          { name: "Position", cell: (r) => number(r.position), number: true },
          { name: "Reservation", cell: (r) => <a href={pages.reservation(r.job, r.stage, r.name)}>{keyText(r)}</a> },
          { name: "Workers", cell: (r) => number(r.count), number: true },
          { name: "Age", cell: (r) => <Ago time={r.createdAt} />, by: (r) => sinceOf(r.createdAt), number: true },
          { name: "Why", cell: (r) => <span title={r.message}><code>{r.reason}</code> {r.message}</span> },
        ]}
      />
    </Page>
  );
}
