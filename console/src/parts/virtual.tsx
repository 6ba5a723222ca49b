import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, Failure } from "../lib/call";
import { stamp, useLiveAll } from "../lib/live";
import { sorted, useOrder } from "../lib/sort";
import { number } from "../lib/text";
import { type Column, Heads, StaleNote } from "./basics";

// useWindow returns the range of rows of a fixed height that the scrolled element shows, and a
// few more on both sides.
export function useWindow(rows: number, height: number) {
  const scroller = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 40 });
  const measure = () => {
    const el = scroller.current;
    if (!el) return;
    const from = Math.max(0, Math.floor(el.scrollTop / height) - 4);
    const to = Math.ceil((el.scrollTop + el.clientHeight) / height) + 4;
    setRange((r) => (r.from === from && r.to === to ? r : { from, to }));
  };
  useLayoutEffect(measure, [rows, height]);
  useEffect(() => {
    const el = scroller.current!;
    let frame = 0;
    const onScroll = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        measure();
      });
    };
    el.addEventListener("scroll", onScroll, { passive: true });
    const resized = new ResizeObserver(measure);
    resized.observe(el);
    return () => {
      cancelAnimationFrame(frame);
      el.removeEventListener("scroll", onScroll);
      resized.disconnect();
    };
  }, [height]);
  return { scroller, from: Math.min(range.from, rows), to: Math.min(range.to, rows) };
}

interface PageOf {
  token: string;
  next: string;
  rows: unknown[];
}

// usePages reads a list page by page. The first page and the pages in view stay live.
export function usePages<T>(path: string, most: number, field: string, id: (row: T) => string) {
  // size becomes smaller if a page is too large for the gateway.
  const [size, setSize] = useState(most);
  const [pages, setPages] = useState<PageOf[]>([]);
  const [first, setFirst] = useState<Record<string, unknown>>({});
  // view has the pages to follow. It changes once the scrolling rests.
  const [view, setView] = useState<number[]>([0]);
  const resting = useRef(0);
  const range = useRef<[from: number, to: number, shown?: T[], needed?: number]>([0, 0]); // of the rows in view
  const retry = useRef(0);
  const [attempt, setAttempt] = useState(0);
  const [loadError, setLoadError] = useState<Failure>(); // to load the next page
  const loading = useRef<AbortController | null>(null);
  const join = path.includes("?") ? "&" : "?";
  const url = (token: string) => `${path}${join}pageSize=${size}${token ? "&pageToken=" + encodeURIComponent(token) : ""}`;

  useEffect(() => {
    setPages([]);
    setLoadError(undefined);
    setSize(most);
    setView([0]);
    return () => {
      clearTimeout(resting.current);
      clearTimeout(retry.current);
      loading.current?.abort();
    };
  }, [path]);

  // The pages in view, by their index. The first page is always followed: it has the totals.
  const followed = [...new Set([0, ...view])].filter((i) => i === 0 || i < pages.length).slice(0, 8);
  const tokens = followed.map((i) => (i === 0 ? "" : pages[i]!.token));
  const answers = useLiveAll<Record<string, unknown>>(tokens.map(url));
  useEffect(() => {
    setPages((old) => {
      let list = old;
      answers.forEach(({ data, error: failed }, k) => {
        const i = followed[k]!;
        if (failed?.reason === "TOO_LARGE" && size > 1) {
          setSize(Math.ceil(size / 8));
          list = [];
        }
        if (!data || (i > 0 && old[i]?.token !== tokens[k])) return;
        const page = { token: tokens[k]!, next: (data.nextPageToken as string) ?? "", rows: (data[field] as unknown[]) ?? [] };
        if (i === 0) setFirst(data);
        if (list[i]?.rows === page.rows) return;
        if (list === old) list = [...old];
        list[i] = page;
        // Rows have moved to or from the next page. It loads again once it is in view.
        if (page.next === "") list.length = i + 1;
        else if (list[i + 1] && list[i + 1]!.token !== page.next) list[i + 1] = { ...list[i + 1]!, token: page.next };
      });
      return list;
    });
  }, [answers.map((a) => a.data), answers.map((a) => a.error)].flat());

  const last = pages[pages.length - 1];
  const more = last !== undefined && last.next !== "";
  const newest = useRef<string | undefined>(undefined);
  newest.current = last?.next;
  // failed is the error of a page that is followed. It ends with the recovery.
  const failed = answers.find((a) => a.error && a.error.reason !== "TOO_LARGE");
  const loadMore = () => {
    if (!more || loading.current) return;
    const stop = new AbortController();
    loading.current = stop;
    call<Record<string, unknown>>("GET", url(last.next), undefined, AbortSignal.any([stop.signal, AbortSignal.timeout(30_000)]))
      .then((data) => {
        setLoadError(undefined);
        stamp(data);
        if (newest.current !== last.next) setAttempt((n) => n + 1); // the page before has changed
        setPages((old) => {
          if (old[old.length - 1]?.next !== last.next) return old;
          return [...old, { token: last.next, next: (data.nextPageToken as string) ?? "", rows: (data[field] as unknown[]) ?? [] }];
        });
      })
      .catch((err) => {
        if (stop.signal.aborted) return;
        setLoadError(err instanceof Failure ? err : new Failure(0, { code: 0, message: "the gateway does not answer" }));
        if (err instanceof Failure && err.reason === "TOO_LARGE" && size > 1) {
          setSize(Math.ceil(size / 8));
          setPages([]);
        } else if (!(err instanceof Failure) || err.http < 400 || err.http >= 500 || err.http === 429) {
          clearTimeout(retry.current);
          retry.current = window.setTimeout(() => setAttempt((n) => n + 1), 2000);
        }
      })
      .finally(() => {
        if (loading.current === stop) loading.current = null;
      });
  };

  const { rows, pageOf } = useMemo(() => {
    // While pages move against each other, a row may be in two of them.
    const seen = new Set<string>();
    const rows: T[] = [];
    const pageOf = new Map<T, number>();
    pages.forEach((page, i) => {
      for (const row of page.rows as T[]) {
        const key = id(row);
        if (!seen.has(key)) {
          seen.add(key);
          rows.push(row);
          pageOf.set(row, i);
        }
      }
    });
    return { rows, pageOf };
  }, [pages]);
  // look follows the pages of the rows in view, and loads the next page if its rows are near. A
  // table in another order than that of the list gives its rows, and loads rows until it has as
  // many as it needs.
  const look = (from: number, to: number, shown = rows, needed = 0) => {
    range.current = [from, to, shown, needed];
    const inView = [...new Set(shown.slice(from, to).map((row) => pageOf.get(row) ?? 0))].sort((a, b) => a - b);
    clearTimeout(resting.current);
    resting.current = window.setTimeout(() => setView((v) => (v.join() === inView.join() ? v : inView)), 300);
    if (needed > 0 ? rows.length < needed : to >= rows.length - size / 4) loadMore();
    else setLoadError(undefined); // the page that failed is out of view
  };
  useEffect(() => {
    if (attempt > 0) look(...range.current);
  }, [attempt]);
  return { rows, first, error: failed?.error ?? loadError, since: failed?.since, more, look, loaded: pages.length > 0 };
}

