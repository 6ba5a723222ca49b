// Plays the console against a cluster of real processes. The cluster begins without readiness:
// 12 executors gpu-*, 60 executors small-*, 3 executors frail-*, three replicas of each service.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, base, call, control, launch, open, picture, reserve, run, token, until, visit } from "./browser.mjs";

const payload = Buffer.from(JSON.stringify({ runFor: "600s" })).toString("base64");
const slots = (sku, n) => ({ resources: { slots: n ?? 1 }, sku });
const reservation = (job, stage, name = "main") => `/jobs/${job}/stages/${stage}/reservations/${name}`;

let browser, page;

before(async () => {
  browser = await launch();
  page = await open(browser, { as: "alice" });
  await until("all executors are READY", async () => (await call("alice", "GET", "/v1/executors?state=READY&pageSize=1000")).body.executors?.length === 75);
});

after(() => browser?.close());

const badge = (p) => p.locator("section[aria-label=State] .card-head .state");
const confirm = async (p, button) => {
  await p.getByRole("button", { name: button, exact: true }).click();
  await p.locator("dialog[open]").getByRole("button", { name: button, exact: true }).click();
};

test("a caller without a token gets a form, and a wrong token an error", async () => {
  const stranger = await open(browser);
  await stranger.goto(base + "/queues");
  await stranger.getByLabel("Token").fill("wrong");
  await stranger.getByRole("button", { name: "Sign in" }).click();
  await stranger.getByRole("alert").waitFor();
  await picture(stranger, "sign-in");
  assert.deepEqual(stranger.problems, []);
  await stranger.context().close();
});

test("the cookie of a session is out of reach of scripts, and another origin cannot use it", async () => {
  const cookies = await page.context().cookies();
  const [cookie] = cookies;
  assert.equal(cookies.length, 1);
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.secure, cookie.sameSite], ["__Host-berth", true, true, "Strict"]);
  assert.equal(await page.evaluate(() => document.cookie), "");
  for (const headers of [{ Origin: "https://evil.example" }, { "Sec-Fetch-Site": "cross-site" }, {}]) {
    const answer = await fetch(base + "/v1/leaders/assigner:resign", {
      method: "POST", body: "{}", headers: { Cookie: `${cookie.name}=${cookie.value}`, "Content-Type": "application/json", ...headers },
    });
    assert.equal(answer.status, 403, JSON.stringify(headers));
  }
});

test("the registry waits for the mark of an operator, and then grants a gang", async () => {
  await reserve("train", "warmup", { count: 4, constraints: slots("small"), task: { payload } });
  await visit(page, "/");
  await page.getByText("The registry is not ready and grants nothing").waitFor();
  await confirm(page, "Mark ready");
  await page.getByText("The registry is ready").waitFor();
  await page.getByText("The registry is not ready and grants nothing").waitFor({ state: "detached" });
  await visit(page, reservation("train", "warmup"));
  await page.getByText("4 (4 RUNNING)").waitFor();
});

test("a pending gang shows the failing checks, and is granted on the screen", async () => {
  await reserve("serve", "web", { count: 100, constraints: slots("small"), task: { payload } });
  await reserve("train", "gpu", { count: 20, constraints: { resources: { slots: 1, gpu: 4000 }, sku: "gpu-8" }, task: { payload } });
  await reserve("train", "eval", { count: 200, constraints: slots("small"), labels: { team: "vision" }, task: { payload }, queueTimeout: "3600s" });
  await visit(page, reservation("train", "eval"));
  await until("the gang is queued", async () => (await badge(page).textContent()) === "QUEUED");
  await page.getByText("136 of 200 workers").waitFor();
  const checks = page.getByRole("region", { name: "The first check that executors fail" });
  await checks.getByText("free.slots").waitFor();
  await picture(page, "reservation");
  // Without a reload, the page shows the grant once capacity becomes free.
  await call("alice", "DELETE", "/v1/jobs/serve");
  await page.getByText("200 (200 RUNNING)").waitFor();
  assert.equal(await badge(page).textContent(), "ACTIVE");
  const story = page.getByRole("list", { name: "Events of train/eval" });
  for (const kind of ["RESERVATION_QUEUED", "RESERVATION_LEASED", "WORKER_RUNNING", "RESERVATION_ASSIGNED"]) {
    await story.getByText(kind).first().waitFor();
  }
});

