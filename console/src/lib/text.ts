import type { Amounts, Constraints, Leadership, Reservation, ReservationKey } from "./types";

// seconds returns the seconds in a duration of the API, such as "90.5s".
export function seconds(duration?: string): number {
  return duration ? parseFloat(duration) : 0;
}

// age describes a time span as berth prints it: "3s", "2m10s", "1h5m", "3d4h".
export function age(s: number): string {
  s = Math.max(0, Math.floor(s));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60) ? `${Math.floor((s % 3600) / 60)}m` : ""}`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600) ? `${Math.floor((s % 86400) / 3600)}h` : ""}`;
}

const timeFormat = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});
const dateFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "2-digit", day: "2-digit" });

export const clock = (time: string | number) => timeFormat.format(new Date(time));
export const date = (time: string | number) => dateFormat.format(new Date(time));

// moment returns a time in minutes, with the seconds if they are not 0 and the date if it is not today.
function moment(time: string): string {
  const [at, now] = [new Date(time), new Date()];
  const text = clock(at.getTime()).slice(0, at.getSeconds() ? 8 : 5);
  return at.toDateString() === now.toDateString() ? text : `${date(at.getTime())} ${text}`;
}

type Reasoned = Pick<Reservation, "reason" | "message" | "notBefore">;

// message returns the message of a reservation. If the reservation is in no queue yet, it says when it
// enters one, in the time of the browser: the registry writes "until" and the time.
export function message(r: Reasoned): string {
  const when = { NOT_BEFORE: "not before", RESTARTING: "restarts at" }[r.reason ?? ""];
  const [, before = "", until = r.notBefore, rest = ""] = /^(.*?)until (\d{4}-[^;\s]+)(.*)$/s.exec(r.message ?? "") ?? [];
  return when && until ? `${before}${when} ${moment(until)}${rest}` : (r.message ?? "");
}

// why returns the reason and the message of a reservation.
export const why = (r: Reasoned) => [r.reason, message(r)].filter(Boolean).join(" · ");

const numberFormat = new Intl.NumberFormat("en");
export const number = (n?: number) => numberFormat.format(n ?? 0);

// plural returns the number with its noun: "1 worker", "2 workers".
export function plural(n: number, one: string, many = one + "s"): string {
  return `${number(n)} ${n === 1 ? one : many}`;
}

const binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

// amount describes an amount of a resource as a quantity: cores for cpu, bytes with a binary
// suffix for memory and disk.
export function amount(resource: string, base: string | number): string {
  let n = Number(base);
  if (resource === "cpu") return n % 1000 === 0 ? String(n / 1000) : `${n}m`;
  if (resource !== "memory" && resource !== "disk") return numberFormat.format(n);
  let unit = 0;
  while (n >= 1024 && unit < binary.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${Number.isInteger(n) ? n : n.toFixed(1)}${binary[unit]}`;
}

export function amounts(of?: Amounts): string {
  return Object.entries(of ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([r, n]) => `${r} ${amount(r, n)}`)
    .join(", ");
}

// constraintsText describes constraints on one line.
export function constraintsText(c?: Constraints): string {
  if (!c) return "any executor";
  const parts: string[] = [];
  if (c.sku) parts.push(`sku ${c.sku}`);
  const resources = amounts(c.resources);
  if (resources) parts.push(resources);
  for (const [k, v] of Object.entries(c.attributes ?? {})) parts.push(`${k}=${v}`);
  if (c.pools?.length) parts.push(`pool ${c.pools.join(" or ")}`);
  if (c.role) parts.push(`role ${c.role}`);
  if (c.spread?.by) parts.push(`at most ${c.spread.max ?? 1} per ${c.spread.by}`);
  if (c.sameShape) parts.push("same shape");
  if (c.pack) parts.push("packed");
  if (c.cells) parts.push("in a cell");
  return parts.join(" · ") || "any executor";
}

export const keyText = (k: ReservationKey) => (k.name === "main" ? `${k.job}/${k.stage}` : `${k.job}/${k.stage}/${k.name}`);

// quote returns a word as a shell reads it.
export function quote(word: string): string {
  return /^[A-Za-z0-9._/:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

// noLeader says why the leader of a service is not known. If no replica answers, there may be one.
export const noLeader = (s: Leadership): string =>
  (s.replicas ?? []).some((r) => r.role !== "UNREACHABLE") ? "no leader" : "no answer";
