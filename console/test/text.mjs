// Checks texts of the console without a browser: node test/text.mjs
import { buildSync } from "esbuild";
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

process.env.TZ = "UTC";
const dir = join(fileURLToPath(new URL(".", import.meta.url)), "../src/lib");

async function load(name) {
  const { outputFiles } = buildSync({ entryPoints: [join(dir, name)], bundle: true, format: "esm", write: false });
  return import("data:text/javascript;base64," + Buffer.from(outputFiles[0].contents).toString("base64"));
}

const { message, why } = await load("text.ts");
const { eventTones, resultOf } = await load("result.ts");

// A reservation that is in no queue yet is not pending: the text says when it enters its queue.
const today = new Date().toISOString().slice(0, 10);
const at = (time) => `${today}T${time}Z`;
for (const [name, r, want] of [
  ["before its time", { reason: "NOT_BEFORE", message: `until ${at("14:05:00")}` }, "not before 14:05"],
  ["before its time, in a list of versions", { reason: "NOT_BEFORE", notBefore: at("14:05:00") }, "not before 14:05"],
  ["while its restart delay runs", { reason: "RESTARTING", message: `until ${at("14:05:07")}; round 2: exit code 3` }, "restarts at 14:05:07; round 2: exit code 3"],
  [
    "while another worker runs",
    { reason: "RESTARTING", message: `1 of 3 workers failed; 1 worker queued again: until ${at("09:00:00")}; round 1: exit code 3` },
    "1 of 3 workers failed; 1 worker queued again: restarts at 09:00; round 1: exit code 3",
  ],
  ["in its queue", { reason: "BEHIND_HEAD", message: "behind a/b", notBefore: at("14:05:00") }, "behind a/b"],
  ["with another time", { reason: "CELLS_REFUSED", message: `waits until ${at("14:05:00")}` }, `waits until ${at("14:05:00")}`],
  ["without a reason", {}, ""],
])
  assert.equal(message(r), want, name);
assert.match(message({ reason: "NOT_BEFORE", message: "until 2031-02-03T04:05:00Z" }), /^not before .*2031.* 04:05$/);
assert.equal(why({ reason: "NOT_BEFORE", message: `until ${at("14:05:00")}` }), "NOT_BEFORE · not before 14:05");
assert.equal(why({}), "");

// The result of a reservation follows from its workers: COMPLETED with others than completed ones
// is not a success.
for (const [state, workerCounts, word, tone] of [
  ["COMPLETED", { COMPLETED: 2 }, "COMPLETED", "good"],
  ["COMPLETED", { FAILED: 2 }, "COMPLETED, 2 failed", "bad"],
  ["COMPLETED", { COMPLETED: 5, EVICTED: 1, LOST: 3, FAILED: 0 }, "COMPLETED, 3 lost, 1 evicted", "bad"],
  ["COMPLETED", { COMPLETED: 5, EVICTED: 1 }, "COMPLETED, 1 evicted", "warn"],
  ["ACTIVE", { RUNNING: 3, FAILED: 1 }, "ACTIVE, 1 failed", "warn"],
  ["ACTIVE", { RUNNING: 3, EVICTED: 1 }, "ACTIVE", "good"],
  ["CANCELLED", { EVICTED: 3 }, "CANCELLED", "done"],
  ["FAILED", { FAILED: 3 }, "FAILED", "bad"],
  ["NEW", undefined, "NEW", "plain"],
])
  assert.deepEqual(resultOf({ state, workerCounts }), { word, tone }, word);

// The latest request names only index 0, and index 1 of an earlier request failed.
const narrowed = {
  state: "COMPLETED", workerCounts: { COMPLETED: 1, FAILED: 1 }, workers: [{ index: 0, number: 1 }, { index: 1, number: 1 }], requestedCount: 1,
  ends: [{ state: "COMPLETED", workers: [{ first: 0, last: 0, number: 1 }] }, { state: "FAILED", workers: [{ first: 1, last: 1, number: 1 }] }],
};
assert.equal(resultOf(narrowed).tone, "good");
assert.equal(resultOf({ ...narrowed, requestedCount: undefined }).tone, "bad");

const story = (...events) =>
  events.map(([kind, index, number, reservation = "main"], i) => ({ cursor: String(i), kind, stage: "s", reservation, workers: index === undefined ? [] : [{ index, number }] }));
const completed = (...events) => {
  const all = story(...events, ["RESERVATION_COMPLETED"]);
  return eventTones(all).get(all.at(-1).cursor);
};
assert.equal(completed(["WORKER_RUNNING", 0, 1], ["WORKER_COMPLETED", 0, 1]), "good");
assert.equal(completed(["WORKER_FAILED", 0, 1], ["WORKER_COMPLETED", 1, 1]), "bad");
assert.equal(completed(["WORKER_FAILED", 0, 1], ["WORKER_COMPLETED", 0, 2]), "good", "the newest worker of an index counts");
assert.equal(completed(["WORKER_COMPLETED", 0, 2], ["WORKER_LOST", 0, 1]), "good", "a late end of an older worker");
assert.equal(completed(["WORKER_FAILED", 0, 1, "other"], ["WORKER_COMPLETED", 0, 1]), "good", "another reservation");
