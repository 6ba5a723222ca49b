import { pages, paths, query } from "../lib/call";
import { useLive, useLiveList } from "../lib/live";
import { amount, clock, date, keyText, number, plural } from "../lib/text";
import type { Assignment, Executor as Exec, Finding, Volume } from "../lib/types";
import { Action, expiry } from "../parts/action";
import { Ago, Answer, Card, Empty, Facts, More, Page, State, Table, Until } from "../parts/basics";
import { Commands } from "../parts/commands";
import { condition } from "./executors";
import { FindingsCard } from "./overview";
import { WorkerTable } from "./reservation";
import { Unknown } from "./search";

const reasonField = { name: "reason", label: "Reason", hint: "Lists of executors show it." };
const expiryField = { name: "for", label: "For", hint: "30m, 2h or 1d. Empty: until it is enabled again." };

// options returns the options of berth for the two fields. berth knows no days.
function options(v: Record<string, string>): string[] {
  const time = v.for?.trim().replace(/^(\d+)d(?:(\d+)h)?/, (_, d, h) => `${Number(d) * 24 + Number(h ?? 0)}h`);
  return [...(v.reason ? ["--reason", v.reason] : []), ...(time ? ["--for", time] : [])];
}

// Disable takes executors out of scheduling, by ID or by attributes.
export function Disable({ id, attributes, now }: { id?: string; attributes?: Record<string, string>; now?: number }) {
  const words = Object.entries(attributes ?? {}).map(([k, v]) => `${k}=${v}`);
  const what = id ?? `executors with ${words.join(", ")}`;
  return (
    <Action
      label="Disable"
      title={`Disable ${what}?`}
      method="Executors/DisableExecutors"
      effect={<p>{id ?? "They"} will get no new workers. Running workers continue. {id ? "" : `These are ${now === undefined ? "the executors with the attributes" : plural(now, "executor")} now, and those that register later.`}</p>}
      fields={[reasonField, expiryField]}
      command={(v) => ({
        what: `Disable ${what}`,
        method: "POST",
        path: "/v1/executors:disable",
        body: {
          requestId: v.requestId,
          selector: id ? { ids: [id] } : { attributes },
          reason: v.reason || undefined,
          expireTime: expiry(v.for ?? ""),
        },
        berth: ["disable", ...(id ? [id] : ["--attributes", words.join(",")]), ...options(v)],
      })}
      done={(a: { executors?: number }) => `${plural(a.executors ?? 0, "executor")} disabled`}
    />
  );
}

