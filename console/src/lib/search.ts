import { Failure, pages, query } from "./call";
import { about } from "./objects";
import { resultOf } from "./result";
import { amount, constraintsText, keyText, noLeader } from "./text";
import type { Assignment, AuditEntry, Caller, Constraints, Executor, Finding, Group, Job, Leaders, Reservation, Sku, Tenant, Usage, Volume } from "./types";

// Hit is an object that has the text as a name, and the view that shows the object.
export interface Hit {
  kind: string;
  name: string;
  page: string;
  note?: string;
}

export interface Found {
  hits: Hit[];
  // more is the number of further objects with the name.
  more: number;
  // near has objects with a similar name, if no object has the name.
  near: Hit[];
  // partial names the lists of which only the beginning was searched, and failed those that did
  // not answer.
  partial: string[];
  failed: string[];
  // hidden names the lists that the caller may not see.
  hidden: string[];
}

export interface Sources {
  get: <T>(path: string) => Promise<T>;
  // firstEvent returns the cursor of the first event of a job after another cursor.
  firstEvent: (job: string, after: string) => Promise<string | undefined>;
  may: (method: string) => boolean;
}

// condition is what the command line adds to the state of an executor.
const condition = (e: Executor) => (e.draining ? "DRAINING" : e.disabled?.length ? "DISABLED" : e.skippedUntil ? "SKIPPED" : "");

// needs returns what the command line prints as the needs of a reservation or a queue.
const needs = (c: Constraints = {}): string[] => [
  ...Object.entries(c.resources ?? {}).map(([r, n]) => `${r} ${amount(r, n)}`),
  ...(c.sku ? [`sku ${c.sku}`] : []), ...Object.entries(c.attributes ?? {}).map(([k, v]) => `${k}=${v}`),
  ...(c.pools?.length ? [`pools ${c.pools.join(",")}`] : []), ...(c.role ? [`role ${c.role}`] : []),
];

// badEnds returns what the command line prints about workers that did not end well: "2 FAILED".
const badEnds = (r: Reservation) => ["FAILED", "LOST", "EVICTED"].filter((s) => r.workerCounts?.[s]).map((s) => `${r.workerCounts![s]} ${s}`);

const pageSize = 1000;
// mostPages bounds how much of a list a search reads.
const mostPages = 10;
const mostHits = 50;
const mostJobs = 40;

// leastPart is the length from which a text is also searched in messages.
const leastPart = 4;

const lower = (s?: string) => (s ?? "").toLowerCase();

