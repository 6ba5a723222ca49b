// Checks without a browser what the search finds: node test/search.mjs
import { buildSync } from "esbuild";
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const file = join(fileURLToPath(new URL(".", import.meta.url)), "../src/lib/search.ts");
const { outputFiles } = buildSync({
  stdin: { contents: `export * from "./search"; export { Failure } from "./call"; export { sorted, textOf } from "./sort"; export { objectPage } from "./objects";`, resolveDir: join(file, "..") },
  bundle: true, format: "esm", write: false,
});
globalThis.document = { querySelector: () => null, addEventListener() {} };
const { clean, Failure, objectPage, search, sorted } = await import("data:text/javascript;base64," + Buffer.from(outputFiles[0].contents).toString("base64"));

const reservation = (job, stage, name, more) => ({ job, stage, name, state: "ACTIVE", ...more });
const stored = [
  reservation("train", "gpu", "main", { uid: "2-1", epoch: "120", labels: { team: "vision" } }),
  reservation("train", "gpu", "extra", { uid: "2-2", epoch: "130" }),
  reservation("train", "eval", "main", { uid: "2-3", epoch: "150", state: "QUEUED", reason: "INSUFFICIENT_CAPACITY", workers: [{ index: 0, number: 1 }] }),
  reservation("batch", "fit", "main", { uid: "2-5", epoch: "190", state: "FAILED", reason: "ROUNDS_EXHAUSTED", workerCounts: { FAILED: 1 }, message: "round 1: worker 0.1 on host-1: START_FAILED: \"/no/such\" is not an executable file" }),
  reservation("large", "tpu", "main", { uid: "2-6", epoch: "195", state: "QUEUED", reason: "NO_MATCHING_SKU", constraints: { resources: { slots: "1", cpu: "2000" }, sku: "tpu-v9" } }),
  reservation("batch", "map", "part-1", { uid: "2-4", epoch: "180", state: "COMPLETED", workerCounts: { FAILED: 8 }, ends: [{ state: "FAILED", workers: [{ first: 0, last: 7, number: 2 }] }] }),
];
const older = [reservation("train", "gpu", "main", { uid: "1-z", epoch: "90", state: "REPLACED" })];
const workers = [
  { job: "train", stage: "gpu", reservation: "main", index: 0, number: 1, uid: "2-1", epoch: "120", executor: "host-1", state: "RUNNING" },
  { job: "train", stage: "gpu", reservation: "extra", index: 0, number: 2, uid: "2-2", epoch: "130", executor: "host-2", state: "EVICTING", reason: "DRAINED" },
];
const executors = [
  { id: "host-1", sku: "gpu-8", pool: "blue", host: "rack-1.example", address: "10.0.0.1:7400", state: "READY", attributes: { zone: "a" }, incarnation: "33" },
  { id: "host-2", sku: "gpu-8", host: "rack-2.example", address: "10.0.0.2:7400", state: "READY", disabled: [{ requestId: "disk-swap-7", reason: "a broken disk" }] },
  { id: "host-3", sku: "gpu-8", host: "rack-3.example", state: "READY", draining: true },
];
const audit = [{ time: "2026-01-01T00:00:00Z", caller: "operator:alice", requestId: "r-99", peer: "10.9.9.9:1" }];
const short = {
  "/v1/usage": { skus: [{ sku: "gpu-8", wantedReason: "PENDING" }], unmapped: [{ group: "5ad0", reason: "TOO_LARGE", constraints: { sku: "gpu-8" } }] },
  "/v1/skus": { skus: [{ name: "cpu-64" }] },
  "/v1/pools": { pools: [{ name: "blue", attributes: { room: "north" } }] },
  "/v1/tenants": { tenants: [{ name: "research", prefix: "res" }, { name: "train" }] },
  "/v1/leaders": { services: [{ service: "registry", term: "777", leader: "registry-0", replicas: [{ id: "registry-0", address: "10.0.1.1:7000", instance: "ABCDEF", role: "LEADER", version: "0.2.0" }] }] },
  "/v1/findings": { findings: [{ kind: "QUARANTINED", object: "train/gpu/0.2" }, { kind: "POISON", object: "v1/reservations/x" }] },
  "/v1/caller": { gateway: "gateway-0", cluster: "berlin", identity: "operator:bob", name: "bob" },
};
const requests = [];