test("a failover is visible as it happens", async () => {
  await visit(page, "/");
  const card = page.locator('[data-service="registry"]');
  await card.locator("[data-leader]:not([data-leader=''])").waitFor();
  const leader = await card.locator("[data-leader]").getAttribute("data-leader");
  const loads = [];
  page.on("load", () => loads.push(1));
  await page.evaluate(() => {
    new MutationObserver(() => {
      const now = document.querySelector('[data-service="registry"] [data-leader]').dataset.leader;
      if (now && now !== window.before) window.changedAt ??= Date.now();
    }).observe(document.querySelector('[data-service="registry"]'), { subtree: true, attributes: true, childList: true });
  });
  await page.evaluate((before) => (window.before = before), leader);
  const killed = await control("kill-leader", "registry");
  assert.equal(killed.replica, leader);
  const changedAt = await (await page.waitForFunction(() => window.changedAt)).jsonValue();
  console.log(`the new leader was on the screen ${changedAt - killed.at} ms after the kill`);
  assert.ok(changedAt - killed.at < 5000);
  await page.getByRole("region", { name: "Changes of leaders" }).getByText(/→ registry-\d/).first().waitFor();
  const now = await card.locator("[data-leader]").getAttribute("data-leader");
  assert.notEqual(now, leader);
  assert.ok(Number(await card.locator("[data-term]").textContent()) > killed.term);
  await card.getByText("UNREACHABLE").waitFor();
  await control("restart", leader);
  await card.getByText("UNREACHABLE").waitFor({ state: "detached" });
  assert.deepEqual(loads, []);
});

test("a service that does not answer says so", async () => {
  await visit(page, "/");
  const card = page.locator('[data-service="assigner"]');
  await card.locator("[data-leader]:not([data-leader=''])").waitFor();
  const watcher = await open(browser, { as: "alice" });
  await visit(watcher, "/");
  await watcher.locator('[data-service="assigner"] [data-leader]:not([data-leader=""])').waitFor();
  const replicas = ["assigner-0", "assigner-1", "assigner-2"];
  for (const replica of replicas) await control("kill", replica);
  await card.getByText("NO ANSWER").waitFor();
  await card.getByText("connection refused").first().waitFor();
  await watcher.locator(".notices .bad").getByText("no replica of assigner answers").waitFor();
  assert.equal(await card.getByRole("button", { name: "Resign" }).count(), 0);
  await page.getByRole("region", { name: "Changes of leaders" }).getByText(/assigner.*no answer/i).first().waitFor();
  await visit(page, "/jobs/train"); // the other services answer
  await page.getByText("RESERVATION_ASSIGNED").first().waitFor();
  await visit(page, "/");
  await card.getByText("NO ANSWER").waitFor();
  for (const replica of replicas) await control("restart", replica);
  await card.locator("[data-leader]:not([data-leader=''])").waitFor();
  // The notice ends with its cause.
  await watcher.locator(".notices").getByText(/leads assigner/).waitFor();
  assert.equal(await watcher.locator(".notices .bad").count(), 0);
  await watcher.context().close();
});

