import { Component } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useRef, useState } from "preact/hooks";
import { pages, query } from "../lib/call";
import { useLive } from "../lib/live";
import { amount, number, plural } from "../lib/text";
import type { Executor } from "../lib/types";
import { Page, Problem, State } from "../parts/basics";
import { Commands } from "../parts/commands";
import { LongTable, usePages, useWindow } from "../parts/virtual";
import { Disable } from "./executor";

// condition returns the one word that an operator must see first about an executor.
export function condition(e: Executor): string {
  if (e.state !== "READY") return e.state;
  if (e.draining) return "DRAINING";
  if (e.disabled?.length) return "DISABLED";
  if (e.skippedUntil) return "SKIPPED";
  return "READY";
}

// load returns the used part of the resource of which the largest part is used, 0 to 1.
export function load(e: Executor): number {
  return Math.max(0, ...Object.entries(e.resources ?? {}).map(([r, n]) => Number(e.used?.[r] ?? 0) / Math.max(1, Number(n))));
}

const glyphs: Record<string, string> = { LOST: "×", UNREACHABLE: "!", DRAINING: "↓", DISABLED: "–", SKIPPED: "~", REGISTERED: "·" };
const legend: [string, string][] = [
  ["idle", "ready, idle"], ["part", "ready, partly used"], ["full", "ready, full"], ["DISABLED", "– disabled"], ["DRAINING", "↓ draining"],
  ["SKIPPED", "~ starts fail"], ["UNREACHABLE", "! unreachable"], ["LOST", "× lost"], ["REGISTERED", "· registered"],
];
const states = ["REGISTERED", "READY", "UNREACHABLE", "LOST"];

// attributesOf reads "zone=a, arch=amd64".
export function attributesOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const part of text.split(",")) {
    const at = part.indexOf("=");
    if (at > 0) found[part.slice(0, at).trim()] = part.slice(at + 1).trim();
  }
  return found;
}

export function Executors() {
  const { query: q, path: at, route } = useLocation();
  const set = (name: string, value: string) => route(query(at, { ...q, [name]: value || undefined }), true);
  const attributes = attributesOf(q.attributes ?? "");
  const malformed = (q.attributes ?? "").split(",").some((part) => part.trim() && !/^[^=]+=/.test(part.trim()));
  const path = query("/v1/executors", {
    sku: q.sku,
    pool: q.pool,
    state: q.state,
    ...Object.fromEntries(Object.entries(attributes).map(([k, v]) => [`attributes[${k}]`, v])),
  });
  const list = usePages<Executor>(path, 500, "executors", (e) => e.id);
  const total = list.first.totalSize as number | undefined;
  const skus = useLive<{ skus: { sku: string }[] }>("/v1/usage").data?.skus.map((s) => s.sku) ?? [];
  const pools = useLive<{ pools: { name: string }[] }>("/v1/pools").data?.pools.map((p) => p.name) ?? [];
  const options = [
    ...(q.sku ? ["--sku", q.sku] : []), ...(q.pool ? ["--pool", q.pool] : []), ...(q.state ? ["--state", q.state] : []),
    ...(Object.keys(attributes).length ? ["--attributes", Object.entries(attributes).map(([k, v]) => `${k}=${v}`).join(",")] : []),
  ];
  const poolNames = [...new Set([...pools, ...list.rows.slice(0, 2000).map((e) => e.pool ?? ""), q.pool ?? ""])].filter(Boolean).sort();
  return (
    <Page
      title="Executors"
      tools={
        <>
          <Commands of={[{ what: "These executors", path, berth: ["get", "executors", ...options, "-o", "wide"] }]} />
          {Object.keys(attributes).length > 0 && !q.sku && !q.pool && !q.state && !malformed && <Disable attributes={attributes} now={total} />}
        </>
      }
    >
      <form class="filters" role="search" aria-label="Filter executors" onSubmit={(e) => e.preventDefault()}>
        <Select label="SKU" value={q.sku} options={[...new Set([...skus, q.sku ?? ""])].filter(Boolean)} set={(v) => set("sku", v)} />
        <Select label="Pool" value={q.pool} options={poolNames} set={(v) => set("pool", v)} />
        <Select label="State" value={q.state} options={states} set={(v) => set("state", v)} />
        <label>
          Attributes
          <input
            placeholder="zone=a, arch=amd64"
            value={q.attributes ?? ""}
            onChange={(e) => set("attributes", (e.target as HTMLInputElement).value)}
          />
        </label>
        <Select label="Show as" value={q.as ?? "grid"} options={["grid", "table"]} required set={(v) => set("as", v === "grid" ? "" : v)} />
        <p class="count">{list.loaded && plural(total ?? list.rows.length, "executor")}</p>
      </form>
      <Problem error={list.error} what="Executors" />
      {malformed && <p class="problem" role="alert">Attributes must be like zone=a, arch=amd64.</p>}
      {q.as === "table" ? (
        <LongTable
          caption="Executors"
          pages={list}
          id={(e) => e.id}
          total={total}
          empty="No executor matches."
          columns={[
            { name: "Executor", cell: (e) => <a href={pages.executor(e.id)}>{e.id}</a> },
            { name: "State", cell: (e) => <State of={condition(e)} />, by: condition },
            { name: "SKU", cell: (e) => e.sku && <a href={query("/executors", { ...q, sku: e.sku })}>{e.sku}</a> },
            { name: "Pool", cell: (e) => e.pool && <a href={query("/executors", { ...q, pool: e.pool })}>{e.pool}</a> },
            { name: "Workers", cell: (e) => number(e.workers), number: true },
            { name: "Used", cell: (e) => `${Math.round(load(e) * 100)} %`, number: true },
            {
              name: "Resources",
              cell: (e) => Object.entries(e.resources ?? {}).map(([r, n]) => `${r} ${amount(r, e.used?.[r] ?? 0)}/${amount(r, n)}`).join(", "),
              wide: true,
            },
          ]}
        />
      ) : (
        <Grid list={list} total={total} />
      )}
    </Page>
  );
}

