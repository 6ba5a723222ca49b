// Checks texts of the console without a browser: node test/text.mjs
import { buildSync } from "esbuild";
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

process.env.TZ = "UTC";
const file = join(fileURLToPath(new URL(".", import.meta.url)), "../src/lib/text.ts");
const { outputFiles } = buildSync({ entryPoints: [file], bundle: true, format: "esm", write: false });
const { message, why } = await import("data:text/javascript;base64," + Buffer.from(outputFiles[0].contents).toString("base64"));

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
