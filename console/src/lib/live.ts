import { useEffect, useReducer, useState } from "preact/hooks";
import { Failure } from "./call";
import { follow } from "./sse";
import type { Leaders, Status } from "./types";

// One connection carries every list that the page shows, because a browser opens at most six
// connections to a host over HTTP/1.1. A hidden page closes it.

export interface Live<T> {
  data?: T;
  error?: Failure;
  // since is the time from which on the data is no longer live, because of the error.
  since?: number;
}

interface Entry {
  last: Live<unknown>;
  // digest identifies the last answer in the cursors of the gateway.
  digest: string;
  listeners: Set<() => void>;
  unusedSince: number;
}

// maxPaths is the number of paths that the gateway allows in one stream.
const maxPaths = 16;
// keep is how long an answer without a listener is kept, so that a way back is instant.
const keep = 30_000;

// nothing is the digest of no answer.
const nothing = "\0".repeat(8);

const entries = new Map<string, Entry>();
let following: { paths: string[]; stop: AbortController } | null = null;
let scheduled = 0;
let again = 0;

export type Connection = "connecting" | "live" | "broken" | "refused";
let connection: Connection = "connecting";
const connectionListeners = new Set<() => void>();

// skew is the gateway's clock minus the clock of the browser, in milliseconds.
let skew = 0;
export const now = () => Date.now() + skew;

// liveUntil is the time at which the connection was lost.
let liveUntil: number | undefined;

function setConnection(c: Connection): void {
  if (connection === c) return;
  if (connection === "live") liveUntil = now();
  if (c === "live") liveUntil = undefined;
  connection = c;
  connectionListeners.forEach((notify) => notify());
}

function wanted(): string[] {
  return [...entries].filter(([, e]) => e.listeners.size > 0).map(([path]) => path).slice(-maxPaths);
}

function schedule(): void {
  if (scheduled) return;
  scheduled = window.setTimeout(() => {
    scheduled = 0;
    connect();
  }, 10);
}