// get answers as the gateway does: lists have pages of one row.
async function get(url) {
  requests.push(url);
  const { pathname, searchParams: q } = new URL(url, "http://x");
  if (short[pathname]) return short[pathname];
  const page = (field, rows) => {
    const at = Number(q.get("pageToken") ?? 0);
    return { [field]: rows.slice(at, at + 2), nextPageToken: at + 2 < rows.length ? String(at + 2) : "" };
  };
  const only = (rows, ...fields) => rows.filter((r) => fields.every((f) => !q.has(f) || r[f] === q.get(f)));
  switch (pathname) {
    case "/v1/reservations":
      return page("reservations", only(q.has("versions") ? [...stored, ...older] : stored, "job", "stage"));
    case "/v1/jobs":
      return page("jobs", ["train"].filter((j) => j.startsWith(q.get("prefix"))).map((name) => ({ name })));
    case "/v1/assignments":
      return page("assignments", only(workers, "job", "stage"));
    case "/v1/executors":
      return page("executors", executors.filter((e) => [...q].every(([k, v]) => !k.startsWith("attributes[") || e.attributes?.[k.slice(11, -1)] === v)));
    case "/v1/volumes":
      return page("volumes", only([{ id: "vol-5k", job: "train", stage: "db", index: 3, state: "READY", executor: "host-1" }], "job", "stage"));
    case "/v1/audit":
      return page("entries", audit);
    case "/v1/reservations:pending":
      return page("groups", [{ id: "8f6dc49170ba16e0", reason: "INSUFFICIENT_CAPACITY", head: { job: "train", stage: "eval", name: "main" } },
        { id: "c08511dbb72cdf60", reason: "NO_MATCHING_SKU", head: { job: "large", stage: "tpu", name: "main" }, constraints: { resources: { slots: "1", cpu: "2000" }, sku: "tpu-v9" } }]);
  }
  const executor = executors.find((e) => pathname === "/v1/executors/" + e.id);
  if (executor) return executor;
  throw new Failure(404, { code: 5, message: "not found", details: [{ reason: "NOT_FOUND" }] });
}
const from = { get, may: () => true, firstEvent: async (job, after) => (job === "train" && after === "151-1" ? "151-2" : undefined) };
const [fit, tpu] = ["/jobs/batch/stages/fit/reservations/main", "/jobs/large/stages/tpu/reservations/main"];
const main = "/jobs/train/stages/gpu/reservations/main";