test("a leader resigns for an operator, and not for a viewer", async () => {
  await visit(page, "/");
  const card = page.locator('[data-service="assigner"]');
  await card.locator("[data-leader]:not([data-leader=''])").waitFor();
  const leader = await card.locator("[data-leader]").getAttribute("data-leader");
  const viewer = await open(browser, { as: "vera" });
  await visit(viewer, "/");
  const button = viewer.locator('[data-service="assigner"]').getByRole("button", { name: /^Resign/ });
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  await button.click({ force: true });
  assert.equal(await viewer.locator("dialog[open]").count(), 0);
  // The gateway refuses the call as well.
  const status = await viewer.evaluate(async () => (await fetch("/v1/leaders/assigner:resign", {
    method: "POST", body: "{}", headers: { "Content-Type": "application/json" },
  })).status);
  assert.equal(status, 403);
  await card.getByRole("button", { name: "Resign" }).click();
  const dialog = page.locator("dialog[open]");
  await dialog.getByText("As a command").click();
  await dialog.getByText(/berth resign assigner/).waitFor();
  await picture(page, "resign");
  await dialog.getByRole("button", { name: "Resign", exact: true }).click();
  await page.getByText(`${leader} resigned`).waitFor();
  for (const p of [page, viewer]) {
    await p.locator(`[data-service="assigner"] [data-leader]:not([data-leader=""]):not([data-leader="${leader}"])`).waitFor();
  }
  assert.deepEqual(viewer.problems, []);
  await viewer.context().close();
});

test("an executor is drained, enabled and disabled", async () => {
  const busy = (await call("alice", "GET", "/v1/assignments?job=train&state=RUNNING")).body.assignments.find((a) => a.stage === "eval").executor;
  await visit(page, "/executors/" + busy);
  await page.getByRole("button", { name: "Drain", exact: true }).click();
  const dialog = page.locator("dialog[open]");
  await dialog.getByLabel("Reason").fill("a fan is loud");
  await dialog.getByLabel("For").fill("soon");
  await dialog.getByText("The time must be like 30m, 2h or 1d.").waitFor();
  await dialog.getByLabel("For").fill("2h");
  await dialog.getByRole("button", { name: "Drain", exact: true }).click();
  await page.getByRole("region", { name: "Disables" }).getByText("a fan is loud").waitFor();
  const workers = page.getByRole("region", { name: "Workers", exact: true }).first();
  await until("no worker runs", async () => (await workers.getByText("RUNNING").count()) === 0);
  assert.match(await badge(page).textContent(), /DRAINING|DISABLED/);
  await picture(page, "executor");
  await confirm(page, "Enable");
  await page.getByText("No request disables this executor.").waitFor();
  await until("it is READY", async () => (await badge(page).textContent()) === "READY");
  await confirm(page, "Disable");
  await until("it is DISABLED", async () => (await badge(page).textContent()) === "DISABLED");
  await confirm(page, "Enable");
  await visit(page, "/executors?attributes=zone%3Db");
  await page.getByText("6 executors").waitFor();
  await confirm(page, "Disable");
  await page.getByText("6 executors disabled").waitFor();
  await page.locator(".grid .cell.DISABLED").nth(5).waitFor();
  await call("alice", "POST", "/v1/executors:enable", { selector: { attributes: { zone: "b" } } });
  await until("they are READY", async () => (await page.locator(".grid .cell.DISABLED").count()) === 0);
});

test("a hold is bound", async () => {
  await reserve("train", "noon", { count: 3, constraints: slots("small"), hold: "HOLD", task: { payload } });
  await visit(page, reservation("train", "noon"));
  await until("it is HELD", async () => (await badge(page).textContent()) === "HELD");
  const { executor } = (await until("an executor shows the hold", async () => {
    const all = (await call("alice", "GET", "/v1/executors?sku=small&pageSize=1000")).body.executors.filter((e) => e.workers > 0);
    for (const e of all) {
      const one = (await call("alice", "GET", "/v1/executors/" + e.id)).body;
      if (one.leases?.some((l) => l.held)) return { executor: e.id };
    }
  }));
  const other = await open(browser, { as: "alice" });
  await visit(other, "/executors/" + executor);
  await other.getByRole("region", { name: "Held reservations" }).getByText("train/noon").waitFor();
  await confirm(page, "Bind");
  await page.getByText("3 (3 RUNNING)").waitFor();
  await other.getByText("No held reservation keeps capacity here.").waitFor();
  await other.context().close();
});

