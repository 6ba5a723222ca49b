// Plays the console below the path of a proxy: BASE_URL ends with /berth, and the gateways have
// --base-path. The cluster has four executors small-*.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { base, call, launch, open, reserve, run, until, visit } from "./browser.mjs";

const payload = Buffer.from(JSON.stringify({ runFor: "600s" })).toString("base64");

let browser, page;
const outside = [];

before(async () => {
  browser = await launch();
  page = await open(browser, { as: "alice" });
  page.on("request", (r) => {
    if (!r.url().startsWith(base)) outside.push(r.url());
  });
  await until("all executors are READY", async () => (await call("alice", "GET", "/v1/executors?state=READY")).body.executors?.length === 4);
});

after(() => browser?.close());

test("the session belongs to the path", async () => {
  const cookies = await page.context().cookies();
  assert.deepEqual(cookies.map((c) => [c.name, c.path, c.secure, c.httpOnly]), [["__Secure-berth", "/berth/", true, true]]);
});

test("links, views and addresses are below the path", async () => {
  await reserve("train", "map", { count: 2, constraints: { resources: { slots: 1 }, sku: "small" }, task: { payload } });
  await visit(page, "/");
  for (const view of ["Queues", "Jobs", "Executors", "Usage", "Tenants", "Audit log", "Overview"]) {
    await page.getByRole("navigation").getByRole("link", { name: view, exact: true }).click();
    await page.waitForFunction((name) => document.querySelector("nav [aria-current=page]")?.textContent === name, view);
    assert.ok(page.url().startsWith(base + "/"), page.url());
    for (const href of await page.locator("a[href]").evaluateAll((all) => all.map((a) => a.getAttribute("href")))) {
      assert.ok(href.startsWith("#") || (href.startsWith("/berth/") && !href.startsWith("/berth/berth")), href);
    }
  }
  await page.getByRole("searchbox").or(page.getByRole("textbox", { name: /^Go to/ })).first().fill("train/map");
  await page.keyboard.press("Enter");
  await page.getByText("2 (2 RUNNING)").waitFor();
  assert.equal(page.url(), base + "/jobs/train/stages/map/reservations/main");
  await page.reload();
  await page.getByText("2 (2 RUNNING)").waitFor();
  await page.goBack();
  await page.waitForFunction(() => document.querySelector("nav [aria-current=page]")?.textContent === "Overview");
});

test("the page is live, and its commands work when pasted", async () => {
  for (const path of ["/jobs/train", "/executors/small-1"]) {
    await visit(page, path);
    await page.locator(".loading").first().waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Copy as command" }).click();
    const lines = await page.locator("dialog[open] .command-line code").allTextContents();
    await page.getByRole("button", { name: "Close" }).click();
    assert.ok(lines.length > 3);
    for (const line of lines) {
      assert.ok(line.includes(base), line);
      const output = await run(line, "alice", / -N | -f\b/.test(line));
      assert.ok(output.trim() && !/"code":|^berth: /m.test(output), `${line}\n${output.slice(0, 500)}`);
    }
  }
});

test("nothing is requested outside of the path", async () => {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.deepEqual(await page.context().cookies(), []);
  assert.deepEqual(outside, []);
  assert.deepEqual(page.problems, []);
});
