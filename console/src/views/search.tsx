import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { call, Failure, may, pages, paths } from "../lib/call";
import { clean, Found, search, Sources } from "../lib/search";
import { useSession } from "../lib/session";
import { readStream } from "../lib/sse";
import { plural } from "../lib/text";
import type { Caller } from "../lib/types";
import { Card, Page, Problem, Table } from "../parts/basics";

// firstEvent returns the cursor of the first event of a job after another cursor. A stream without
// a stored event is silent, so it gets half a second.
async function firstEvent(job: string, after: string): Promise<string | undefined> {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), 500);
  let first: string | undefined;
  await readStream(paths.job(job) + "/events", after, stop.signal, () => {}, (e) => {
    if (e.kind !== "error") first ??= e.id;
    stop.abort();
  }).catch(() => undefined);
  clearTimeout(timer);
  return first;
}

const sources = (caller: Caller): Sources => ({ get: (path) => call("GET", path), firstEvent, may: (method) => may(caller, method) });

// Search opens the object that has a text as a name. With several objects, or none, it says so.
export function Search() {
  const { query: q, route } = useLocation();
  const { caller } = useSession();
  const text = q.q ?? "";
  const name = clean(text);
  const [found, setFound] = useState<Found>();
  const [error, setError] = useState<Failure>();
  useEffect(() => {
    let current = true;
    setFound(undefined);
    setError(undefined);
    search(text, sources(caller)).then(
      (answer) => {
        if (!current) return;
        if (answer.hits.length === 1) route(answer.hits[0]!.page, true);
        else setFound(answer);
      },
      (err) => current && setError(err instanceof Failure ? err : new Failure(0, { code: 0, message: String(err) })),
    );
    return () => void (current = false);
  }, [text]);
  const kind = /^[^/]+\/[^/]+(\/[^/]+)?$/.test(name) ? (/\/\d+\.\d+$/.test(name) ? "worker" : "reservation") : "object";
  const hits = found?.hits.length ? found.hits : (found?.near ?? []);
  return (
    <Page kind="Search" title={name}>
      <Problem error={error} what="Search" />
      {!found && !error && <p class="loading">Searching…</p>}
      {found && (
        <Card title={found.hits.length ? plural(found.hits.length + found.more, "object") : name ? `There is no ${kind} ${name}` : "Nothing to search for"}>
          {!found.hits.length && (
            <p class="unknown">
              {name && "No job, reservation, worker, executor, queue or other object that you can see has this name. "}
              {/^[A-Z]+(_[A-Z]+)+$/.test(name)
                ? "If it is a reason or a kind of event, nothing has it now: the page of a job lists its events."
                : "Names are like JOB, JOB/STAGE, JOB/STAGE/NAME, JOB/STAGE/0.1, an executor, an ID, a reason or an address."}
            </p>
          )}
          {found.failed.length > 0 && <p class="problem" role="alert">No answer about: {found.failed.join(", ")}. The object may be there.</p>}
          {!found.hits.length && found.partial.length > 0 && <p class="muted">Only a part was searched, because there are very many: {found.partial.join(", ")}.</p>}
          {!found.hits.length && found.hidden.length > 0 && <p class="muted">Your role does not see: {found.hidden.join(", ")}.</p>}
          {!found.hits.length && hits.length > 0 && <p>Similar names:</p>}
          {hits.length > 0 && (
            <Table
              caption="Objects"
              rows={hits}
              id={(h) => h.kind + h.page + h.name}
              columns={[
                { name: "Name", cell: (h) => <a href={h.page}>{h.name}</a> },
                { name: "Kind", cell: (h) => h.kind },
                { name: "About", cell: (h) => h.note, wide: true },
              ]}
            />
          )}
          {found.more > 0 && <p class="muted">{plural(found.more, "other object")} not shown.</p>}
        </Card>
      )}
    </Page>
  );
}

// Unknown is the view of an object that does not exist. It has no actions.
export function Unknown({ kind, name, children }: { kind: string; name: string; children?: string }) {
  return (
    <Card title={`There is no ${kind} ${name}`} wide>
      <p class="unknown">{children}</p>
      <p><a href={pages.search(name)}>Search for {name}</a></p>
    </Card>
  );
}
