import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { pages } from "../lib/call";
import { eventTones } from "../lib/result";
import { age, clock, date, plural } from "../lib/text";
import type { JobEvent } from "../lib/types";
import { useShown } from "./basics";

function workersText(e: JobEvent): string {
  const n = e.count ?? e.workers?.length ?? 0;
  if (!n) return "";
  if (n > 4 || !e.workers?.length) return plural(n, "worker");
  return e.workers.map((w) => `${w.index}.${w.number}`).join(", ");
}

// Timeline tells a story from events, the newest first.
export function Timeline({ of, label, show = 200 }: { of: JobEvent[]; label: string; show?: number }) {
  const tones = useMemo(() => eventTones(of), [of]);
  const at = useLocation().query.at;
  // With the ID of an event in the address, the events around it are shown.
  const place = at ? of.findIndex((e) => e.cursor === at) : -1;
  const found = useShown<HTMLLIElement>(place >= 0, "center");
  const end = place >= 0 && place < of.length - show ? place + show / 2 : of.length;
  const list = of.slice(Math.max(0, end - show), end).reverse();
  return (
    <ol class="timeline" aria-label={label}>
      {list.map((e, i) => {
        const before = list[i + 1];
        const gap = before ? (Date.parse(e.time) - Date.parse(before.time)) / 1000 : 0;
        const executors = [...new Set((e.workers ?? []).map((w) => w.executor).filter((x): x is string => !!x))];
        const details = [...new Set((e.workers ?? []).map((w) => w.message).filter(Boolean))].slice(0, 2);
        return (
          <li key={e.cursor} ref={e.cursor === at ? found : undefined} class={`${tones.get(e.cursor)}${e.cursor === at ? " found" : ""}`} aria-current={e.cursor === at ? "true" : undefined}>
            <time dateTime={e.time} title={date(e.time)}>{clock(e.time)}</time>
            <div>
              <p>
                <strong>{e.kind}</strong> {workersText(e)}
                {executors.length > 0 && executors.length <= 3 && (
                  <> on {executors.map((x, k) => <span key={x}>{k > 0 && ", "}<a href={pages.executor(x)}>{x}</a></span>)}</>
                )}
                {executors.length > 3 && <> on {executors.length} executors</>}
              </p>
              {(e.reason || e.message || details.length > 0) && (
                <p class="muted">{[e.reason, e.message, ...details].filter(Boolean).join(" · ")}</p>
              )}
            </div>
            {before && <span class="muted gap">{gap < 1 ? `${Math.round(gap * 1000)} ms` : age(gap)} later</span>}
          </li>
        );
      })}
      {of.length > show && <li class="plain"><span /><p class="muted">{plural(of.length - show, place >= 0 ? "other event" : "older event")} not shown; copy the command to list all.</p></li>}
    </ol>
  );
}
