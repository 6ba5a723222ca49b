import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { pages } from "../lib/call";
import { useChanges } from "../lib/leaders";
import { Live, useLive, useNow } from "../lib/live";
import { objectPage } from "../lib/objects";
import { useMay } from "../lib/session";
import { age, clock, constraintsText, keyText, noLeader, number, plural } from "../lib/text";
import type { Finding, Leaders, Leadership, Pending, PendingHistory, SkuUsage, Usage } from "../lib/types";
import { Action } from "../parts/action";
import { Ago, Answer, Card, Empty, Page, Problem, State, useShown } from "../parts/basics";
import { Chart } from "../parts/chart";
import { Commands } from "../parts/commands";

export function Overview() {
  const leaders = useLive<Leaders>("/v1/leaders");
  const findings = useLive<{ findings: Finding[] }>("/v1/findings");
  const usage = useLive<Usage>("/v1/usage");
  const pending = useLive<Pending>("/v1/reservations:pending?pageSize=1000");
  return (
    <Page
      title="Overview"
      tools={
        <Commands
          of={[
            { what: "Leaders", path: "/v1/leaders", berth: ["get", "leaders"] },
            { what: "Findings", path: "/v1/findings", berth: ["get", "findings"] },
            { what: "Use of each SKU", path: "/v1/usage", berth: ["get", "usage"] },
            { what: "Queues", path: "/v1/reservations:pending", berth: ["get", "pending"] },
            { what: "Queue depth", path: "/v1/reservations:pendingHistory", berth: ["get", "pending", "--history"] },
          ]}
        />
      }
    >
      <LeaderCards of={leaders} />
      <div class="columns">
        <div class="stack">
          <FindingsCard of={findings} />
          <CapacityCard of={usage} />
          <ChangesCard />
        </div>
        <QueueCard of={pending} />
      </div>
    </Page>
  );
}

function LeaderCards({ of }: { of: Live<Leaders> }) {
  return (
    <Answer of={of} what="leaders">
      {(l) => (
        <div class="leaders">
          {l.notReady?.map((reason) => <p class="problem whole" role="alert" key={reason}>The gateway is not ready: {reason}.</p>)}
          {l.services.map((s) => (
            <LeaderCard key={s.service} of={s} now={Date.parse(l.now)} />
          ))}
        </div>
      )}
    </Answer>
  );
}