// clean removes what surrounds a name where the command line prints it: the later columns of a
// table, quotes, a kind such as "job", and punctuation.
export function clean(text: string): string {
  let name = text.trim().replace(/(?:\t| {2}).*$/s, "").replace(/^["'`(]+|["'`),;:.]+$/g, "");
  name = name.replace(/^(?:job|reservation|executor|worker|queue|group|volume|pool|sku|tenant|service|finding|request|uid)[ /]+(?=\S)/i, (kind) => (kind.endsWith("/") ? kind : ""));
  return name.replace(/^https?:\/\/([^/]+)\/?$/, "$1").trim();
}

// search finds the objects that have a text as a name. Names are what the command line prints.
// It first requests single objects and short lists, and reads long lists only if none of these
// has the name.
export async function search(text: string, from: Sources): Promise<Found> {
  const name = clean(text);
  const found: Found = { hits: [], more: 0, near: [], partial: [], failed: [], hidden: [] };
  if (!name) return found;
  const near = new Map<string, Hit>();
  const add = (hit: Hit, names: (string | undefined)[]) => {
    if (names.some((n) => n && lower(n) === lower(name))) {
      if (found.hits.some((h) => h.page === hit.page && h.kind === hit.kind && h.name === hit.name)) return;
      if (found.hits.length < mostHits) found.hits.push(hit);
      else found.more++;
    } else if (near.size < 8 && name.length > 1 && lower(hit.name).includes(lower(name))) near.set(hit.page, hit);
  };
  // needed returns the name if the text has needs, such as "slots 1, sku gpu-8", and constraints have
  // all of them.
  const wanted = lower(text.trim()).split(/,\s+/);
  const areNeeds = wanted.every((part) => /\s|=/.test(part)) && /\s/.test(text.trim()) && !/^sku \S+$/i.test(text.trim());
  const needed = (c?: Constraints) => {
    const parts = areNeeds ? needs(c).map(lower) : [];
    return areNeeds && wanted.every((part) => parts.includes(part)) ? name : undefined;
  };
  const note = (list: string[], what: string) => void (list.includes(what) || list.push(what));
  // read requests a path. An object that does not exist is no failure of the search.
  const read = async <T>(what: string, method: string, path: string): Promise<T | undefined> => {
    if (!from.may(method)) return note(found.hidden, what), undefined;
    try {
      return await from.get<T>(path);
    } catch (err) {
      const { http = 0, reason = "" } = err instanceof Failure ? err : {};
      if (reason === "TOO_LARGE") throw err;
      if (http === 403) note(found.hidden, what);
      else if (http !== 400 && http !== 404) note(found.failed, what);
      return undefined;
    }
  };
  const list = async <T>(what: string, method: string, path: string, field: string): Promise<T[]> => {
    const rows: T[] = [];
    let token = "";
    let size = pageSize;
    for (let page = 0; page < mostPages; ) {
      let answer: Record<string, unknown> | undefined;
      try {
        answer = await read(what, method, path + (path.includes("?") ? "&" : "?") + query("", { pageSize: size, pageToken: token }).slice(1));
      } catch (err) {
        if (size === 1) throw err;
        size = Math.ceil(size / 8); // the page is too large for the gateway
        continue;
      }
      if (!answer) return rows;
      rows.push(...((answer[field] as T[]) ?? []));
      token = (answer.nextPageToken as string) ?? "";
      if (!token) return rows;
      page++;
    }
    note(found.partial, what);
    return rows;
  };
  const reservations = (path: string) => list<Reservation>("reservations", "Reservations/ListReservations", path, "reservations");
  const assignments = (path: string) => list<Assignment>("workers", "Assignments/ListAssignments", path, "assignments");
  const end = (): Found => ({ ...found, near: found.hits.length ? [] : [...near.values()] });
  const ofReservation = (r: Reservation, at?: string): Hit => ({
    kind: "Reservation", name: keyText(r), page: query(pages.reservation(r.job, r.stage, r.name), { at }), note: [r.state, r.reason].filter(Boolean).join(" · "),
  });
  const ofExecutor = (e: Executor, at?: string): Hit => ({ kind: "Executor", name: e.id, page: query(pages.executor(e.id), { at }), note: [e.state, e.sku].filter(Boolean).join(" · ") });

  // JOB/STAGE, JOB/STAGE/NAME, JOB/STAGE/INDEX and JOB/STAGE/INDEX.NUMBER
  const [job, stage, third, fourth] = name.split("/");
  const words = name.split("/").length;
  if (job && stage && words <= 4) {
    const stored = await reservations(query("/v1/reservations", { job, stage }));
    const last = fourth ?? third;
    const worker = /^(\d+)(?:\.(\d+)|-\d+)?$/.exec(last ?? "");
    const named = stored.filter((r) => r.name === (third ?? "main"));
    if (words < 4 && named.length) {
      named.forEach((r) => found.hits.push(ofReservation(r)));
      return end();
    }
    if (!last && stored.length) {
      found.hits.push(...stored.slice(0, mostHits).map((r) => ofReservation(r)));
      found.more = Math.max(0, stored.length - mostHits);
      return end();
    }
    if (worker) {
      const [, index, number] = worker;
      const at = number ? `${index}.${number}` : index;
      const live = (await assignments(query("/v1/assignments", { job, stage }))).filter((a) => a.index === Number(index) && (words < 4 || a.reservation === third));
      const exact = live.filter((a) => !number || a.number === Number(number));
      for (const a of exact.length ? exact : []) {
        add({ kind: "Worker", name: `${job}/${stage}/${a.index}.${a.number}`, page: query(pages.reservation(job, stage, a.reservation), { at: `${a.index}.${a.number}` }), note: [a.state, a.executor].join(" · ") },
          [`${job}/${stage}/${a.index}.${a.number}`, `${job}/${stage}/${a.index}`, name]);
      }
      if (found.hits.length) return end();
      // A worker that waits has no executor, and one whose version has ended is in the reservation.
      const versions = await reservations(query("/v1/reservations", { job, stage, versions: "true" }));
      const has = (r: Reservation) =>
        (words < 4 || r.name === third) &&
        (r.workers?.some((w) => w.index === Number(index) && (!number || w.number === Number(number))) ||
          r.ends?.some((e) => e.workers?.some((w) => w.first <= Number(index) && Number(index) <= w.last && (!number || w.number === Number(number)))));
      for (const r of [...versions, ...stored].filter(has)) {
        const page = query(pages.reservation(job, stage, r.name), { at });
        if (!found.hits.some((h) => h.page === page)) found.hits.push({ kind: "Worker", name: `${job}/${stage}/${at}`, page, note: `in ${keyText(r)}, ${r.state}` });
      }
      if (found.hits.length) return end();
      // The index has a volume and no worker.
      for (const v of await list<Volume>("volumes", "Volumes/ListVolumes", query("/v1/volumes", { job, stage }), "volumes")) {
        if (v.index === Number(index)) found.hits.push({ kind: "Volume", name: v.id, page: query(pages.job(job), { at: v.id }), note: `${v.state} · ${name}` });
      }
      if (found.hits.length) return end();
    }
    stored.slice(0, 8).forEach((r) => near.set(r.name, ofReservation(r)));
    if (!stored.length && (await reservations(query("/v1/reservations", { job }))).length) {
      near.set(job, { kind: "Job", name: job, page: pages.job(job) });
    }
  }

  // Single objects and short lists.
  const attribute = /^[^=/\s]+=.+$/.test(name);
  const [executor, ofJob, jobs, usage, skus, pools, tenants, leaders, findings, pending, caller, withAttribute] = await Promise.all([
    words === 1 ? read<Executor>("executors", "Executors/GetExecutor", "/v1/executors/" + encodeURIComponent(name)) : undefined,
    words === 1 ? read<{ reservations: Reservation[] }>("reservations", "Reservations/ListReservations", query("/v1/reservations", { job: name, pageSize: 1 })) : undefined,
    words === 1 ? read<{ jobs: Job[] }>("jobs", "Reservations/ListJobs", query("/v1/jobs", { prefix: name, pageSize: 20 })) : undefined,
    read<Usage>("usage", "Usage/GetUsage", "/v1/usage"),
    read<{ skus: Sku[] }>("SKUs", "Catalog/ListSkus", "/v1/skus"),
    read<{ pools: { name: string; attributes?: Record<string, string> }[] }>("pools", "Catalog/ListPools", "/v1/pools"),
    read<{ tenants: Tenant[] }>("tenants", "Tenants/ListTenants", "/v1/tenants"),
    read<Leaders>("leaders", "Leaders/ListLeaders", "/v1/leaders"),
    read<{ findings: Finding[] }>("findings", "Findings/ListFindings", "/v1/findings"),
    list<Group>("queues", "Reservations/ListPending", "/v1/reservations:pending", "groups"),
    from.get<Caller>("/v1/caller").catch(() => undefined),
    attribute ? read<{ executors: Executor[]; totalSize?: number }>("executors", "Executors/ListExecutors", query("/v1/executors", { [`attributes[${name.slice(0, name.indexOf("="))}]`]: name.slice(name.indexOf("=") + 1), pageSize: 1 })) : undefined,
  ]);
  if (executor) add(ofExecutor(executor), [name]);
  if (ofJob?.reservations?.length) add({ kind: "Job", name: ofJob.reservations[0]!.job, page: pages.job(ofJob.reservations[0]!.job) }, [name]);
  for (const j of jobs?.jobs ?? []) add({ kind: "Job", name: j.name, page: pages.job(j.name) }, [j.name]);
  const skuNames = new Set([...(usage?.skus ?? []).map((s) => s.sku), ...(skus?.skus ?? []).map((s) => s.name)]);
  for (const sku of skuNames) add({ kind: "SKU", name: sku, page: query("/usage", { sku }) }, [sku]);
  for (const s of usage?.skus ?? []) add({ kind: "SKU", name: s.sku, page: query("/usage", { sku: s.sku }), note: s.wantedMessage }, [s.wantedReason]);
  // skuOf returns the SKU that constraints have, if no executor has it.
  const skuOf = (c?: Constraints) => (skuNames.has(c?.sku ?? "") ? undefined : c?.sku);
  for (const d of usage?.unmapped ?? []) add({ kind: "Demand that fits no SKU", name: d.group, page: "/usage", note: d.message }, [d.reason, needed(d.constraints), skuOf(d.constraints)]);
  for (const p of pools?.pools ?? []) add({ kind: "Pool", name: p.name, page: query("/executors", { pool: p.name }), note: Object.entries(p.attributes ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") }, [p.name, ...(withAttribute?.executors?.length ? [] : Object.entries(p.attributes ?? {}).map(([k, v]) => `${k}=${v}`))]);
  const isJob = found.hits.some((h) => h.kind === "Job"); // a tenant often has the name of its job
  for (const t of isJob ? [] : (tenants?.tenants ?? [])) add({ kind: "Tenant", name: t.name, page: query("/tenants", { at: t.name }) }, [t.name, t.prefix]);
  for (const s of leaders?.services ?? []) {
    add({ kind: "Service", name: s.service, page: query("/", { at: s.service }), note: s.leader ? `led by ${s.leader}` : noLeader(s) }, [s.service]);
    add({ kind: "Term", name: s.term ?? "", page: query("/", { at: s.service }), note: `of ${s.service}` }, [s.term]);
    for (const r of s.replicas ?? []) {
      add({ kind: "Replica", name: r.id || r.address, page: query("/", { at: s.service }), note: `${r.role} of ${s.service}, ${r.address}` }, [r.id, r.address, r.instance, r.version, r.role]);
    }
  }
  if (caller) {
    add({ kind: "Gateway", name: caller.gateway ?? "", page: "/", note: "that serves this page" }, [caller.gateway]);
    add({ kind: "Caller", name: caller.identity || caller.name || "", page: from.may("AuditLog/ListAuditEntries") ? query("/audit", { q: name }) : "/", note: "you" }, [caller.identity, caller.name]);
    add({ kind: "Cluster", name: caller.cluster ?? "", page: "/" }, [caller.cluster]);
  }
  const ofKind = (findings?.findings ?? []).filter((f) => lower(f.kind) === lower(name)).length;
  if (from.may("Findings/ListFindings") && (ofKind || about[name.toUpperCase()])) {
    add({ kind: "Findings", name: name.toUpperCase(), page: pages.findings(name.toUpperCase()), note: ofKind ? `${ofKind} now` : "none now" }, [name]);
  }
  for (const f of findings?.findings ?? []) add({ kind: "Finding", name: `${f.kind} ${f.object}`, page: pages.findings(f.kind), note: f.message }, words === 1 && !executor && !ofJob?.reservations?.length ? [f.object] : []);
  for (const g of pending) {
    add({ kind: "Queue", name: g.id, page: pages.queue(g.id), note: constraintsText(g.constraints) }, [g.id]);
    add({ kind: "Queue", name: g.head ? keyText(g.head) : g.id, page: pages.queue(g.id), note: g.message }, [g.reason, needed(g.constraints), skuOf(g.constraints)]);
  }
  if (withAttribute?.executors?.length) {
    add({ kind: "Executors", name, page: query("/executors", { attributes: name }), note: `${withAttribute.totalSize ?? withAttribute.executors.length} with this attribute` }, [name]);
  }
  // A reason, a state, a number and needs may have more.
  if (found.hits.length && !/^[A-Z]+([_,][A-Z]+)*$/.test(name) && !/^\d+$/.test(name) && !found.hits.some((h) => h.kind === "Queue" && h.name !== name)) return end();

  if (["REGISTERED", "READY", "UNREACHABLE", "LOST"].includes(name.toUpperCase()) && from.may("Executors/ListExecutors")) {
    add({ kind: "Executors", name: name.toUpperCase(), page: query("/executors", { state: name.toUpperCase() }), note: "in this state" }, [name]);
  }

  // Long lists.
  const [all, executors, workers, volumes, audit] = await Promise.all([
    reservations("/v1/reservations"),
    list<Executor>("executors", "Executors/ListExecutors", "/v1/executors", "executors"),
    assignments("/v1/assignments"),
    list<Volume>("volumes", "Volumes/ListVolumes", "/v1/volumes", "volumes"),
    list<AuditEntry>("audit log", "AuditLog/ListAuditEntries", "/v1/audit", "entries"),
  ]);
  for (const r of all) {
    const { word } = resultOf(r); // "COMPLETED, 2 failed, 1 lost" is COMPLETED,FAILED in tables of berth
    add(ofReservation(r, [r.uid, r.epoch, r.parent].find((id) => id && lower(id) === lower(name))),
      [needed(r.constraints), skuOf(r.constraints), ...badEnds(r), [r.reason, ...badEnds(r)].join(", "),
        word, word.replace(/^(\w+), \d+ (\w+).*$/, "$1,$2"), r.uid, r.epoch, r.parent, r.name, r.stage, `${r.stage}/${r.name}`, r.state, r.reason, ...Object.entries(r.labels ?? {}).flatMap(([k, v]) => [`${k}=${v}`, v])]);
  }
  for (const e of executors) {
    const disable = e.disabled?.find((d) => lower(d.requestId) === lower(name) || lower(d.reason) === lower(name));
    add(ofExecutor(e, disable?.requestId), [e.id, e.host, e.address, e.incarnation, disable && name, condition(e), `${e.state},${condition(e)}`, ...(e.draining ? ["DRAINED", `${e.state},DRAINED`] : []), ...Object.values(e.attributes ?? {})]);
  }
  for (const v of volumes) {
    add({ kind: "Volume", name: v.id, page: query(pages.job(v.job), { at: v.id }), note: `${v.state} · ${v.job}/${v.stage}/${v.index} on ${v.executor}` }, [v.id, v.state]);
  }
  for (const a of workers) {
    const at = `${a.index}.${a.number}`;
    add({ kind: "Worker", name: `${a.job}/${a.stage}/${at}`, page: query(pages.reservation(a.job, a.stage, a.reservation), { at }), note: [a.state, a.reason, a.executor].filter(Boolean).join(" · ") },
      [a.state, a.reason, a.lastError, at, ...(all.some((r) => r.uid === a.uid) ? [] : [a.uid, a.epoch])]);
  }
  const entries = audit.filter((e) => [e.caller, e.requestId, e.peer, e.object, e.method, e.reason, e.revision].some((n) => lower(n) === lower(name)));
  if (entries.length && !found.hits.length) {
    add({ kind: "Audit log", name, page: query("/audit", { q: name }), note: `${entries.length} entries` }, [name]);
  }
  if (found.hits.length) return end();

  // A part of a message, such as a reason in it or the path of a program.
  if (name.length >= leastPart && !near.size) {
    const say = (hit: Hit, messages: (string | undefined)[]) => {
      if (messages.some((m) => lower(m).includes(lower(name)))) add(hit, [name]);
    };
    for (const r of all) say({ ...ofReservation(r), note: r.message }, [r.message]);
    for (const a of workers) {
      const at = `${a.index}.${a.number}`;
      say({ kind: "Worker", name: `${a.job}/${a.stage}/${at}`, page: query(pages.reservation(a.job, a.stage, a.reservation), { at }), note: a.lastError }, [a.lastError]);
    }
    for (const f of findings?.findings ?? []) say({ kind: "Finding", name: `${f.kind} ${f.object}`, page: pages.findings(f.kind), note: f.message }, [f.message]);
    if (found.hits.length) return end();
  }

  // A version that is not the newest of its reservation, and the events.
  if (/^\d+$/.test(name) || /^[0-9a-z]+-[0-9a-z]+$/.test(name)) {
    const byJob = [...new Set(all.map((r) => r.job))];
    if (byJob.length > mostJobs) note(found.partial, "versions and events");
    const event = /^(\d+)-(\d+)$/.exec(name);
    for (const one of byJob.slice(0, mostJobs)) {
      for (const r of await list<Reservation>("versions", "Reservations/ListReservations", query("/v1/reservations", { job: one, versions: "true" }), "reservations")) {
        add(ofReservation(r, [r.uid, r.epoch].find((id) => id === name) ?? r.uid), [r.uid, r.epoch]);
      }
      if (event && from.may("Events/WatchEvents")) {
        const after = Number(event[2]) > 0 ? `${event[1]}-${Number(event[2]) - 1}` : `${Number(event[1]) - 1}-${Number.MAX_SAFE_INTEGER}`;
        if ((await from.firstEvent(one, after)) === name) add({ kind: "Event", name, page: query(pages.job(one), { at: name }), note: `of job ${one}` }, [name]);
      }
    }
  }
  return end();
}