export function Executor({ id }: { id: string }) {
  const path = paths.executor(id);
  const live = useLive<Exec>(path);
  const workers = useLiveList<{ assignments: Assignment[]; nextPageToken?: string }>(query("/v1/assignments", { executor: id }), 1000);
  const findings = useLive<{ findings: Finding[] }>("/v1/findings");
  const volumes = useLive<{ volumes: Volume[]; nextPageToken?: string }>(query("/v1/volumes", { executor: id, pageSize: 500 }));
  const e = live.data;
  const unknown = live.error?.reason === "NOT_FOUND";
  const overdue = (findings.data?.findings ?? []).filter((f) => f.kind === "QUARANTINED").map((f) => f.object);
  // With very many, the object "findings" stands for those that are not listed.
  const quarantined = (workers.data?.assignments ?? []).filter(
    (a) => ["EVICT", "EVICTING"].includes(a.state) && (overdue.includes("findings") || overdue.includes(`${a.job}/${a.stage}/${a.index}.${a.number}`)),
  );
  const held = (e?.leases ?? []).filter((l) => l.held);
  return (
    <Page
      kind="Executor"
      title={id}
      tools={
        <>
          <Commands
            of={[
              { what: "The executor", path, berth: ["describe", "executor", id] },
              { what: "Its workers", path: query("/v1/assignments", { executor: id }), berth: ["get", "assignments", "--executor", id] },
              { what: "Its volumes", path: query("/v1/volumes", { executor: id }), berth: ["get", "volumes", "--executor", id] },
            ]}
          />
          {e && <Disable id={id} />}
          {e && <Action
            label="Drain"
            danger
            title={`Drain ${id}?`}
            method="Executors/DrainExecutor"
            effect={<p>{id} gets no new workers, and Berth stops {e?.workers ? plural(e.workers, "worker") : "the workers"} on it. Volumes stay.</p>}
            fields={[reasonField, expiryField]}
            command={(v) => ({
              what: `Drain ${id}`,
              method: "POST",
              path: path + ":drain",
              body: { requestId: v.requestId, reason: v.reason || undefined, expireTime: expiry(v.for ?? "") },
              berth: ["drain", id, ...options(v)],
            })}
            done={() => `${id} drains`}
          />}
          {quarantined.length > 0 && <ClearQuarantine id={id} of={quarantined} />}
        </>
      }
    >
      {unknown && <Unknown kind="executor" name={id}>No agent has registered it, or it was deleted.</Unknown>}
      {!unknown && <Answer of={live} what="executor">
        {(e) => (
          <Card title="State" wide aside={<State of={condition(e)} />}>
            <Facts
              of={[
                ["SKU", e.sku && <a href={query("/usage", { sku: e.sku })}>{e.sku}</a>],
                ["Pool", e.pool && <a href={query("/executors", { pool: e.pool })}>{e.pool}</a>],
                ["Kind", e.kind === "CELL" ? "cell" : ""],
                ["Host", e.host],
                ["Address", e.address],
                ["State since", <Ago time={e.since} />],
                ["Workers", number(e.workers)],
                ["Attributes", Object.entries(e.attributes ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")],
                ["Skipped until", e.skippedUntil && <Until time={e.skippedUntil} />],
                ["Incarnation", e.incarnation],
              ]}
            />
            <ul class="resources">
              {Object.entries(e.resources ?? {}).sort().map(([r, n]) => (
                <li key={r}>
                  <span>{r}</span>
                  <meter min={0} max={Number(n)} value={Number(e.used?.[r] ?? 0)} aria-label={`${r} used`} />
                  <span>{amount(r, e.used?.[r] ?? 0)} of {amount(r, n)}</span>
                </li>
              ))}
            </ul>
          </Card>
        )}
      </Answer>}
      <FindingsOf of={findings} id={id} />
      {!unknown && <div class="columns">
        <Card title="Workers" aside={workers.data && !workers.data.nextPageToken && plural(workers.data.assignments.length, "worker")}>
          <Answer of={workers} what="workers">
            {(w) => (
              <>
                {w.assignments.length === 0 ? <Empty>No worker is on this executor.</Empty> : <WorkerTable of={w.assignments} named />}
                {w.nextPageToken && <More of="executor" what="workers" />}
              </>
            )}
          </Answer>
        </Card>
        <div class="stack">
          <Card title="Holds" aside={e && plural(held.length, "hold")}>
            {held.length === 0 ? (
              <Empty>No held reservation keeps capacity here.</Empty>
            ) : (
              <Table
                caption="Held reservations with capacity on this executor"
                rows={held}
                id={(l) => l.uid}
                columns={[
                  { name: "Reservation", cell: (l) => <a href={pages.reservation(l.job, l.stage, l.reservation)}>{keyText({ ...l, name: l.reservation })}</a> },
                  { name: "Workers here", cell: (l) => number(l.workers), number: true },
                  { name: "UID", cell: (l) => l.uid },
                ]}
              />
            )}
          </Card>
          <Card title="Disables" aside={e && plural(e.disabled?.length ?? 0, "request")}>
            {!e?.disabled?.length ? (
              <Empty>No request disables this executor.</Empty>
            ) : (
              <Table
                caption="Requests that disable this executor"
                rows={e.disabled}
                id={(d) => d.requestId}
                columns={[
                  { name: "Request", cell: (d) => d.requestId, wide: true },
                  { name: "Reason", cell: (d) => d.reason, wide: true },
                  { name: "Expires", cell: (d) => (d.expireTime ? <span title={`${date(d.expireTime)} ${clock(d.expireTime)}`}><Until time={d.expireTime} /></span> : "never") },
                  { name: "", cell: (d) => <Enable request={d.requestId} /> },
                ]}
              />
            )}
          </Card>
          <Card title="Volumes" aside={volumes.data && !volumes.data.nextPageToken && plural(volumes.data.volumes.length, "volume")}>
            <Answer of={volumes} what="volumes">
              {(v) => (
                <>
                  {v.volumes.length === 0 ? <Empty>No volume is on this executor.</Empty> : <VolumeTable of={v.volumes} />}
                  {v.nextPageToken && <More of="executor" what="volumes" />}
                </>
              )}
            </Answer>
          </Card>
        </div>
      </div>}
    </Page>
  );
}

function FindingsOf({ of, id }: { of: { data?: { findings: Finding[] } }; id: string }) {
  return (of.data?.findings ?? []).some((f) => f.object === id) ? <FindingsCard of={of} object={id} /> : null;
}

export function VolumeTable({ of, most }: { of: Volume[]; most?: number }) {
  return (
    <Table
      caption="Volumes"
      rows={of}
      id={(v) => v.id}
      most={most}
      columns={[
        { name: "Volume", cell: (v) => <a href={query(pages.job(v.job), { at: v.id })}>{v.id}</a> },
        { name: "Worker index", cell: (v) => <a href={pages.search(`${v.job}/${v.stage}/${v.index}`)}>{`${v.job}/${v.stage}/${v.index}`}</a> },
        { name: "State", cell: (v) => <State of={v.state} /> },
        { name: "Size", cell: (v) => `${v.resource} ${amount(v.resource, v.amount)}` },
        { name: "Executor", cell: (v) => <a href={pages.executor(v.executor)}>{v.executor}</a> },
        { name: "Waits for", cell: (v) => v.message, wide: true },
      ]}
    />
  );
}

function Enable({ request }: { request: string }) {
  return (
    <Action
      label="Enable"
      title={`Undo the request ${request}?`}
      method="Executors/EnableExecutors"
      effect={<p>Every executor that the request disables may get workers again, unless another request disables it.</p>}
      command={(v) => ({
        what: `Undo ${request}`,
        method: "POST",
        path: "/v1/executors:enable",
        body: { disableRequestId: request, requestId: v.requestId },
        berth: ["enable", "--request", request],
      })}
      done={() => `The request ${request} is undone`}
    />
  );
}

function ClearQuarantine({ id, of }: { id: string; of: Assignment[] }) {
  const workers = of.slice(0, 1000).map((a) => ({ job: a.job, stage: a.stage, index: a.index, number: a.number, epoch: a.epoch }));
  return (
    <Action
      label="Clear quarantine"
      danger
      title={`Declare that ${plural(workers.length, "worker")} on ${id} ${workers.length === 1 ? "does" : "do"} not run?`}
      method="Assignments/ClearQuarantine"
      effect={
        <>
          <p>The executor has not confirmed the end of these workers. They become LOST, and their capacity is free at once:</p>
          <ul>{of.slice(0, 10).map((a) => <li key={a.uid + a.index}>{`${a.job}/${a.stage}/${a.index}.${a.number}`}, {a.state}</li>)}{of.length > 10 && <li>and {plural(workers.length - 10, "other worker")}</li>}</ul>
          <p><strong>If one of them still runs, it continues in addition to new workers.</strong> Check the host first.</p>
        </>
      }
      command={(v) => ({
        what: `Give up these workers on ${id}`,
        method: "POST",
        path: paths.executor(id) + ":clearQuarantine",
        body: { requestId: v.requestId, workers },
        berth: ["clear-quarantine", id, "--yes"],
      })}
      done={(a: { cleared?: number }) => `${plural(a.cleared ?? 0, "worker")} given up`}
    />
  );
}
