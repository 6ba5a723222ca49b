import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Failure } from "../lib/call";
import { useNow } from "../lib/live";
import { resultOf, toneOf } from "../lib/result";
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
export function ResultState({ of }: { of: Pick<Reservation, "state" | "workerCounts"> }) {
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

// Answer shows children once data is there, and the error or the wait before.
export function Answer<T>({ of, what, children }: {
  of: { data?: T; error?: Failure };
  what: string;
  children: (data: T) => ComponentChildren;
}) {
  return (
    <>
      <Problem error={of.error} what={what} />
      {of.data !== undefined ? children(of.data) : !of.error && <p class="loading">Loading {what}…</p>}
    </>
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

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  wide?: boolean;
}

// Table is a table of at most a few hundred rows.
export function Table<T>({ caption, columns, rows, id }: {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
}) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.name} scope="col" class={c.number ? "number" : undefined}>{c.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((c) => (
                <td key={c.name} class={c.number ? "number" : c.wide ? "wide" : undefined}>{c.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
