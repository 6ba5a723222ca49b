import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useRef } from "preact/hooks";
import { Failure } from "../lib/call";
import { type Live, useNow } from "../lib/live";
import { resultOf, toneOf } from "../lib/result";
import { type Order, slug, type Sortable, sorted, useOrder } from "../lib/sort";
import { age, clock, date } from "../lib/text";
import type { Reservation } from "../lib/types";

// Page is a view: its title, its commands and actions, and its content.
export function Page({ title, kind, tools, children }: {
  title: string;
  kind?: string;
  tools?: ComponentChildren;
  children: ComponentChildren;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Berth`;
    // The focus follows a link to another view, but not the first load.
    if (document.activeElement && document.activeElement !== document.body) heading.current?.focus();
  }, [title]);
  return (
    <>
      <header class="page-head">
        <h1 ref={heading} tabIndex={-1}>
          {kind && <span class="kind">{kind} </span>}
          {title}
        </h1>
        <div class="tools">{tools}</div>
      </header>
      {children}
    </>
  );
}

export function Card({ title, aside, children, wide }: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  wide?: boolean;
}) {
  return (
    <section class={wide ? "card wide" : "card"} aria-label={title}>
      <div class="card-head">
        <h2>{title}</h2>
        {aside && <div class="aside">{aside}</div>}
      </div>
      {children}
    </section>
  );
}

// State shows a state as a word; color and icon only support it.
export function State({ of }: { of: string }) {
  return <span class={`state ${toneOf(of)}`}>{of}</span>;
}

// ResultState shows the state of a reservation, and whether its workers ended well.
export function ResultState({ of }: { of: Reservation }) {
  const { word, tone } = resultOf(of);
  return <span class={`state ${tone}`}>{word}</span>;
}

// Ago shows how long ago a time was, and the time itself as a tooltip.
export function Ago({ time }: { time?: string }) {
  const now = useNow();
  if (!time) return <>–</>;
  const at = Date.parse(time);
  return (
    <time dateTime={time} title={`${date(at)} ${clock(at)}`}>
      {age((now - at) / 1000)}
    </time>
  );
}

// Until shows how long it takes until a time.
export function Until({ time }: { time?: string }) {
  const now = useNow();
  if (!time) return <>–</>;
  const at = Date.parse(time);
  return (
    <time dateTime={time} title={`${date(at)} ${clock(at)}`}>
      {at > now ? `in ${age((at - now) / 1000)}` : "now"}
    </time>
  );
}

export function Problem({ error, what }: { error?: Failure; what?: string }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {what && <strong>{what}: </strong>}
      {error.message}
      {error.reason && <code>{error.reason}</code>}
    </p>
  );
}

// StaleNote says since when the values of its parent are no longer live. The style sheet dims
// what follows it.
export function StaleNote({ since }: { since?: number }) {
  if (!since) return null;
  return (
    <p class="stale-note" role="status">
      Not live: these values are of {clock(since).slice(0, 8)}, <Ago time={new Date(since).toISOString()} /> ago.
    </p>
  );
}

// Answer shows children once data is there, and the error or the wait before. With an error, the
// data is no longer live.
export function Answer<T>({ of, what, children }: {
  of: Live<T>;
  what: string;
  children: (data: T) => ComponentChildren;
}) {
  return (
    <div class="answer">
      <Problem error={of.error} what={what} />
      <StaleNote since={of.data === undefined ? undefined : of.since} />
      {of.data !== undefined ? children(of.data) : !of.error && <p class="loading">Loading {what}…</p>}
    </div>
  );
}

// More says that an object has more than the table shows.
export function More({ of, what }: { of: string; what: string }) {
  return <p class="muted">The {of} has more {what}; copy the command to list all.</p>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

// Facts is a list of names and values; entries without a value are left out.
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export interface Column<T> extends Sortable<T> {
  number?: boolean;
  wide?: boolean;
}

// sinceOf returns the key of a column that shows an age: the youngest first.
export const sinceOf = (time?: string) => (time ? -Date.parse(time) : undefined);

// Heads is the head of a table, with a button for each column by which it can be sorted.
export function Heads<T>({ of, order, change }: { of: Column<T>[]; order: Order | undefined; change: (column: string) => void }) {
  return (
    <thead>
      <tr>
        {of.map((c) => {
          const by = order?.column === c.name;
          return (
            <th key={c.name} scope="col" class={c.number ? "number" : undefined} aria-sort={by ? (order!.down ? "descending" : "ascending") : undefined}>
              {c.name && (
                <button type="button" class="sort" title={`Sort by ${c.name}`} onClick={() => change(c.name)}>
                  {c.name}
                  <span aria-hidden="true">{by ? (order!.down ? " ▼" : " ▲") : ""}</span>
                </button>
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

// settles is how long what a view loads may move the element that the search has found.
const settles = 5000;

// useShown returns a reference to the element that the search has found, which scrolls into view. It
// stays in view while the rest of the view loads, unless the user scrolls.
export function useShown<E extends HTMLElement>(found: boolean, block: ScrollLogicalPosition = "nearest") {
  const element = useRef<E>(null);
  useEffect(() => {
    if (!found) return;
    const moved = new ResizeObserver(() => element.current?.scrollIntoView({ block }));
    moved.observe(document.querySelector("main")!);
    const stop = new AbortController();
    const end = () => (moved.disconnect(), stop.abort());
    for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(kind, end, { signal: stop.signal, passive: true });
    const timer = setTimeout(end, settles);
    return () => (clearTimeout(timer), end());
  }, [found]);
  return element;
}

// Table is a table of at most a few hundred rows. The row that the search has found comes first.
export function Table<T>({ caption, columns, rows, id, names, most }: {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  // names returns further names of a row, by which the search finds it.
  names?: (row: T) => (string | undefined)[];
  // most is the number of rows that the table shows.
  most?: number;
}) {
  const [order, change] = useOrder(slug(caption));
  const at = useLocation().query.at;
  const found = (row: T) => !!at && (id(row) === at || !!names?.(row).includes(at));
  const all = sorted(rows, columns, order);
  const some = !!at && all.some(found);
  const shown = (some ? [...all.filter(found), ...all.filter((r) => !found(r))] : all).slice(0, most);
  const row = useShown<HTMLTableRowElement>(some);
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <Heads of={columns} order={order} change={change} />
        <tbody>
          {shown.map((r, i) => (
            <tr key={id(r)} ref={some && i === 0 ? row : undefined} class={found(r) ? "found" : undefined} aria-current={found(r) ? "true" : undefined}>
              {columns.map((c) => (
                <td key={c.name} class={c.number ? "number" : c.wide ? "wide" : undefined}>{c.cell(r)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