function connect(): void {
  for (const [path, e] of entries) {
    if (e.listeners.size === 0 && Date.now() - e.unusedSince > keep) entries.delete(path);
  }
  const paths = document.hidden ? [] : wanted();
  if (following && following.paths.length === paths.length && paths.every((p) => following!.paths.includes(p))) return;
  following?.stop.abort();
  following = null;
  if (paths.length === 0) return;
  const current = { paths, stop: new AbortController() };
  following = current;
  // The gateway sends only the answers that the page does not have.
  const since = btoa(paths.map((p) => entries.get(p)!.digest).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const url = "/v1/watch?" + paths.map((p) => "path=" + encodeURIComponent(p)).join("&") + "&since=" + since;
  void ended(current, follow(url, current.stop.signal, {
    open: () => setConnection("live"),
    broken: (err) => {
      const refused = err !== null && err.http >= 400 && err.http < 500 && err.http !== 429;
      setConnection(refused ? "refused" : "broken");
      if (!refused) return;
      paths.forEach((p) => {
        fail(p, err);
        const e = entries.get(p);
        if (e) e.digest = nothing;
      });
      // The token may have been withdrawn.
      if (err.http === 401 || err.http === 403) document.dispatchEvent(new Event("berth-refused"));
    },
    event: (e) => {
      if (e.kind !== "answer") return;
      const digests = atob(e.id.replaceAll("-", "+").replaceAll("_", "/"));
      paths.forEach((p, i) => {
        const entry = entries.get(p);
        if (entry) entry.digest = digests.slice(8 * i, 8 * i + 8);
      });
      const { path, answer, error } = JSON.parse(e.data) as { path: string; answer?: unknown; error?: Status };
      if (error) fail(path, new Failure(0, error));
      else settle(path, { data: stamp(answer) });
    },
  }));
}

// stamp replaces ages by the time at which they began, because the gateway does not send an
// answer again only because something is older.
export function stamp<T>(answer: T): T {
  const since = (seconds: string) => new Date(now() - parseFloat(seconds) * 1000).toISOString();
  const one = (o: { age?: string; headAge?: string; since?: string; headSince?: string }) => {
    if (o.age) o.since = since(o.age);
    if (o.headAge) o.headSince = since(o.headAge);
  };
  if (answer && typeof answer === "object") {
    one(answer as object);
    const { groups } = answer as { groups?: object[] };
    groups?.forEach(one);
  }
  return answer;
}

// ended connects again some time after the gateway has refused a stream, or when the paths change.
async function ended(of: typeof following, stream: Promise<void>): Promise<void> {
  await stream;
  if (following !== of) return;
  following = null;
  clearTimeout(again);
  again = window.setTimeout(schedule, 10_000);
}

function settle(path: string, last: Live<unknown>): void {
  const e = entries.get(path);
  if (!e) return;
  e.last = last;
  if (path === "/v1/leaders" && last.data) skew = Date.parse((last.data as Leaders).now) - Date.now();
  e.listeners.forEach((notify) => notify());
}

const gone = 5; // the code NOT_FOUND

// fail stores the error of a path. The data before stays as long as the object exists and the
// caller may see it.
function fail(path: string, error: Failure): void {
  const { data, since } = entries.get(path)?.last ?? {};
  const keep = data !== undefined && error.status.code !== gone && error.http !== 401 && error.http !== 403;
  settle(path, keep ? { data, error, since: since ?? now() } : { error });
}

document.addEventListener("visibilitychange", schedule);

function subscribe(path: string, notify: () => void): () => void {
  let e = entries.get(path);
  if (!e) {
    e = { last: {}, digest: nothing, listeners: new Set(), unusedSince: 0 };
    entries.set(path, e);
  }
  e.listeners.add(notify);
  schedule();
  return () => {
    e.listeners.delete(notify);
    e.unusedSince = Date.now();
    schedule();
  };
}

// useLive returns the newest answer to a GET of path, and follows it while the component is
// mounted. Nothing is followed if path is null.
export function useLive<T>(path: string | null): Live<T> {
  const [, changed] = useReducer((n: number) => n + 1, 0);
  useEffect(() => (path === null ? undefined : subscribe(path, () => changed(undefined))), [path]);
  return path === null ? {} : ((entries.get(path)?.last ?? {}) as Live<T>);
}

// useLiveAll is useLive for several paths.
export function useLiveAll<T>(list: string[]): Live<T>[] {
  const [, changed] = useReducer((n: number) => n + 1, 0);
  const key = list.join("\n");
  useEffect(() => {
    const ends = list.map((path) => subscribe(path, () => changed(undefined)));
    return () => ends.forEach((end) => end());
  }, [key]);
  return list.map((path) => (entries.get(path)?.last ?? {}) as Live<T>);
}

// useLiveList is useLive for the first page of a list. If the page is too large for the gateway,
// it follows a smaller one.
export function useLiveList<T>(path: string, size: number): Live<T> {
  const [smaller, setSmaller] = useState({ path, size });
  const now = smaller.path === path ? smaller.size : size;
  const live = useLive<T>(`${path}${path.includes("?") ? "&" : "?"}pageSize=${now}`);
  const large = live.error?.reason === "TOO_LARGE" && now > 1;
  useEffect(() => {
    if (large) setSmaller({ path, size: Math.ceil(now / 8) });
  }, [large, now]);
  return large ? {} : live;
}

// useConnection returns the state of the connection to the gateway, and since when it is lost.
export function useConnection(): { state: Connection; since?: number } {
  const get = () => ({ state: connection, since: liveUntil });
  const [current, set] = useState(get);
  useEffect(() => {
    const notify = () => set(get());
    connectionListeners.add(notify);
    notify();
    return () => void connectionListeners.delete(notify);
  }, []);
  return current;
}

const clocks = new Set<() => void>();
setInterval(() => clocks.forEach((tick) => tick()), 1000);

// useNow returns the gateway's time, and renders again every second.
export function useNow(): number {
  const [, tick] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const notify = () => tick(undefined);
    clocks.add(notify);
    return () => void clocks.delete(notify);
  }, []);
  return now();
}