// find enters a text into the search, and returns the view that opens.
async function find(p, text) {
  await p.getByRole("textbox", { name: /^Go to/ }).fill(text);
  await p.keyboard.press("Enter");
  await p.waitForFunction((q) => !location.pathname.startsWith("/search") ||
    (new URLSearchParams(location.search).get("q") === q && document.querySelector("main .card")), text);
  const { pathname, search } = new URL(p.url());
  return pathname + search;
}

test("the search finds what the command line prints", async () => {
  const get = async (path) => (await call("alice", "GET", path)).body;
  const eval_ = await get("/v1/jobs/train/stages/eval/reservations/main");
  const [worker] = (await get("/v1/assignments?job=train&stage=noon")).assignments;
  const { services: [{ replicas: [replica] }] } = await get("/v1/leaders");
  await call("alice", "POST", "/v1/executors:disable", { requestId: "disk-swap-7", selector: { ids: ["gpu-b5"] }, reason: "a broken disk" });
  await reserve("wait", "a", { count: 300, constraints: slots("gpu-8") });
  const group = await until("it is queued", async () =>
    (await get("/v1/reservations:pending")).groups.find((g) => g.head?.job === "wait" && g.reason === "INSUFFICIENT_CAPACITY"));
  await visit(page, "/");
  for (const [text, view] of [
    ["train", "/jobs/train"],
    ["train/eval", reservation("train", "eval")],
    ["train/eval/main", reservation("train", "eval")],
    [`train/noon/${worker.index}.${worker.number}`, reservation("train", "noon") + `?at=${worker.index}.${worker.number}`],
    ["wait/a/299.1", reservation("wait", "a") + "?at=299.1"],
    [eval_.uid, reservation("train", "eval") + "?at=" + eval_.uid],
    [eval_.epoch, reservation("train", "eval") + "?at=" + eval_.epoch],
    ["small-7", "/executors/small-7"],
    ["gpu-8", "/usage?sku=gpu-8"],
    ["zone=a", "/executors?attributes=zone%3Da"],
    [group.id, "/queues/" + group.id],
    [replica.id, "/?at=registry"],
    [replica.address, "/?at=registry"],
    ["disk-swap-7", "/executors/gpu-b5?at=disk-swap-7"],
    ["MASS_LOSS", "/findings?kind=MASS_LOSS"],
    ["executor-state", "/?at=executor-state"],
  ]) {
    assert.equal(await find(page, text), view, text);
    if (text.includes("noon") || text === eval_.uid) await page.locator("tr.found").first().waitFor();
  }
  assert.equal(await find(page, "INSUFFICIENT_CAPACITY"), "/search?q=INSUFFICIENT_CAPACITY");
  await page.getByRole("row", { name: /wait\/a Queue/ }).getByRole("link").click();
  await page.getByRole("heading", { level: 1, name: `Queue ${group.id}` }).waitFor();
  await call("alice", "POST", "/v1/executors:enable", { disableRequestId: "disk-swap-7" });
  await call("alice", "DELETE", "/v1/jobs/wait");
});

test("what does not exist is named, without actions", async () => {
  for (const [path, text] of [
    ["/jobs/nope", "There is no job nope"], ["/executors/nope", "There is no executor nope"],
    [reservation("train", "nope"), "There is no reservation train/nope"], ["/queues/nope", "Nothing is queued in this group."],
    ["/usage?sku=nope", "There is no SKU nope."], ["/nothing", "There is nothing at /nothing."],
  ]) {
    await page.goto(base + path);
    await page.getByText(text).first().waitFor();
    const actions = await page.locator(".tools button").allTextContents();
    assert.deepEqual(actions.filter((a) => a !== "Copy as command"), [], path);
    await accessible(page, path);
  }
  assert.equal(await find(page, "train/nope"), "/search?q=train%2Fnope");
  await page.getByText("There is no reservation train/nope").waitFor();
});