const rowHeight = 34;
// mostSorted is the number of rows that the page loads to sort them.
const mostSorted = 10_000;

// LongTable is a table of any length, of which the page has only the rows in view. To sort or to
// filter it, the page loads its rows.
export function LongTable<T>({ caption, columns, pages, id, total, empty, filter }: {
  caption: string;
  columns: Column<T>[];
  pages: {
    rows: T[]; look: (from: number, to: number, shown?: T[], needed?: number) => void; more: boolean; loaded: boolean; since?: number;
  };
  id: (row: T) => string;
  total?: number;
  empty: ComponentChildren;
  filter?: (row: T) => boolean;
}) {
  const { look, more, loaded } = pages;
  const [order, change] = useOrder("sort");
  const rows = useMemo(() => sorted(filter ? pages.rows.filter(filter) : pages.rows, columns, order), [pages.rows, order, filter]);
  const needed = order || filter ? mostSorted : 0;
  const { scroller, from, to } = useWindow(rows.length, rowHeight);
  useEffect(() => look(from, to, rows, needed), [from, to, order ? rows : rows.length, pages.rows.length, needed]);
  const partial = needed > 0 && more;
  return (
    <>
      <StaleNote since={pages.since} />
      {partial && pages.rows.length >= mostSorted && (
        <p class="muted" role="status">{order ? "Sorted" : "Filtered"}: only the first {number(pages.rows.length)} rows{total ? ` of ${number(total)}` : ""}.</p>
      )}
      <div class="long-table" ref={scroller} tabIndex={0} role="region" aria-label={caption}>
        <table aria-rowcount={filter ? rows.length : (total ?? (more ? -1 : rows.length))}>
          <caption class="visually-hidden">{caption}</caption>
          <Heads of={columns} order={order} change={change} />
          <tbody>
            {from > 0 && <tr class="spacer" style={{ height: `${from * rowHeight}px` }} aria-hidden="true"><td colSpan={columns.length} /></tr>}
            {rows.slice(from, to).map((row, i) => (
              <tr key={id(row)} aria-rowindex={from + i + 2}>
                {columns.map((c) => (
                  <td key={c.name} class={c.number ? "number" : c.wide ? "wide" : undefined}>{c.cell(row)}</td>
                ))}
              </tr>
            ))}
            {to < rows.length && (
              <tr class="spacer" style={{ height: `${(rows.length - to) * rowHeight}px` }} aria-hidden="true"><td colSpan={columns.length} /></tr>
            )}
          </tbody>
        </table>
        {rows.length === 0 && <p class="empty">{loaded && !partial ? empty : "Loading…"}</p>}
        {more && rows.length > 0 && (!partial || pages.rows.length < mostSorted) && (
          <p class="more">{partial ? "Loading the other rows…" : "More rows load as you scroll."}</p>
        )}
      </div>
    </>
  );
}
