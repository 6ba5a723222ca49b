import { useLocation } from "preact-iso";
import { pages, paths, query } from "../lib/call";
import { useEvents } from "../lib/events";
import { useLive, useLiveList } from "../lib/live";
import { age, amounts, clock, constraintsText, date, keyText, message, number, plural, seconds, why } from "../lib/text";
import type { Assignment, Explanation, JobEvent, Reservation as Res } from "../lib/types";
import { Action } from "../parts/action";
import { Ago, Answer, Card, Empty, Facts, More, Page, Problem, ResultState, sinceOf, State, Table, Until, useShown } from "../parts/basics";
import { Commands } from "../parts/commands";
import { Timeline } from "../parts/timeline";
import { Unknown } from "./search";

const pendingStates = ["QUEUED", "LEASING", "OFFERING", "ASSIGNING"];
const delayed = ["NOT_BEFORE", "RESTARTING"];
export const endedStates = ["COMPLETED", "CANCELLED", "EXPIRED", "FAILED", "REPLACED"];

export function Reservation({ job, stage, name }: { job: string; stage: string; name: string }) {
  const path = paths.reservation(job, stage, name);
  const key = keyText({ job, stage, name });
  const live = useLive<Res>(path);
  const r = live.data;
  const unknown = live.error?.reason === "NOT_FOUND";
  const at = useLocation().query.at;
  const stored = query("/v1/reservations", { job, stage, reservation: name, versions: "true" });
  const versions = useLiveList<{ reservations: Res[]; nextPageToken?: string }>(stored, 200);
  const workers = useLiveList<{ assignments: Assignment[]; nextPageToken?: string }>(query("/v1/assignments", { job, stage, reservation: name }), 1000);
  const story = useEvents(job, (e) => e.stage === stage && (e.reservation === name || (!e.reservation && !e.uid)));
  const mine = workers.data?.assignments ?? [];
  return (
    <Page
      kind="Reservation"
      title={key}
      tools={
        <>
          <Commands
            of={[
              { what: "The reservation", path, berth: ["describe", "reservation", key] },
              { what: "Why it is pending", path: path + ":explain", berth: ["explain", "reservation", key] },
              { what: "All versions", path: stored, berth: ["get", "reservations", `${job}/${stage}/${name}`, "--versions", "-o", "yaml"] },
              { what: "Its workers", path: query("/v1/assignments", { job, stage, reservation: name }), berth: ["get", "assignments", "--job", job, "--stage", stage, "--reservation", name] },
              { what: "Its events", path: paths.job(job) + "/events", stream: true, berth: ["events", "reservation", `${job}/${stage}/${name}`, "-f"] },
            ]}
          />
          {r?.state === "HELD" && <Bind of={r} path={path} name={key} />}
          {r && !endedStates.includes(r.state) && (
            <Action
              label="Cancel"
              danger
              title={`Cancel ${key}?`}
              method="Reservations/CancelReservation"
              effect={<p>Berth starts no more workers of {key}, and stops those that run. This cannot be undone; the job service can request it again.</p>}
              command={(v) => ({
                what: `Cancel ${key}`,
                method: "DELETE",
                path: query(path, { requestId: v.requestId }),
                berth: ["cancel", "reservation", `${job}/${stage}/${name}`],
              })}
              done={(a: { cancelled?: number }) => `${plural(a.cancelled ?? 0, "version")} of ${key} cancelled`}
            />
          )}
        </>
      }
    >
      {unknown && <Unknown kind="reservation" name={key}>Berth keeps a reservation for ten minutes after its end, and its events longer.</Unknown>}
      {!unknown && <Answer of={live} what="reservation">
        {(r) => <Summary of={r} job={job} explained={pendingStates.includes(r.state)} />}
      </Answer>}
      {r && pendingStates.includes(r.state) && <Explain path={path} />}
      {r && Object.keys(r.pools ?? {}).length > 0 && <Cells of={r} />}
      {(!unknown || story.events.length > 0) && <div class="columns">
        <Card title="Story" aside={plural(story.events.length, "event")}>
          <Problem error={story.error} what="Events" />
          {story.events.length === 0 ? <Empty>No event is stored.</Empty> : <Timeline of={story.events} label={`Events of ${key}`} />}
        </Card>
        <Card title="Workers" aside={workers.data && !workers.data.nextPageToken && plural(mine.length, "worker")}>
          <Answer of={workers} what="workers">
            {(w) => (
              <>
                {at && /^\d+(\.\d+)?$/.test(at) && !mine.some((a) => namesOf(a).includes(at)) && <WorkerWithoutExecutor at={at} of={[...(versions.data?.reservations ?? []), ...(r ? [r] : [])]} story={story.events} />}
                {mine.length === 0 ? <Empty>No worker has an executor.</Empty> : <WorkerTable of={mine} most={300} />}
                {(w.nextPageToken || mine.length > 300) && <More of="reservation" what="workers" />}
              </>
            )}
          </Answer>
        </Card>
        <Card title="Versions" aside={versions.data && !versions.data.nextPageToken && plural(versions.data.reservations.length, "version")}>
          <Answer of={versions} what="versions">
            {(all) => (
              <>
                <Table
                  caption="Stored versions"
                  rows={all.reservations}
                  id={(v) => v.uid}
                  names={(v) => [v.epoch]}
                  columns={[
                    { name: "UID", cell: (v) => v.uid },
                    { name: "State", cell: (v) => <ResultState of={v} /> },
                    { name: "Workers", cell: (v) => number(v.count), number: true },
                    { name: "Epoch", cell: (v) => v.epoch, number: true },
                    { name: "Requested", cell: (v) => <Ago time={v.createdAt} />, by: (v) => sinceOf(v.createdAt) },
                    { name: "Why", cell: (v) => (delayed.includes(v.reason ?? "") ? why(v) : (v.reason ?? (v.parent ? `requeued from ${v.parent}` : ""))), wide: true },
                  ]}
                />
                {all.nextPageToken && <More of="reservation" what="versions" />}
              </>
            )}
          </Answer>
        </Card>
      </div>}
    </Page>
  );
}