test("a table sorts by each column, with the keyboard, and the address has the order", async () => {
  await visit(page, "/executors?as=table&sku=small");
  const head = page.getByRole("columnheader", { name: "Executor" });
  const first = page.locator(".long-table tbody tr:not(.spacer) td").first();
  await first.waitFor();
  assert.equal(await head.getAttribute("aria-sort"), null);
  await head.getByRole("button").focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("th[aria-sort=ascending]"));
  await page.keyboard.press("Enter");
  await until("the last one comes first", async () => (await first.textContent()) === "small-59");
  assert.equal(await head.getAttribute("aria-sort"), "descending");
  await page.reload();
  await until("the order stays", async () => (await first.textContent()) === "small-59");
  assert.equal(new URL(page.url()).search, "?as=table&sku=small&sort=-Executor");
  await accessible(page, "a sorted table");
  await visit(page, "/jobs/train");
  await page.getByRole("region", { name: "Plan" }).getByRole("columnheader", { name: "Executor" }).first().getByRole("button").click();
  await page.waitForFunction(() => location.search === "?sort-plan=Executor");
});

test("a quarantine is cleared", async () => {
  await reserve("stuck", "main", { count: 12, constraints: slots("frail"), task: { payload, stopGrace: "1s" } });
  await visit(page, reservation("stuck", "main"));
  await page.getByText("12 (12 RUNNING)").waitFor();
  await control("freeze", "frail");
  await confirm(page, "Cancel");
  await until("the workers are quarantined", async () =>
    (await call("alice", "GET", "/v1/findings")).body.findings.some((f) => f.kind === "QUARANTINED" && f.object.startsWith("stuck/")));
  await visit(page, "/");
  await page.getByText("QUARANTINED").first().waitFor();
  // A finding leads to its object.
  await page.getByRole("region", { name: "Findings" }).getByRole("link", { name: /^stuck\/main\/\d+\.1$/ }).first().click();
  await page.locator("tr.found").getByText(/EVICT/).first().waitFor();
  await page.getByRole("heading", { level: 1, name: "Reservation stuck/main" }).waitFor();
  await visit(page, "/executors/frail-0");
  await confirm(page, "Clear quarantine");
  await page.getByText("4 workers given up").waitFor();
  await until("they are LOST", async () =>
    (await page.getByRole("region", { name: "Workers", exact: true }).getByText("LOST").count()) > 0 || (await page.getByText("No worker is on this executor.").count()) > 0);
  await control("continue", "frail");
});

test("reservations and jobs are cancelled", async () => {
  await reserve("temp", "a", { count: 1, constraints: slots("small"), task: { payload } });
  await reserve("temp", "b", { count: 1, constraints: slots("small"), task: { payload } });
  await visit(page, reservation("temp", "a"));
  await confirm(page, "Cancel");
  await until("it is CANCELLED", async () => (await badge(page).textContent()) === "CANCELLED");
  await visit(page, "/jobs/temp");
  await confirm(page, "Cancel job");
  await page.getByText("1 reservation of temp cancelled").waitFor();
});

test("a queue lists its reservations in order, and is cancelled", async () => {
  for (let i = 0; i < 5; i++) await reserve("late", "s", { count: 300, constraints: slots("gpu-8") }, "r" + i);
  await visit(page, "/queues");
  await page.getByText("late/s/r0").waitFor();
  await picture(page, "queues");
  await page.getByRole("row", { name: /late\/s\/r0/ }).getByRole("link").first().click();
  await page.getByText("late/s/r4").waitFor();
  const names = await page.locator(".long-table tbody tr td:nth-child(2)").allTextContents();
  assert.deepEqual(names, ["r0", "r1", "r2", "r3", "r4"].map((n) => "late/s/" + n));
  await picture(page, "queue");
  await confirm(page, "Cancel all queued");
  await page.getByText("5 reservations cancelled").waitFor();
  await page.getByText("Nothing is queued in this group.").waitFor();
});