for (const [text, ...pages] of [
  ["train", "/jobs/train"],
  ["batch", "/jobs/batch"], // its only reservation has ended
  ["train/gpu", main],
  ["train/gpu/main", main],
  ["train/gpu/extra", "/jobs/train/stages/gpu/reservations/extra"],
  ["gpu/extra", "/jobs/train/stages/gpu/reservations/extra"], // as in lines of events
  ["batch/map", "/jobs/batch/stages/map/reservations/part-1"], // no reservation has the default name
  ["train/gpu/0.1", main + "?at=0.1"],
  ["train/gpu/0.2", "/jobs/train/stages/gpu/reservations/extra?at=0.2"],
  ["train/gpu/0", main + "?at=0.1", "/jobs/train/stages/gpu/reservations/extra?at=0.2"],
  ["train/gpu/extra/0.2", "/jobs/train/stages/gpu/reservations/extra?at=0.2"],
  ["train/eval/0.1", "/jobs/train/stages/eval/reservations/main?at=0.1"], // it waits
  ["batch/map/5.2", "/jobs/batch/stages/map/reservations/part-1?at=5.2"], // it has ended
  ["batch/map/0-3", "/jobs/batch/stages/map/reservations/part-1?at=0"],
  ["train/db/3", "/jobs/train?at=vol-5k"],
  ["2-2", "/jobs/train/stages/gpu/reservations/extra?at=2-2"],
  ["1-z", main + "?at=1-z"], // an older version
  ["130", "/jobs/train/stages/gpu/reservations/extra?at=130"],
  ["90", main + "?at=90"],
  ["777", "/?at=registry"],
  ["151-2", "/jobs/train?at=151-2"],
  ["host-1", "/executors/host-1"],
  ["HOST-1", "/executors/host-1"],
  ["executor host-1", "/executors/host-1"],
  ["`host-1`.", "/executors/host-1"],
  ["host-1  gpu-8  READY  0  0/2", "/executors/host-1"], // a row of a table
  ["train/eval/main\tQUEUED\t0/9", "/jobs/train/stages/eval/reservations/main"],
  ["uid 2-2", "/jobs/train/stages/gpu/reservations/extra?at=2-2"],
  ["request r-99", "/audit?q=r-99"],
  ["rack-2.example", "/executors/host-2"],
  ["10.0.0.1:7400", "/executors/host-1"],
  ["http://10.0.1.1:7000/", "/?at=registry"],
  ["registry-0", "/?at=registry"],
  ["registry", "/?at=registry"],
  ["ABCDEF", "/?at=registry"],
  ["gateway-0", "/"],
  ["0.2.0", "/?at=registry"],
  ["LEADER", "/?at=registry"],
  ["bob", "/audit?q=bob"],
  ["COMPLETED,FAILED", "/jobs/batch/stages/map/reservations/part-1"],
  ["COMPLETED, 8 failed", "/jobs/batch/stages/map/reservations/part-1"],
  ["READY,DISABLED", "/executors/host-2"],
  ["DISABLED", "/executors/host-2"],
  ["gpu-8", "/usage?sku=gpu-8"],
  ["cpu-64", "/usage?sku=cpu-64"],
  ["blue", "/executors?pool=blue"],
  ["zone=a", "/executors?attributes=zone%3Da"],
  ["team=vision", main],
  ["READY", "/executors?state=READY", "/jobs/train?at=vol-5k"],
  ["research", "/tenants?at=research"],
  ["operator:alice", "/audit?q=operator%3Aalice"],
  ["r-99", "/audit?q=r-99"],
  ["vol-5k", "/jobs/train?at=vol-5k"],
  ["disk-swap-7", "/executors/host-2?at=disk-swap-7"],
  ["8f6dc49170ba16e0", "/queues/8f6dc49170ba16e0"],
  ["INSUFFICIENT_CAPACITY", "/queues/8f6dc49170ba16e0", "/jobs/train/stages/eval/reservations/main"],
  ["DRAINED", "/executors/host-3", "/jobs/train/stages/gpu/reservations/extra?at=0.2"],
  ["READY,DRAINED", "/executors/host-3"],
  ["room=north", "/executors?pool=blue"], // no executor has it
  ["tpu-v9", "/queues/c08511dbb72cdf60", tpu],
  ["sku tpu-v9", "/queues/c08511dbb72cdf60", tpu],
  ["slots 1, cpu 2, sku tpu-v9", "/queues/c08511dbb72cdf60", tpu],
  ["cpu 2", "/queues/c08511dbb72cdf60", tpu],
  ["ROUNDS_EXHAUSTED, 1 FAILED", fit],
  ["1 FAILED", fit],
  ["START_FAILED", fit], // in a message
  ["/no/such", fit],
  ["worker 0.1 on host-1", fit],
  ["QUARANTINED", "/findings?kind=QUARANTINED"],
  ["HEAD_WAITS", "/findings?kind=HEAD_WAITS"], // none now
])
  assert.deepEqual((await search(text, from)).hits.map((h) => h.page), pages, text);