function Bind({ of: r, path, name }: { of: Res; path: string; name: string }) {
  return (
    <Action
      label="Bind"
      title={`Bind the hold of ${name}?`}
      method="Reservations/BindReservation"
      effect={<p>Berth starts {plural(r.count ?? 0, "worker")} on the executors that the reservation holds.</p>}
      command={(v) => ({
        what: `Start the workers of ${name}`,
        method: "POST",
        path: path + ":bind",
        body: { ifEpoch: r.epoch, requestId: v.requestId },
        berth: ["bind", `${r.job}/${r.stage}/${r.name}`],
      })}
      done={() => `${name} is bound; its workers start`}
    />
  );
}

function Summary({ of: r, job, explained }: { of: Res; job: string; explained: boolean }) {
  const counts = Object.entries(r.workerCounts ?? {}).filter(([, n]) => n > 0);
  return (
    <Card title="State" wide aside={<ResultState of={r} />}>
      {!explained && (r.reason || r.message) && (
        <p class="why">
          {r.reason && <code>{r.reason}</code>} {message(r)}
        </p>
      )}
      <Facts
        of={[
          ["Position", r.position ? number(r.position) : ""],
          ["Workers", `${number(r.count)}${counts.length ? ` (${counts.map(([s, n]) => `${n} ${s}`).join(", ")})` : ""}`],
          ["Target size", r.targetSize ? number(r.targetSize) : ""],
          ["Constraints", constraintsText(r.constraints)],
          ["Batch", r.batch?.endsWith("_UNSPECIFIED") ? "" : r.batch],
          ["Requested", <Ago time={r.createdAt} />],
          ["Changed", <Ago time={r.updatedAt} />],
          ["Ends", r.expiresAt && <Until time={r.expiresAt} />],
          ["Queue timeout", r.queueTimeout && age(seconds(r.queueTimeout))],
          ["Not before", r.notBefore && `${date(r.notBefore)} ${clock(r.notBefore)}`],
          ["Hold", r.hold === "HOLD" ? `yes${r.rating !== undefined ? `, rating ${r.rating} %` : ""}` : ""],
          ["Restart", r.restart && r.restart !== "NEVER" ? r.restart : ""],
          ["Queued again", r.requeue],
          ["Round", r.round ? number(r.round) : ""],
          ["Command", r.task?.command && <code>{[r.task.command, ...(r.task.args ?? [])].join(" ")}</code>],
          ["Labels", Object.entries(r.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")],
          ["Avoids", r.avoided?.length ? r.avoided.map((a, i) => <span key={a.executor}>{i > 0 && ", "}<a href={pages.executor(a.executor)}>{a.executor}</a></span>) : ""],
          ["Job", <a href={pages.job(job)}>{job}</a>],
          ["UID", r.uid],
          ["Epoch", r.epoch],
        ]}
      />
    </Card>
  );
}

function Explain({ path }: { path: string }) {
  const live = useLive<Explanation>(path + ":explain");
  return (
    <Card title="Why it waits" wide>
      <Answer of={live} what="explanation">
        {(e) => (
          <>
            <p class="why">
              {e.reason && <code>{e.reason}</code>} {message(e)}
            </p>
            <Facts
              of={[
                ["Queue", e.group && <a href={pages.queue(e.group)}>{e.group}</a>],
                ["Position", e.position ? `${number(e.position)} of ${number(e.queued)}` : ""],
                ["Head", e.head && e.position !== 1 && <a href={pages.reservation(e.head.job, e.head.stage, e.head.name)}>{keyText(e.head)}</a>],
                ["Waits", e.since && <Ago time={e.since} />],
                ["Head waits", e.headSince && e.position !== 1 ? <Ago time={e.headSince} /> : ""],
                ["Fit now", e.needed ? `${number(e.fitting)} of ${plural(e.needed, "worker")}` : ""],
                ["Missing", e.missing ? number(e.missing) : ""],
                ["Scarcest resource", e.scarcestResource],
                ["Last tried", e.tried && <Ago time={e.tried} />],
                ["Needs", amounts(e.reservation.constraints?.resources)],
              ]}
            />
            {(e.checks ?? []).length > 0 && (
              <Table
                caption="The first check that executors fail"
                rows={e.checks!}
                id={(c) => c.check + c.want + c.have}
                columns={[
                  { name: "Executors", cell: (c) => number(c.count), number: true },
                  { name: "Failed check", cell: (c) => <code>{c.check}</code> },
                  { name: "Wanted", cell: (c) => (c.want ?? "") + (c.byDefault ? " (by default)" : "") },
                  { name: "They have", cell: (c) => c.have },
                ]}
              />
            )}
          </>
        )}
      </Answer>
    </Card>
  );
}

function Cells({ of: r }: { of: Res }) {
  return (
    <Card title="Cells" wide>
      <Table
        caption="Answers of the cells"
        rows={Object.entries(r.pools ?? {})}
        id={([cell]) => cell}
        columns={[
          { name: "Cell", cell: ([cell]) => <a href={pages.executor(cell)}>{cell}</a> },
          { name: "Offer", cell: ([, o]) => <State of={o.state} /> },
          { name: "Rating", cell: ([, o]) => (o.rating === undefined ? "" : `${o.rating} %`), number: true },
          { name: "Why", cell: ([, o]) => [o.reason, o.message].filter(Boolean).join(" · "), wide: true },
        ]}
      />
    </Card>
  );
}

const namesOf = (a: Assignment) => [`${a.index}.${a.number}`, String(a.index), a.uid, a.epoch];

// WorkerWithoutExecutor says what became of a worker that no executor has.
function WorkerWithoutExecutor({ at, of, story }: { at: string; of: Res[]; story: JobEvent[] }) {
  if (of.some((r) => r.epoch === at)) return null; // the address names a version
  return <WorkerEnd at={at} of={of} story={story} />;
}

function WorkerEnd({ at, of, story }: { at: string; of: Res[]; story: JobEvent[] }) {
  const shown = useShown<HTMLParagraphElement>(true);
  const [index = 0, number] = at.split(".").map(Number);
  const same = (n: number) => number === undefined || n === number;
  const ends = of.flatMap((r) => r.ends ?? []).find((e) => e.workers?.some((w) => w.first <= index && index <= w.last && same(w.number)));
  const waits = of.find((r) => !endedStates.includes(r.state) && r.workers?.some((w) => w.index === index && same(w.number)));
  const last = story.findLast((e) => e.kind.startsWith("WORKER_") && e.workers?.some((w) => w.index === index && same(w.number)));
  const state = ends?.state ?? waits?.state ?? last?.kind.slice("WORKER_".length);
  if (!state) return <p class="why" ref={shown}>There is no worker {at}.</p>;
  const worker = last?.workers!.find((w) => w.index === index && same(w.number));
  return (
    <p class="why" ref={shown}>
      Worker {at}: <State of={state} />{" "}
      {waits && !ends ? why(waits) : [last?.reason, last?.message, worker?.message].filter(Boolean).join(" · ")}
      {worker?.executor && !waits && <> on <a href={pages.executor(worker.executor)}>{worker.executor}</a></>}
    </p>
  );
}

// WorkerTable lists workers of one reservation, or with their full names those of one executor.
export function WorkerTable({ of, named, most }: { of: Assignment[]; named?: boolean; most?: number }) {
  return (
    <Table
      caption="Workers"
      rows={of}
      id={(a) => `${a.uid}/${a.stage}/${a.index}.${a.number}`}
      names={namesOf}
      most={most}
      columns={[
        {
          name: "Worker",
          cell: (a) =>
            named ? <a href={query(pages.reservation(a.job, a.stage, a.reservation), { at: `${a.index}.${a.number}` })}>{`${a.job}/${a.stage}/${a.index}.${a.number}`}</a> : `${a.index}.${a.number}`,
        },
        { name: "State", cell: (a) => <State of={a.state} /> },
        ...(named ? [] : [{ name: "Executor", cell: (a: Assignment) => <a href={pages.executor(a.executor)}>{a.executor}</a> }]),
        { name: "Since", cell: (a) => <Ago time={a.since} />, by: (a) => sinceOf(a.since) },
        { name: "Attempts", cell: (a) => number(a.attempts), number: true },
        {
          name: "Why",
          cell: (a) => [a.reason, a.exitCode !== undefined && a.exitCode !== 0 ? `exit code ${a.exitCode}` : "", a.lastError].filter(Boolean).join(" · "),
          wide: true,
        },
      ]}
    />
  );
}
