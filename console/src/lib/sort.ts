import type { ComponentChildren, VNode } from "preact";
import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { query } from "./call";

export type Key = string | number | undefined;

export interface Sortable<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  // by returns the value to sort by. The default is the text of the cell.
  by?: (row: T) => Key;
}

export interface Order {
  column: string;
  down: boolean;
}

// useOrder returns the order of a table, which is in the address of the page, and a function that
// changes it: a column sorts upwards, then downwards, then not at all.
export function useOrder(param: string): [Order | undefined, (column: string) => void] {
  const { query: q, path, route } = useLocation();
  const value = q[param];
  const order = useMemo(() => (value ? { column: value.replace(/^-/, ""), down: value.startsWith("-") } : undefined), [value]);
  const change = (column: string) => {
    const next = order?.column !== column ? column : order.down ? undefined : "-" + column;
    route(query(path, { ...q, [param]: next }), true);
  };
  return [order, change];
}

// slug returns the name of the parameter of a table.
export const slug = (caption: string) => "sort-" + caption.toLowerCase().replace(/[^a-z0-9]+/g, "-");

// textOf returns the text that a cell shows.
export function textOf(cell: ComponentChildren): string {
  if (cell === null || cell === undefined || typeof cell === "boolean") return "";
  if (Array.isArray(cell)) return cell.map(textOf).join("");
  if (typeof cell !== "object") return String(cell);
  const { of, children } = (cell as VNode<{ of?: unknown; children?: ComponentChildren }>).props ?? {};
  if (typeof of === "string") return of;
  const { word, state } = (of ?? {}) as { word?: string; state?: string };
  return word ?? state ?? textOf(children);
}

const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function keyOf(text: string): Key {
  const plain = text.replaceAll(",", "").replace(/ %$/, "");
  return text === "" || text === "–" ? undefined : /^-?\d+(\.\d+)?$/.test(plain) ? Number(plain) : text;
}

// compare orders two keys. Numbers precede words.
function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1;
  return typeof b === "number" ? 1 : words.compare(a, b);
}

// sorted returns the rows in an order. Rows without a value come last in both directions, and
// equal rows keep their order.
export function sorted<T>(rows: T[], columns: Sortable<T>[], order: Order | undefined): T[] {
  const column = columns.find((c) => c.name === order?.column);
  if (!column) return rows;
  const keys = rows.map((row, i) => ({ row, i, key: column.by ? column.by(row) : keyOf(textOf(column.cell(row))) }));
  keys.sort((a, b) => {
    if (a.key === undefined || b.key === undefined) return a.key === b.key ? a.i - b.i : a.key === undefined ? 1 : -1;
    return (order!.down ? -1 : 1) * compare(a.key, b.key) || a.i - b.i;
  });
  return keys.map((k) => k.row);
}
