import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { pages, paths, query } from "../lib/call";
import { useEvents } from "../lib/events";
import { type Live, useLive, useLiveList } from "../lib/live";
import { planOf } from "../lib/plan";
import { keyText, number, plural, why } from "../lib/text";
import type { Assignment, Job as JobRow, Reservation, Volume } from "../lib/types";
import { Action } from "../parts/action";
import { Ago, Answer, Card, Empty, More, Page, Problem, ResultState, sinceOf, State, Table } from "../parts/basics";
import { Commands } from "../parts/commands";
import { Timeline } from "../parts/timeline";
import { LongTable, usePages } from "../parts/virtual";
import { VolumeTable } from "./executor";
import { endedStates } from "./reservation";
import { Unknown } from "./search";

export function Jobs() {
  const { query: q, route } = useLocation();
  const path = query("/v1/jobs", { prefix: q.prefix });
  const list = usePages<JobRow>(path, 500, "jobs", (j) => j.name);
  return (
    <Page
      title="Jobs"
      tools={<Commands of={[{ what: "These jobs", path, berth: ["get", "jobs", ...(q.prefix ? ["--prefix", q.prefix] : [])] }]} />}
    >
      <form class="filters" role="search" aria-label="Filter jobs" onSubmit={(e) => e.preventDefault()}>
        <label>
          Prefix
          <input value={q.prefix ?? ""} placeholder="train" onChange={(e) => route(query("/jobs", { prefix: (e.target as HTMLInputElement).value }), true)} />
        </label>
        <p class="count">Jobs with a reservation that has not ended.</p>
      </form>
      <Problem error={list.error} what="Jobs" />
      <LongTable
        caption="Jobs"
        pages={list}
        id={(j) => j.name}
        empty="No job has a reservation that has not ended."
        columns={[
          { name: "Job", cell: (j) => <a href={pages.job(j.name)}>{j.name}</a> },
          { name: "Reservations", cell: (j) => number(j.reservations), number: true },
          { name: "Pending", cell: (j) => number(j.pendingReservations), number: true },
          { name: "Pending workers", cell: (j) => number(j.pendingWorkers), number: true },
          { name: "Delayed", cell: (j) => number(j.delayedReservations), number: true },
          { name: "Reserved", cell: (j) => number(j.reservedWorkers), number: true },
          { name: "Running", cell: (j) => number(j.runningWorkers), number: true },
          { name: "Stopping", cell: (j) => number(j.stoppingWorkers), number: true },
          { name: "Last activity", cell: (j) => <Ago time={j.lastActivity} />, by: (j) => sinceOf(j.lastActivity) },
        ]}
      />
    </Page>
  );
}

export function Job({ job }: { job: string }) {
  const reservations = useLiveList<{ reservations: Reservation[]; nextPageToken?: string }>(query("/v1/reservations", { job }), 500);
  const events = useEvents(job, () => true);
  const [kinds, setKinds] = useState("");
  const shown = events.events.filter((e) => !kinds || e.kind.startsWith(kinds));
  const volumes = useLive<Volumes>(query("/v1/volumes", { job, pageSize: 1000 }));
  const stored = reservations.data?.reservations;
  // A job of which nothing is stored has no actions, and neither has a job that has ended.
  const live = stored?.some((r) => !endedStates.includes(r.state));
  const unknown = stored?.length === 0 && !events.events.length && !events.error && !volumes.data?.volumes.length;
  return (
    <Page
      kind="Job"
      title={job}
      tools={
        <>
          <Commands
            of={[
              { what: "Its reservations", path: query("/v1/reservations", { job }), berth: ["get", "reservations", "--job", job] },
              { what: "The plan", path: query("/v1/reservations", { job, versions: "true" }), berth: ["plan", job] },
              { what: "Its volumes", path: query("/v1/volumes", { job }), berth: ["get", "volumes", job] },
              { what: "Its events", path: paths.job(job) + "/events", stream: true, berth: ["events", job, "-f"] },
            ]}
          />
          {live && <Action
            label="Cancel job"
            danger
            title={`Cancel every reservation of ${job}?`}
            method="Reservations/CancelJob"
            effect={<p>Berth starts no more workers of {job}, and stops all that run. This cannot be undone.</p>}
            command={(v) => ({
              what: `Cancel ${job}`,
              method: "DELETE",
              path: query(paths.job(job), { requestId: v.requestId }),
              berth: ["cancel", job],
            })}
            done={(a: { cancelled?: number }) => `${plural(a.cancelled ?? 0, "reservation")} of ${job} cancelled`}
          />}
        </>
      }
    >
      {unknown && <Unknown kind="job" name={job}>No reservation, volume or event of it is stored. Berth keeps a reservation for ten minutes after its end.</Unknown>}
      {!unknown && <Card title="Reservations" wide>
        <Answer of={reservations} what="reservations">
          {(l) =>
            l.reservations.length === 0 ? (
              <Empty>The job has no reservation.</Empty>
            ) : (
              <>
                <Table
                  caption="Reservations"
                  rows={l.reservations}
                  id={(r) => r.uid}
                  columns={[
                    { name: "Reservation", cell: (r) => <a href={pages.reservation(r.job, r.stage, r.name)}>{keyText(r)}</a> },
                    { name: "State", cell: (r) => <ResultState of={r} /> },
                    { name: "Running", cell: (r) => `${r.workerCounts?.RUNNING ?? 0}/${r.count ?? 0}`, number: true },
                    { name: "Position", cell: (r) => (r.position ? number(r.position) : ""), number: true },
                    { name: "Age", cell: (r) => <Ago time={r.createdAt} />, by: (r) => sinceOf(r.createdAt) },
                    { name: "Why", cell: why, wide: true },
                  ]}
                />
                {l.nextPageToken && <More of="job" what="reservations" />}
              </>
            )
          }
        </Answer>
      </Card>}
      {!unknown && <Plan job={job} volumes={volumes} />}
      {!unknown && <Card title="Events" wide aside={plural(events.events.length, "event")}>
        <Problem error={events.error} what="Events" />
        <div class="filters">
          <label>
            Kind
            <select value={kinds} onChange={(e) => setKinds((e.target as HTMLSelectElement).value)}>
              <option value="">all</option>
              <option value="RESERVATION_">reservations</option>
              <option value="WORKER_">workers</option>
              <option value="VOLUME_">volumes</option>
            </select>
          </label>
        </div>
        {shown.length === 0 ? <Empty>No event is stored.</Empty> : <Timeline of={shown} label={`Events of ${job}`} />}
      </Card>}
    </Page>
  );
}

