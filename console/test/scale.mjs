// Measures the console with 10,000 executors and 100,000 pending reservations.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { base, call, launch, open, token, until, visit } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const range = (list) => `median ${median(list).toFixed(0)} (${Math.min(...list).toFixed(0)} to ${Math.max(...list).toFixed(0)})`;

// interactive returns the time from the start of a navigation until a selector matches, in
// milliseconds, with an empty cache.
async function interactive(path, selector) {
  const page = await open(browser);
  await page.addInitScript((wanted) => {
    const check = () => {
      if (document.querySelector(wanted)) window.interactiveAt ??= performance.now();
      else requestAnimationFrame(check);
    };
    requestAnimationFrame(check);
  }, selector);
  await page.goto(base + path);
  const at = await (await page.waitForFunction(() => window.interactiveAt)).jsonValue();
  const bytes = await page.evaluate(() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
    .filter((e) => !e.name.includes("/v1/")).reduce((sum, e) => sum + e.transferSize, 0));
  assert.deepEqual(page.problems, []);
  await page.context().close();
  return { at, bytes };
}

test("time until the first view is interactive", async () => {
  for (const [what, path, selector] of [
    ["overview", "/", ".leader [data-leader]:not([data-leader='']), .heads li"],
    ["overview with its queues", "/", ".heads li"],
    ["executors", "/executors", ".grid a.cell"],
    ["queues", "/queues", ".long-table tbody td"],
  ]) {
    const runs = [];
    for (let i = 0; i < 7; i++) runs.push(await interactive(path, selector));
    console.log(`${what}: ${range(runs.map((r) => r.at))} ms, ${runs[0].bytes} bytes`);
    assert.ok(median(runs.map((r) => r.at)) < 1000, what);
    assert.ok(runs[0].bytes < 300_000, what);
  }
});

// scroll scrolls an element for some seconds at a constant speed, and returns the times
// between frames in milliseconds.
function scroll(page, selector, pixels, seconds) {
  return page.evaluate(([selector, pixels, seconds]) => new Promise((done) => {
    const el = document.querySelector(selector);
    const start = performance.now();
    const frames = [];
    let last = start;
    const step = (now) => {
      frames.push(now - last);
      last = now;
      el.scrollTop = ((now - start) / (seconds * 1000)) * pixels;
      if (now - start < seconds * 1000) requestAnimationFrame(step);
      else done(frames.slice(2));
    };
    requestAnimationFrame(step);
  }), [selector, pixels, seconds]);
}

function report(what, frames) {
  const fps = 1000 / (frames.reduce((a, b) => a + b, 0) / frames.length);
  const slow = [...frames].sort((a, b) => a - b)[Math.floor(frames.length * 0.99)];
  console.log(`${what}: ${fps.toFixed(0)} frames a second, 99 % of the frames within ${slow.toFixed(0)} ms`);
  assert.ok(fps > 30, what);
}

test("frame rate while scrolling", async () => {
  const page = await open(browser);
  await visit(page, "/executors");
  await page.locator(".grid a.cell").first().waitFor();
  report("grid of 10,000 executors, first pass", await scroll(page, ".grid", 4500, 5));
  await until("every executor was loaded", async () => (await page.locator(".grid .cell.unknown").count()) === 0);
  report("grid of 10,000 executors, second pass", await scroll(page, ".grid", 4500, 5));
  const { groups } = (await call("alice", "GET", "/v1/reservations:pending")).body;
  const largest = groups.sort((a, b) => b.reservations - a.reservations)[0];
  await visit(page, "/queues/" + largest.id);
  await page.locator(".long-table tbody td").first().waitFor();
  report(`queue of ${largest.reservations} reservations`, await scroll(page, ".long-table", 300_000, 15));
  const shown = Number((await page.locator(".long-table tbody tr:not(.spacer) td").first().textContent()).replaceAll(",", ""));
  console.log(`scrolled to position ${shown}`);
  assert.ok(shown > 2000);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

// cpu returns the processor time of the gateway, in seconds.
async function cpu() {
  const text = await (await fetch(base + "/metrics")).text();
  return Number(/^process_cpu_seconds_total ([\d.e+]+)/m.exec(text)[1]);
}

async function load(seconds) {
  const before = await cpu();
  const start = Date.now();
  await new Promise((r) => setTimeout(r, seconds * 1000));
  return ((await cpu()) - before) / ((Date.now() - start) / 1000);
}

// An open console is one stream. The browsers themselves would need more than this machine
// has, so one page is open and the streams of 49 others are read without a browser. Each of
// them has a viewer of its own.
test("the gateway's processor with 50 open consoles", async () => {
  const without = await load(20);
  const page = await open(browser);
  const request = page.waitForRequest(/\/v1\/watch/);
  await page.goto(base + "/");
  const url = (await request).url();
  await page.locator(".connection.live").waitFor();
  const stop = new AbortController();
  let events = 0;
  for (let i = 0; i < 49; i++) {
    const headers = { Accept: "text/event-stream", Authorization: "Bearer " + token("viewer" + i) };
    const answer = await fetch(url, { headers, signal: stop.signal });
    assert.equal(answer.status, 200);
    (async () => {
      for await (const part of answer.body.pipeThrough(new TextDecoderStream())) events += part.split("event: answer").length - 1;
    })().catch(() => {});
  }
  await load(10);
  const withPages = await load(30);
  console.log(`gateway: ${(100 * without).toFixed(1)} % of a core without a console, ${(100 * withPages).toFixed(1)} % with 50`);
  assert.ok(events > 49 * 5, `the streams have ${events} events`);
  stop.abort();
  assert.ok(withPages - without <= 0.05, "50 consoles cost more than 5 % of a core");
});