// A page of the largest payloads is more than the gateway keeps for a watch.
test("a queue of large reservations loads in smaller pages", async () => {
  const large = Buffer.alloc(64 << 10, "x").toString("base64");
  for (let i = 0; i < 60; i++) await reserve("large", "s", { count: 300, constraints: slots("gpu-8"), task: { payload: large } }, "r" + i);
  await visit(page, "/queues");
  // A page that fails to load is loaded again, without a scroll.
  let requests = 0;
  await page.route(/pageToken=/, (r) => (requests++ === 0 ? r.abort() : r.continue()));
  await page.getByRole("row", { name: /large\/s\/r0/ }).getByRole("link").first().click();
  const list = page.locator(".long-table");
  await page.getByText("large/s/r0").first().waitFor();
  await page.getByText("large/s/r12").first().waitFor();
  assert.ok(requests > 1);
  assert.equal(await page.getByRole("alert").count(), 0);
  await page.unroute(/pageToken=/);
  await until("the last one is in the list", async () => {
    await list.evaluate((e) => e.scrollTo(0, e.scrollHeight));
    return (await page.getByText("large/s/r59").count()) > 0;
  });
  await visit(page, "/jobs/large");
  await page.getByText("The job has more reservations").waitFor();
  await visit(page, reservation("large", "s", "r59"));
  await until("it is queued", async () => (await badge(page).textContent()) === "QUEUED");
  await page.getByRole("region", { name: "Versions" }).getByText("1 version").waitFor();
  await call("alice", "DELETE", "/v1/jobs/large");
});