const planRows = 300;
interface Volumes {
  volumes: Volume[];
  nextPageToken?: string;
}

function Plan({ job, volumes }: { job: string; volumes: Live<Volumes> }) {
  const versions = useLiveList<{ reservations: Reservation[]; nextPageToken?: string; stages?: { stage: string; targetSize?: number }[] }>(
    query("/v1/reservations", { job, versions: "true" }),
    1000,
  );
  const workers = useLiveList<{ assignments: Assignment[]; nextPageToken?: string }>(query("/v1/assignments", { job }), 1000);
  const partial = versions.data?.nextPageToken || workers.data?.nextPageToken || volumes.data?.nextPageToken;
  const rows = planOf(versions.data?.reservations ?? [], workers.data?.assignments ?? [], volumes.data?.volumes ?? []);
  const satisfied = rows.filter((r) => r.satisfied).length;
  // The rows that need attention come first.
  const shown = [...rows.filter((r) => !r.satisfied), ...rows.filter((r) => r.satisfied)];
  const targets = (versions.data?.stages ?? []).filter((s) => s.targetSize).map((s) => `${s.stage}: target size ${number(s.targetSize)}`);
  return (
    <>
      <Card title="Plan" wide aside={rows.length > 0 && !partial && `${number(satisfied)} of ${plural(rows.length, "worker")} placed`}>
        <p class="muted">What the job requests, compared with what it has, for each worker index. {targets.join(", ")}</p>
        <Problem error={versions.error ?? workers.error ?? volumes.error} what="Plan" />
        {rows.length > 0 && (
          <Table
            caption="Plan"
            rows={shown}
            most={planRows}
            id={(r) => `${r.stage}/${r.name}/${r.index}/${r.volume}`}
            columns={[
              {
                name: "Worker",
                cell: (r) => {
                  const at = `${r.index}${r.number ? "." + r.number : ""}`;
                  return r.name ? <a href={query(pages.reservation(job, r.stage, r.name), { at })}>{`${r.stage}/${at}`}</a> : `${r.stage}/${at}`;
                },
              },
              { name: "Reservation", cell: (r) => r.name && <a href={pages.reservation(job, r.stage, r.name)}>{r.name}</a> },
              { name: "State", cell: (r) => r.current && <State of={r.current} /> },
              { name: "Executor", cell: (r) => r.executor && <a href={pages.executor(r.executor)}>{r.executor}</a> },
              { name: "Placed", cell: (r) => (r.satisfied ? "yes" : r.bound ? "reserved" : "no") },
              { name: "Volume", cell: (r) => r.volume },
              { name: "Why", cell: (r) => r.why, wide: true },
            ]}
          />
        )}
        {partial ? (
          <p class="problem">The job is too large for this table: it compares only a part of its workers. Copy the command to see all.</p>
        ) : (
          rows.length > planRows && <p class="muted">The plan has more rows; copy the command to see all.</p>
        )}
      </Card>
      {(volumes.data?.volumes.length ?? 0) > 0 && (
        <Card title="Volumes" wide>
          <VolumeTable of={volumes.data!.volumes} most={planRows} />
          {(volumes.data!.nextPageToken || volumes.data!.volumes.length > planRows) && <More of="job" what="volumes" />}
        </Card>
      )}
    </>
  );
}
