import { useLocation } from "preact-iso";
import { useCallback } from "preact/hooks";
import { pages, query } from "../lib/call";
import { useLive } from "../lib/live";
import { clock, date, number } from "../lib/text";
import type { AuditEntry, Tenant } from "../lib/types";
import { Answer, Empty, Page, Problem, Table } from "../parts/basics";
import { Commands } from "../parts/commands";
import { LongTable, usePages } from "../parts/virtual";

const limits: [string, string][] = [
  ["queuedReservations", "queued reservations"], ["workers", "workers"], ["batch", "workers of one reservation"],
  ["storedBytes", "bytes stored"], ["eventStreams", "event streams at this gateway"], ["requestsPerSecond", "requests per second"],
];

export function Tenants() {
  const live = useLive<{ tenants: Tenant[] }>("/v1/tenants");
  const at = useLocation().query.at;
  return (
    <Page title="Tenants" tools={<Commands of={[{ what: "Tenants with their limits and use", path: "/v1/tenants", berth: ["get", "tenants"] }]} />}>
      <Answer of={live} what="tenants">
        {(l) =>
          l.tenants.length === 0 ? (
            <Empty>The access file defines no tenant.</Empty>
          ) : (
            <div class="columns">
              {[...l.tenants].sort((a, b) => Number(b.name === at) - Number(a.name === at)).map((t) => (
                <section class={t.name === at ? "card found" : "card"} aria-current={t.name === at ? "true" : undefined} key={t.name} aria-label={`Tenant ${t.name}`}>
                  <div class="card-head">
                    <h2>{t.name}</h2>
                    <a class="aside" href={query("/jobs", { prefix: t.prefix || t.name })}>jobs {t.prefix || t.name}…</a>
                  </div>
                  <Table
                    caption={`Limits of ${t.name}`}
                    rows={limits.filter(([k]) => t.limits?.[k] !== undefined || t.use?.[k] !== undefined)}
                    id={([k]) => k}
                    columns={[
                      { name: "Limit", cell: ([, name]) => name },
                      { name: "Used", cell: ([k]) => (t.use?.[k] === undefined ? "" : number(Number(t.use[k]))), number: true },
                      { name: "At most", cell: ([k]) => (Number(t.limits?.[k] ?? 0) ? number(Number(t.limits![k])) : "no limit"), number: true },
                      {
                        name: "",
                        cell: ([k]) => {
                          const max = Number(t.limits?.[k] ?? 0);
                          return max > 0 && t.use?.[k] !== undefined && <meter min={0} max={max} value={Number(t.use[k])} aria-label={`${k} used`} />;
                        },
                      },
                    ]}
                  />
                  <p class="muted">
                    {[
                      t.limits?.highestPriority && t.limits.highestPriority !== "CLASS_UNSPECIFIED" ? `highest priority ${t.limits.highestPriority}` : "",
                      (t.limits?.skus as string[])?.length ? `SKUs ${(t.limits!.skus as string[]).join(", ")}` : "",
                      (t.limits?.pools as string[])?.length ? `pools ${(t.limits!.pools as string[]).join(", ")}` : "",
                    ].filter(Boolean).join(" · ")}
                  </p>
                </section>
              ))}
            </div>
          )
        }
      </Answer>
    </Page>
  );
}

export function Audit() {
  const list = usePages<AuditEntry>("/v1/audit", 200, "entries", (e) => e.time + (e.peer ?? "") + (e.requestId ?? "") + (e.method ?? ""));
  const gateway = (list.first.gateway as string) ?? "";
  const since = list.first.since as string | undefined;
  const { query: q, path, route } = useLocation();
  const text = (q.q ?? "").toLowerCase();
  const matches = useCallback(
    (e: AuditEntry) => [e.caller, e.method, e.object, e.outcome, e.reason, e.message, e.peer, e.requestId, e.revision].some((v) => v?.toLowerCase().includes(text)),
    [text],
  );
  return (
    <Page title="Audit log" tools={<Commands of={[{ what: "The newest entries", path: "/v1/audit", berth: ["get", "audit"] }]} />}>
      <p class="lead">
        Calls that change something, and rejected calls and connections, newest first. Each gateway lists only its own
        entries{gateway && <>: these are from <b>{gateway}</b>{since && <> since {date(since)} {clock(since)}</>}</>}. The audit
        log on disk has all of them.
      </p>
      <form class="filters" role="search" aria-label="Filter entries" onSubmit={(e) => e.preventDefault()}>
        <label>
          With the text
          <input value={q.q ?? ""} onChange={(e) => route(query(path, { ...q, q: (e.target as HTMLInputElement).value || undefined }), true)} />
        </label>
      </form>
      <Problem error={list.error} what="Audit log" />
      <LongTable
        caption="Audit log"
        pages={list}
        id={(e) => e.time + (e.peer ?? "") + (e.requestId ?? "") + (e.method ?? "")}
        filter={text ? matches : undefined}
        empty={text ? `No entry has the text ${q.q}.` : "No entry yet."}
        columns={[
          { name: "Time", cell: (e) => <time title={date(e.time)}>{clock(e.time)}</time>, by: (e) => Date.parse(e.time) },
          { name: "Caller", cell: (e) => e.caller },
          { name: "Method", cell: (e) => e.method?.replace("berth.v1.", "") },
          { name: "Object", cell: (e) => e.object && <a href={pages.search(e.object)}>{e.object}</a> },
          { name: "Outcome", cell: (e) => <span class={e.outcome === "OK" ? "muted" : "late"}>{e.outcome}</span> },
          { name: "Why", cell: (e) => <span title={e.message}>{e.message}</span>, wide: true },
          { name: "Peer", cell: (e) => e.peer },
          { name: "Request ID", cell: (e) => e.requestId },
        ]}
      />
    </Page>
  );
}
