// What the plays share: the browser, the calls to the cluster, and checks of every page.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const base = process.env.BASE_URL;
export const token = (name) => process.env["TOKEN_" + name.toUpperCase()];

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
}

// open returns a new page of the console. Each message in its console, each error and each
// request to another host is a failure, except for the messages that match allowed.
export async function open(browser, { as, certificate, viewport = { width: 1280, height: 800 }, allowed = [] } = {}) {
  const context = await browser.newContext({
    colorScheme: "light", viewport, ignoreHTTPSErrors: true,
    ...(certificate && { clientCertificates: [{ origin: base, certPath: certificate + ".crt", keyPath: certificate + ".key" }] }),
  });
  const page = await context.newPage();
  const problems = [];
  page.on("console", (m) => {
    // The browser itself reports refused and interrupted requests.
    const text = m.text();
    if (/Failed to load resource|net::ERR/.test(text) || allowed.some((a) => a.test(text))) return;
    problems.push(`${m.type()}: ${text}`);
  });
  page.on("pageerror", (e) => problems.push(`error: ${e.stack}`));
  page.on("request", (r) => {
    if (new URL(r.url()).origin !== new URL(base).origin) problems.push(`request to another host: ${r.url()}`);
  });
  page.problems = problems;
  if (as) {
    await page.goto(base + "/");
    await page.getByLabel("Token").fill(token(as));
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("navigation").waitFor();
  }
  return page;
}

export async function visit(page, path) {
  await page.goto(base + path);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.locator(".connection.live").waitFor();
}

// call sends a request to the gateway with the token of an identity.
export async function call(as, method, path, body) {
  const answer = await fetch(base + path, {
    method,
    headers: { Authorization: "Bearer " + token(as), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, body: text ? JSON.parse(text) : {} };
}

export async function reserve(job, stage, body, name = "main") {
  const { status, body: answer } = await call("alice", "PUT", `/v1/jobs/${job}/stages/${stage}/reservations/${name}`, body);
  assert.equal(status, 200, JSON.stringify(answer));
  return answer;
}

// until repeats check until it returns something. Only a failure takes a minute.
export async function until(what, check) {
  let last;
  for (const end = Date.now() + 90_000; Date.now() < end; ) {
    last = await check().catch((e) => ((last = e), null));
    if (last) return last;
    await new Promise((r) => setTimeout(r, 100));
  }
  assert.fail(`did not happen within 90 s: ${what}; ${last}`);
}

export async function control(action, name) {
  const answer = await fetch(`${process.env.CONTROL_URL}/${action}/${name}`, { method: "POST" });
  assert.ok(answer.ok, await answer.clone().text());
  return answer.json();
}

// accessible requires that axe finds no serious problem.
export async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(serious.map((v) => `${where}: ${v.id}: ${v.nodes[0].html} ${v.nodes[0].failureSummary}`), []);
}

// shot writes a screenshot if the run should make them.
async function shot(page, name) {
  if (!process.env.SCREENSHOTS) return;
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(process.env.SCREENSHOTS, name + ".png") });
}

// picture checks and shoots a page in both themes. Without motion, because a color that changes
// slowly with the theme has too little contrast in between.
export async function picture(page, name) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await accessible(page, `${name}, ${colorScheme}`);
    await shot(page, `${name}-${colorScheme}`);
  }
}

// run executes a command line as a user pastes it, and returns its output. A command that
// follows something is stopped once it has printed a line.
export async function run(line, as, follows) {
  const cwd = process.env.WORK_DIR;
  if (as) writeFileSync(join(cwd, "berth.token"), token(as) + "\n");
  const script = line.replace(/^berth /, process.env.BERTH + " ");
  return new Promise((resolve, reject) => {
    const child = execFile("sh", ["-c", follows ? `${script} | head -n 1` : script], {
      cwd, timeout: 30_000, maxBuffer: 64 << 20,
      env: { ...process.env, BERTH_TLS_CA: process.env.NODE_EXTRA_CA_CERTS, CURL_CA_BUNDLE: process.env.NODE_EXTRA_CA_CERTS },
    }, (err, out, errors) => (err && !follows ? reject(new Error(`${line}\n${errors}${out}`)) : resolve(out + errors)));
    child.stdin.end();
  });
}