function LeaderCard({ of: s, now }: { of: Leadership; now: number }) {
  const found = useLocation().query.at === s.service;
  const card = useShown<HTMLElement>(found);
  const lag = s.renewed ? (now - Date.parse(s.renewed)) / 1000 : 0;
  return (
    <section ref={card} class={`card leader${s.leader ? "" : " none"}${found ? " found" : ""}`} aria-current={found ? "true" : undefined} aria-label={`Leader of ${s.service}`} data-service={s.service}>
      <div class="card-head">
        <h2>{s.service}</h2>
        {s.leader && <Action
          label="Resign"
          title={`Make the leader of ${s.service} resign?`}
          method="Leaders/Resign"
          effect={
            <p>
              {s.leader} finishes its writes and gives up term {s.term}. A standby leads a moment later; callers see a
              short pause and no error.
            </p>
          }
          command={() => ({
            what: `Resign ${s.service}`,
            method: "POST",
            path: `/v1/leaders/${s.service}:resign`,
            body: { term: s.term },
            berth: ["resign", s.service, "--term", s.term ?? "0"],
          })}
          done={(a: { replica?: string; term: string }) =>
            a.replica ? `${a.replica} resigned; term ${a.term} is over` : `Term ${a.term} was already over`
          }
        />}
      </div>
      <p class="leader-name" data-leader={s.leader ?? ""}>{s.leader || <State of={noLeader(s).toUpperCase()} />}</p>
      {s.leader && (
        <p class="leader-facts">
          <span>{s.address}</span>
          <span>term <b data-term>{s.term}</b></span>
          <span>since <Ago time={s.since} /></span>
          <span class={lag > 3 ? "late" : undefined}>renewed {lag.toFixed(1)} s ago</span>
        </p>
      )}
      <ul class="replicas">
        {(s.replicas ?? []).map((r) => (
          <li key={r.address}>
            <span>{r.id || r.address}</span>
            <State of={r.role} />
            <span class={Number(r.behind ?? 0) > 100 ? "late" : "muted"} title="revisions behind the newest replica">
              {r.role === "UNREACHABLE" ? r.error || "no answer" : r.noView ? "no view yet" : `${number(Number(r.behind ?? 0))} behind`}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function FindingsCard({ of, object }: { of: Live<{ findings: Finding[] }>; object?: string }) {
  const list = (of.data?.findings ?? []).filter((f) => !object || f.object === object);
  return (
    <Card title="Findings" aside={of.data && <a href={pages.findings()}>{plural(list.length, "finding")}</a>}>
      <Answer of={of} what="findings">
        {() =>
          list.length === 0 ? (
            <Empty>No service reports a problem.</Empty>
          ) : (
            <ul class="findings">
              {list.map((f) => (
                <li key={f.kind + f.object + f.service}>
                  <p>
                    <strong>{f.kind}</strong> <FindingObject of={f} />
                    <span class="muted"> {f.service}, <Ago time={f.since} /></span>
                  </p>
                  {f.message && <p>{f.message}</p>}
                  {f.action && <p class="muted">{f.action}</p>}
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
    </Card>
  );
}

// FindingObject links a finding to its object.
export function FindingObject({ of }: { of: Finding }) {
  const page = objectPage(of);
  return page ? <a class="object" href={page}>{of.object}</a> : <span class="object">{of.object}</span>;
}

function QueueCard({ of }: { of: Live<Pending> }) {
  const history = useLive<PendingHistory>("/v1/reservations:pendingHistory");
  const canMark = useMay("Reservations/MarkReady");
  const oldest = [...(of.data?.groups ?? [])].sort((a, b) => ((a.headSince ?? "") < (b.headSince ?? "") ? -1 : 1)).slice(0, 4);
  return (
    <Card title="Queues" aside={<a href="/queues">All queues</a>}>
      {of.error?.reason === "REGISTRY_NOT_READY" && (
        <div class="not-ready">
          <p>The registry is not ready and grants nothing. It waits for the job services to repeat their requests.</p>
          {canMark && <MarkReady />}
        </div>
      )}
      <Answer of={of} what="queues">
        {(p) => (
          <>
            <div class="totals">
              <Total name="queues" value={p.totalGroups ?? p.groups.length} />
              <Total name="queued reservations" value={p.totalReservations ?? 0} />
              <Total name="queued workers" value={p.totalWorkers ?? 0} />
            </div>
            <History of={history} />
            {oldest.length > 0 && (
              <ul class="heads">
                {oldest.map((g) => (
                  <li key={g.id}>
                    <a href={pages.queue(g.id)}>{g.head ? keyText(g.head) : g.id}</a>
                    <span>waits <Ago time={g.headSince} /></span>
                    <span class="muted">{g.reason && <><a href={pages.search(g.reason)}>{g.reason}</a> · </>}{constraintsText(g.constraints)}</span>
                  </li>
                ))}
              </ul>
            )}
            {p.nextPageToken && <p class="muted">These are the oldest heads of 1,000 queues; there are more queues.</p>}
          </>
        )}
      </Answer>
    </Card>
  );
}

export function MarkReady() {
  return (
    <Action
      label="Mark ready"
      title="Mark the registry as ready?"
      method="Reservations/MarkReady"
      effect={
        <p>
          Do this once all job services have repeated their requests. From then on Berth grants executors in the order
          of the queues. It cannot be undone.
        </p>
      }
      command={(v) => ({
        what: "Mark the registry as ready",
        method: "POST",
        path: "/v1/registry:markReady",
        body: { requestId: v.requestId },
        berth: ["mark-ready"],
      })}
      done={() => "The registry is ready"}
    />
  );
}

function Total({ name, value }: { name: string; value: number }) {
  return (
    <p class="total">
      <b>{number(value)}</b>
      <span>{name}</span>
    </p>
  );
}

function History({ of }: { of: Live<PendingHistory> }) {
  const points = of.data?.points;
  const { times, reservations, workers } = useMemo(
    () => ({
      times: (points ?? []).map((p) => Date.parse(p.time) / 1000),
      reservations: (points ?? []).map((p) => p.reservations ?? 0),
      workers: (points ?? []).map((p) => p.workers ?? 0),
    }),
    [points],
  );
  if (of.error) return <Problem error={of.error} what="Queue depth" />;
  if (!points) return <p class="loading">Loading queue depth…</p>;
  if (points.length < 2) return <Empty>The registry takes a sample of the queue depth every 15 s.</Empty>;
  const peak = Math.max(...reservations);
  return (
    <figure>
      <Chart
        times={times}
        series={[
          { label: "reservations", color: "--series-1", values: reservations },
          { label: "workers", color: "--series-2", values: workers },
        ]}
        summary={`Queue depth over the last hour: now ${number(reservations.at(-1))} reservations and ${number(workers.at(-1))} workers, at most ${number(peak)} reservations.`}
      />
      <figcaption class="legend">
        <span class="series-1">queued reservations</span>
        <span class="series-2">queued workers</span>
        <span class="muted">last hour</span>
      </figcaption>
    </figure>
  );
}

export function CapacityBar({ of: u }: { of: SkuUsage }) {
  const total = Math.max(1, u.total ?? 0);
  const parts: [string, number][] = [
    ["running", u.running ?? 0],
    ["leased", u.leased ?? 0],
    ["idle", u.idle ?? 0],
    ["unavailable", u.unavailable ?? 0],
  ];
  return (
    <div class="bar" role="img" aria-label={parts.map(([name, n]) => `${n} ${name}`).join(", ")}>
      {parts.map(([name, n]) => n > 0 && <span key={name} class={name} style={{ width: `${(100 * n) / total}%` }} />)}
    </div>
  );
}

function CapacityCard({ of }: { of: Live<Usage> }) {
  return (
    <Card title="Capacity by SKU" aside={<a href="/usage">Usage and advice</a>}>
      <Answer of={of} what="capacity">
        {(u) =>
          u.skus.length === 0 ? (
            <Empty>No executor is registered.</Empty>
          ) : (
            <ul class="capacity">
              {u.skus.map((s) => (
                <li key={s.sku}>
                  <a href={`/executors?sku=${encodeURIComponent(s.sku)}`}>{s.sku || "(no SKU)"}</a>
                  <CapacityBar of={s} />
                  <span>
                    {number(s.idle)} idle of {number(s.total)}
                    {s.pendingExecutors ? `, ${number(s.pendingExecutors)} needed` : ""}
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
      <p class="legend">
        <span class="running">running</span>
        <span class="leased">leased</span>
        <span class="idle">idle</span>
        <span class="unavailable">unavailable</span>
      </p>
    </Card>
  );
}

function ChangesCard() {
  const changes = useChanges();
  const now = useNow();
  return (
    <Card title="Changes of leaders" aside="since this page was opened">
      {changes.length === 0 ? (
        <Empty>None.</Empty>
      ) : (
        <ol class="changes">
          {changes.map((c) => (
            <li key={c.service + c.at + c.term}>
              <time>{clock(c.at)}</time>
              <span>
                <b>{c.service}</b>: {c.fromText} → {c.toText}
                {c.to && <span class="muted">, term {c.term}</span>}
              </span>
              <span class="muted">{age((now - c.at) / 1000)} ago</span>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}