function Select({ label, value, options, set, required }: {
  label: string; value?: string; options: string[]; set: (v: string) => void; required?: boolean;
}) {
  return (
    <label>
      {label}
      <select value={value ?? ""} onChange={(e) => set((e.target as HTMLSelectElement).value)}>
        {!required && <option value="">all</option>}
        {options.map((o) => (
          <option key={o} value={o} selected={o === value}>{o}</option>
        ))}
      </select>
    </label>
  );
}

const cell = 22;

// Grid shows each executor as a cell. The arrow keys move between cells, and the page has only
// the rows in view.
function Grid({ list, total }: { list: ReturnType<typeof usePages<Executor>>; total?: number }) {
  const [columns, setColumns] = useState(40);
  const count = Math.max(list.rows.length, total ?? 0);
  const rows = Math.ceil(count / columns);
  const { scroller, from, to } = useWindow(rows, cell);
  const [focus, setFocus] = useState(0);
  const moved = useRef(false);
  useEffect(() => {
    const el = scroller.current!;
    const resize = () => setColumns(Math.max(8, Math.floor((el.clientWidth - 8) / cell)));
    resize();
    const o = new ResizeObserver(resize);
    o.observe(el);
    return () => o.disconnect();
  }, []);
  useEffect(() => list.look(from * columns, Math.min(to * columns, count)), [from, to, columns, list.rows.length, count]);
  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    scroller.current!.querySelector<HTMLElement>(`[data-at="${focus}"]`)?.focus({ preventScroll: false });
  }, [focus]);
  const move = (e: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -focus, End: list.rows.length - 1 - focus }[e.key];
    if (by === undefined) return;
    e.preventDefault();
    const to = Math.min(Math.max(0, focus + by), list.rows.length - 1);
    const el = scroller.current!;
    const top = Math.floor(to / columns) * cell;
    if (top < el.scrollTop) el.scrollTop = top;
    if (top + cell > el.scrollTop + el.clientHeight) el.scrollTop = top + cell - el.clientHeight;
    moved.current = true;
    // The row may have to be rendered first.
    requestAnimationFrame(() => setFocus(to));
  };
  const focused = Math.min(focus, Math.max(0, list.rows.length - 1));
  const shown = [];
  for (let row = from; row < to; row++) {
    const first = row * columns;
    const last = Math.min(first + columns, count);
    shown.push(
      <Row key={row} row={row} first={first} last={last} rows={list.rows} focus={focused >= first && focused < last ? focused : -1} />,
    );
  }
  return (
    <>
      <ul class="grid-legend" aria-label="Legend">
        {legend.map(([kind, text]) => (
          <li key={kind}><i class={`cell ${kind}`} /> {text}</li>
        ))}
      </ul>
      <div class="grid" ref={scroller}>
        {list.loaded && count === 0 ? (
          <p class="empty">No executor matches.</p>
        ) : (
          <div role="grid" aria-label="Executors" aria-rowcount={rows} aria-colcount={columns} style={{ height: `${rows * cell}px` }} onKeyDown={move}>
            {shown}
          </div>
        )}
      </div>
    </>
  );
}

interface RowProps {
  row: number;
  first: number;
  last: number;
  rows: Executor[];
  focus: number;
}

// Row renders again only if one of its executors has changed.
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const now = this.props;
    if (now.first !== next.first || now.last !== next.last || now.focus !== next.focus) return true;
    if (now.rows === next.rows) return false;
    for (let at = next.first; at < next.last; at++) if (now.rows[at] !== next.rows[at]) return true;
    return false;
  }

  render({ row, first, last, rows, focus }: RowProps) {
    const cells = [];
    for (let at = first; at < last; at++) {
      const e = rows[at];
      cells.push(e ? <Cell key={e.id} of={e} at={at} focus={at === focus} /> : <span key={at} class="cell unknown" role="gridcell" aria-label="loading" />);
    }
    return (
      <div class="grid-row" role="row" aria-rowindex={row + 1} style={{ top: `${row * cell}px` }}>
        {cells}
      </div>
    );
  }
}

function Cell({ of: e, at, focus }: { of: Executor; at: number; focus: boolean }) {
  const c = condition(e);
  const used = load(e);
  const kind = c === "READY" ? (used === 0 ? "idle" : used < 1 ? "part" : "full") : c;
  const text = `${e.id}: ${c}, ${plural(e.workers ?? 0, "worker")}, ${Math.round(used * 100)} % used${e.sku ? `, ${e.sku}` : ""}`;
  return (
    <span role="gridcell">
      <a class={`cell ${kind}`} href={pages.executor(e.id)} aria-label={text} title={text} tabIndex={focus ? 0 : -1} data-at={at}>
        {glyphs[c] ?? ""}
      </a>
    </span>
  );
}