for (const text of ["nope", "nope/a", "train/nope", "train/gpu/9.9", "train/gpu/nope", "4-4", "1.2.3.4:5", "a/b/c/d/e"]) {
  const { hits, failed } = await search(text, from);
  assert.deepEqual({ hits, failed }, { hits: [], failed: [] }, text);
}
assert.deepEqual((await search("train/gpu/nope", from)).near.map((h) => h.name), ["train/gpu", "train/gpu/extra"]);
assert.deepEqual((await search("host", from)).near.map((h) => h.name), ["host-1", "host-2", "host-3"]);
assert.equal(clean(" job train, "), "train");
assert.equal(clean("queue"), "queue");

// A name that a short list has does not read the long ones.
requests.length = 0;
await search("host-1", from);
assert.deepEqual(requests.filter((r) => /assignments|audit|volumes/.test(r)), []);

// What could not be searched is named.
const broken = { ...from, get: async (url) => (url.startsWith("/v1/volumes") ? Promise.reject(new Failure(503, { code: 14, message: "no leader" })) : get(url)) };
assert.deepEqual((await search("nope", broken)).failed, ["volumes"]);
const own = { ...from, may: (method) => !method.startsWith("Executors/") };
assert.deepEqual((await search("host-1", own)).hidden, ["executors"]);
let pages = 0;
const endless = { ...from, get: async (url) => (url.startsWith("/v1/executors?") ? (pages++, { executors: [], nextPageToken: "more" }) : get(url)) };
assert.deepEqual((await search("nope", endless)).partial, ["executors"]);
assert.equal(pages, 10);
const sizes = [];
const large = {
  ...from,
  get: async (url) => {
    const size = Number(new URL(url, "http://x").searchParams.get("pageSize"));
    if (url.startsWith("/v1/assignments") && (sizes.push(size), size > 100)) throw new Failure(413, { code: 8, message: "too large", details: [{ reason: "TOO_LARGE" }] });
    return get(url);
  },
};
assert.equal((await search("DRAINED", large)).hits.length, 2);
assert.deepEqual(sizes, [1000, 125, 16]);

// Findings link to their object.
for (const [kind, object, page] of [
  ["HEAD_WAITS", "train/eval/main", "/jobs/train/stages/eval/reservations/main"],
  ["FAILS_STARTS", "host-1", "/executors/host-1"],
  ["QUARANTINED", "train/gpu/0.1", "/search?q=train%2Fgpu%2F0.1"],
  ["MASS_LOSS", "blue", "/executors?pool=blue"],
  ["MASS_LOSS", "executors", "/executors"],
  ["SERVICE_UNAVAILABLE", "assigner", "/?at=assigner"],
  ["GATEWAY_NOT_READY", "gateway-0", undefined],
  ["QUARANTINED", "findings", "/findings?kind=QUARANTINED"],
  ["POISON", "a/b", undefined],
  ["NEW_KIND", "x", "/search?q=x"],
])
  assert.equal(objectPage({ kind, object }), page, kind);

// Sorting: numbers by value, names with numbers in order, rows without a value last.
const columns = [{ name: "A", cell: (r) => r.a }, { name: "B", cell: (r) => r.a, by: (r) => r.b }];
const order = (list, column, down) => sorted(list, columns, { column, down }).map((r) => r.a);
assert.deepEqual(order([{ a: "1,000" }, { a: "9" }, { a: "" }, { a: "70 %" }], "A", false), ["9", "70 %", "1,000", ""]);
assert.deepEqual(order([{ a: "1,000" }, { a: "9" }, { a: "" }, { a: "70 %" }], "A", true), ["1,000", "70 %", "9", ""]);
assert.deepEqual(order([{ a: "host-10" }, { a: "host-9" }, { a: "Alpha" }], "A", false), ["Alpha", "host-9", "host-10"]);
assert.deepEqual(order([{ a: "x", b: 2 }, { a: "y" }, { a: "z", b: 1 }], "B", false), ["z", "x", "y"]);
assert.deepEqual(order([{ a: "x" }, { a: "y" }], "no such column", false), ["x", "y"]);
