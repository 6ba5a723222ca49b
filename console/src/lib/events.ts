import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, paths } from "./call";
import { follow } from "./sse";
import type { JobEvent } from "./types";

// keptEvents is the number of events of a job that the page keeps, the newest ones.
const keptEvents = 5000;

// useEvents follows the events of a job that a filter selects, from the oldest stored event.
export function useEvents(job: string, selects: (e: JobEvent) => boolean) {
  const [events, setEvents] = useState<JobEvent[]>([]);
  const [error, setError] = useState<Failure>();
  const filter = useRef(selects);
  filter.current = selects;
  useEffect(() => {
    setEvents([]);
    let arrived: JobEvent[] = [];
    let timer = 0;
    let cursor = "";
    let stop = new AbortController();
    const flush = () => {
      timer = 0;
      const batch = arrived;
      arrived = [];
      setEvents((old) => [...old, ...batch].slice(-keptEvents));
    };
    const run = () => {
      const { signal } = (stop = new AbortController());
      const url = paths.job(job) + "/events";
      void follow(url, signal, {
        open: () => setError(undefined),
        broken: (err) => {
          if (!err) return;
          setError(err);
          if (err.http === 410 && !signal.aborted) {
            // The page was away for so long that the next events are deleted: begin again.
            cursor = "";
            setEvents([]);
            run();
          }
        },
        event: (e) => {
          if (e.kind === "error") {
            setError(new Failure(0, JSON.parse(e.data)));
            return;
          }
          cursor = e.id;
          const event = JSON.parse(e.data) as JobEvent;
          if (!filter.current(event)) return;
          arrived.push(event);
          timer ||= window.setTimeout(flush, 50);
        },
      }, cursor);
    };
    // A hidden page has no connection: a browser opens only six to a host.
    const shown = () => {
      stop.abort();
      if (!document.hidden) run();
    };
    document.addEventListener("visibilitychange", shown);
    shown();
    return () => {
      document.removeEventListener("visibilitychange", shown);
      stop.abort();
      clearTimeout(timer);
    };
  }, [job]);
  return { events, error };
}