test("every view is accessible in both themes and on a phone", async () => {
  await call("alice", "PUT", "/v1/skus/gpu-8", { resources: { cpu: "8000m", memory: "32Gi", gpu: 8, slots: 2 }, attributes: {}, scale: { minIdle: 2, maxIdle: 4, maxSize: 40 } });
  await reserve("big", "map", { count: 900, constraints: slots("small"), task: { payload } });
  await reserve("big", "exotic", { count: 2, constraints: slots("quantum"), task: { payload } });
  // The overview shows how long ago leaders changed, so a failover belongs into its picture.
  await visit(page, "/");
  const killed = await control("kill-leader", "executor-state");
  await page.locator(`[data-service="executor-state"] [data-leader]:not([data-leader=""]):not([data-leader="${killed.replica}"])`).waitFor();
  const views = {
    overview: "/", jobs: "/jobs", job: "/jobs/train", executors: "/executors", table: "/executors?as=table",
    usage: "/usage", tenants: "/tenants", audit: "/audit", findings: "/findings", search: "/search?q=small",
  };
  for (const [name, path] of Object.entries(views)) {
    if (name !== "overview") await visit(page, path);
    await page.locator(".loading").first().waitFor({ state: "detached" });
    await page.waitForTimeout(300); // for the picture
    await picture(page, name);
  }
  await control("restart", killed.replica);
  const phone = await open(browser, { as: "alice", viewport: { width: 390, height: 800 } });
  const others = { reservation: reservation("train", "eval"), queues: "/queues", executor: "/executors/small-1" };
  for (const [name, path] of Object.entries({ ...views, ...others })) {
    await visit(phone, path);
    await phone.locator(".loading").first().waitFor({ state: "detached" });
    if (name === "overview") await picture(phone, "phone");
    else await accessible(phone, `${name} on a phone`);
    const wider = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${name} is ${wider} px wider than a phone`);
  }
  await visit(phone, reservation("train", "noon") + "?at=0.1");
  await until("the row that was searched is in view", () => phone.evaluate(() => {
    const row = document.querySelector("tr.found")?.getBoundingClientRect();
    return row && row.top >= 0 && row.bottom <= innerHeight && document.querySelector(".timeline li");
  }));
  assert.deepEqual(phone.problems, []);
  await phone.context().close();
});

test("the keyboard reaches everything", async () => {
  await visit(page, "/executors");
  await page.locator(".grid .cell:not(.unknown)").nth(70).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("/");
  assert.match(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), /^Go to a job/);
  await page.keyboard.type("small-7");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Executor small-7" }).waitFor();
  await page.goBack();
  const first = page.locator('.grid a.cell[tabindex="0"]');
  await first.focus();
  const from = await first.getAttribute("aria-label");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction((old) => document.activeElement.classList.contains("cell") && document.activeElement.getAttribute("aria-label") !== old, from);
  const chosen = (await page.evaluate(() => document.activeElement.getAttribute("aria-label"))).split(":")[0];
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: `Executor ${chosen}` }).waitFor();
  // A dialog takes the focus, and Escape gives it back.
  await page.getByRole("button", { name: "Drain", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog[open]").waitFor({ state: "detached" });
  await page.waitForFunction(() => document.activeElement.textContent === "Drain");
});

test("every command of every view works when pasted", async () => {
  const lines = new Map();
  for (const path of ["/", "/queues", "/jobs", "/jobs/train", "/executors?sku=small&state=READY", "/usage", "/tenants", "/audit",
    reservation("big", "map"), "/executors/small-1"]) {
    await visit(page, path);
    await page.locator(".loading").first().waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Copy as command" }).click();
    for (const line of await page.locator("dialog[open] .command-line code").allTextContents()) lines.set(line, path);
    await page.getByRole("button", { name: "Close" }).click();
  }
  assert.ok(lines.size > 30, `${lines.size} commands`);
  for (const [line, path] of lines) {
    const output = await run(line, "alice", / -N | -f\b/.test(line));
    assert.ok(output.trim() && !/"code":|^berth: /m.test(output), `${path}: ${line}\n${output.slice(0, 500)}`);
  }
  console.log(`${lines.size} commands`);
  await visit(page, "/tenants");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Copy as command" }).click();
  await page.getByRole("button", { name: /^Copy berth command/ }).first().click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^berth get tenants --gateway https:/);
  await page.keyboard.press("Escape");
});

test("a certificate needs no sign-in", async () => {
  const own = await open(browser, { certificate: process.env.CERTIFICATE });
  await visit(own, "/usage");
  await own.getByText("(operator)").waitFor();
  assert.equal(await own.getByRole("button", { name: "Sign out" }).count(), 0);
  await own.getByRole("button", { name: "Copy as command" }).click();
  for (const line of await own.locator("dialog[open] .command-line code").allTextContents()) {
    const output = await run(line.replaceAll("client.", process.env.CERTIFICATE + "."));
    assert.ok(output.trim() && !/"code":|^berth: /m.test(output), `${line}\n${output.slice(0, 500)}`);
  }
  assert.deepEqual(own.problems, []);
  await own.context().close();
});

test("a job service sees its own jobs, and nothing else", async () => {
  const own = await open(browser, { as: "train" });
  await own.goto(base + "/");
  await own.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
  await own.getByRole("link", { name: "train", exact: true }).click();
  await own.getByRole("heading", { level: 1, name: "Job train" }).waitFor();
  await own.getByText("RESERVATION_ASSIGNED").first().waitFor();
  assert.deepEqual(await own.getByRole("navigation").getByRole("link").allTextContents(), ["Jobs", "Tenants"]);
  await own.goto(base + "/jobs/big");
  await own.getByRole("alert").first().waitFor();
  assert.deepEqual(own.problems, []);
  await own.context().close();
});

test("a session ends with its sign-out, and a page survives a gateway that restarts", async () => {
  await visit(page, "/");
  await control("kill", "gateway-0");
  await page.locator(".connection.broken").waitFor();
  await page.getByText(/^Not live: these values are of/).waitFor();
  await control("restart", "gateway-0");
  await page.locator(".connection.live").waitFor();
  assert.equal(await page.locator(".stale-note").count(), 0);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal((await page.context().cookies()).length, 0);
  assert.deepEqual(page.problems, []);
});
