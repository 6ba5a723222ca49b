import { type ComponentChildren, render } from "preact";
import { Route, Router, useLocation } from "preact-iso";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Location } from "./lib/base";
import { call, Failure, may, pages } from "./lib/call";
import { useLeaders } from "./lib/leaders";
import { useConnection } from "./lib/live";
import { SessionContext } from "./lib/session";
import type { Caller } from "./lib/types";
import { Page, StaleNote } from "./parts/basics";
import { announce, Notices } from "./parts/notices";
import { Executor } from "./views/executor";
import { Executors } from "./views/executors";
import { Job, Jobs } from "./views/jobs";
import { Audit, Tenants } from "./views/operators";
import { Findings } from "./views/findings";
import { Overview } from "./views/overview";
import { Queue, Queues } from "./views/queues";
import { Reservation } from "./views/reservation";
import { Search } from "./views/search";
import { SignIn } from "./views/signin";
import { Usage } from "./views/usage";

// Views of the navigation, and the method without which a view has nothing to show.
const views: [path: string, name: string, method: string][] = [
  ["/", "Overview", "Leaders/ListLeaders"],
  ["/queues", "Queues", "Reservations/ListPending"],
  ["/jobs", "Jobs", "Reservations/ListJobs"],
  ["/executors", "Executors", "Executors/ListExecutors"],
  ["/usage", "Usage", "Usage/GetUsage"],
  ["/tenants", "Tenants", "Tenants/ListTenants"],
  ["/audit", "Audit log", "AuditLog/ListAuditEntries"],
  ["/findings", "Findings", "Findings/ListFindings"],
];

function App() {
  const [caller, setCaller] = useState<Caller>();
  const [failure, setFailure] = useState<Failure>();
  const reload = useCallback(async () => {
    for (let pause = 250; ; pause = Math.min(pause * 2, 5000)) {
      try {
        setCaller(await call<Caller>("GET", "/v1/caller"));
        setFailure(undefined);
        return;
      } catch (err) {
        setFailure(err as Failure);
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }, []);
  useEffect(() => {
    void reload();
    const refused = () => void reload();
    document.addEventListener("berth-refused", refused);
    return () => document.removeEventListener("berth-refused", refused);
  }, []);
  if (!caller) return <p class="loading start">{failure ? failure.message + "; trying again…" : "Loading…"}</p>;
  const anything = views.some(([, , method]) => may(caller, method));
  return (
    <SessionContext.Provider value={{ caller, reload }}>
      {anything ? (
        <Location>
          <Shell caller={caller} reload={reload} />
        </Location>
      ) : (
        <SignIn />
      )}
      <Notices />
    </SessionContext.Provider>
  );
}

function Shell({ caller, reload }: { caller: Caller; reload: () => Promise<void> }) {
  const allowed = views.filter(([, , method]) => may(caller, method));
  const { path } = useLocation();
  useLeaders(may(caller, "Leaders/ListLeaders"), (c) =>
    announce(c.to ? `${c.to} leads ${c.service}, term ${c.term}` : c.toText === "no leader" ? `${c.service} has no leader` : `no replica of ${c.service} answers`, !c.to, c.service),
  );
  useEffect(() => window.scrollTo(0, 0), [path]);
  const start = allowed[0]![0];
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href={start}>
          <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true"><path d="M4 22h24l-3 6H7zM15 4h2v16h-2zM17 6l8 12h-8zM13 9v9H7z" /></svg>
          Berth <span class="cluster">{caller.cluster}</span>
        </a>
        <GoTo />
        <Status />
        <Theme />
        <Who caller={caller} reload={reload} />
      </header>
      <nav aria-label="Views">
        <ul>
          {allowed.map(([to, name]) => (
            <li key={to}>
              <a href={to} aria-current={(to === "/" ? path === "/" : path === to || path.startsWith(to + "/")) ? "page" : undefined}>{name}</a>
            </li>
          ))}
        </ul>
      </nav>
      <Main>
        <Router>
          <Route path="/" component={start === "/" ? Overview : Redirect} to={start} />
          <Route path="/queues" component={Queues} />
          <Route path="/queues/:group" component={Queue} />
          <Route path="/jobs" component={Jobs} />
          <Route path="/jobs/:job" component={Job} />
          <Route path="/jobs/:job/stages/:stage/reservations/:name" component={Reservation} />
          <Route path="/executors" component={Executors} />
          <Route path="/executors/:id" component={Executor} />
          <Route path="/usage" component={Usage} />
          <Route path="/tenants" component={Tenants} />
          <Route path="/audit" component={Audit} />
          <Route path="/findings" component={Findings} />
          <Route path="/search" component={Search} />
          <Route default component={NoView} />
        </Router>
      </Main>
    </>
  );
}

// Main has the view. While the gateway does not answer, its values are no longer live.
function Main({ children }: { children: ComponentChildren }) {
  const { since } = useConnection();
  return (
    <main id="main" tabIndex={-1}>
      <StaleNote since={since} />
      {children}
    </main>
  );
}

function NoView() {
  const { path } = useLocation();
  const name = decodeURIComponent(path).replace(/^\/|\/$/g, "");
  return (
    <Page title="No such view">
      <p>There is nothing at {path}.</p>
      <p><a href={pages.search(name)}>Search for {name}</a></p>
    </Page>
  );
}

function Redirect({ to }: { to: string }) {
  const { route } = useLocation();
  useEffect(() => route(to, true), [to]);
  return null;
}

// GoTo opens an object by its name.
function GoTo() {
  const { route } = useLocation();
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || (e.target as HTMLElement).closest("input, select, textarea, dialog")) return;
      e.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const go = (e: Event) => {
    e.preventDefault();
    if (!text.trim()) return;
    route(pages.search(text.trim()));
    setText("");
  };
  return (
    <form class="goto" role="search" aria-label="Go to" onSubmit={go}>
      <input
        ref={input}
        value={text}
        aria-label="Go to a job, JOB/STAGE[/NAME], worker, executor or any other name"
        placeholder="Go to job, job/stage, executor, ID…"
        title="Press / to come here. Everything that berth prints is found."
        onInput={(e) => setText((e.target as HTMLInputElement).value)}
      />
    </form>
  );
}

function Status() {
  const { state } = useConnection();
  const text = { connecting: "Connecting", live: "Live", broken: "Reconnecting", refused: "Refused" }[state];
  return <span class={`connection ${state}`} role="status">{text}</span>;
}

const themes = ["auto", "light", "dark"];

function Theme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    document.dispatchEvent(new Event("berth-theme"));
  }, [theme]);
  return (
    <label class="theme">
      <span class="visually-hidden">Theme</span>
      <select value={theme} onChange={(e) => setTheme((e.target as HTMLSelectElement).value)}>
        {themes.map((t) => <option key={t} value={t} selected={t === theme}>{t}</option>)}
      </select>
    </label>
  );
}

function Who({ caller, reload }: { caller: Caller; reload: () => Promise<void> }) {
  if (!caller.identity) return <span class="who" title="Callers in plain text have every role of the listener">no sign-in</span>;
  const signOut = async () => {
    await call("DELETE", "/session");
    await reload();
  };
  return (
    <span class="who">
      <span title={caller.identity}>{caller.name} <span class="muted">({caller.role})</span></span>
      {caller.session && <button type="button" class="quiet" onClick={() => void signOut()}>Sign out</button>}
    </span>
  );
}

render(<App />, document.getElementById("app")!);
