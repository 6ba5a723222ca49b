import type { Assignment, Reservation, Volume } from "./types";

// PlanRow compares, for a worker index, what a job requests with what it has. The rules are
// those of berth plan.
export interface PlanRow {
  stage: string;
  index: number;
  name: string;
  number: number;
  bound: boolean;
  satisfied: boolean;
  current: string;
  executor: string;
  volume: string;
  why: string;
}

const ended = ["COMPLETED", "CANCELLED", "EXPIRED", "FAILED", "REPLACED"];
const endedWorker = ["COMPLETED", "FAILED", "LOST", "EVICTED"];
const started = ["ASSIGNED", "STARTING", "RUNNING"];
const granted = ["HELD", "ASSIGNING", "ACTIVE"];

export function planOf(versions: Reservation[], assignments: Assignment[], volumes: Volume[]): PlanRow[] {
  const rows = new Map<string, PlanRow>();
  for (const r of versions) {
    if (ended.includes(r.state)) continue;
    for (const w of r.workers ?? []) {
      const id = JSON.stringify([r.stage, r.name, w.index]);
      if ((rows.get(id)?.number ?? 0) >= w.number) continue; // a worker that is queued again has the next number
      const bound = granted.includes(r.state);
      rows.set(id, {
        stage: r.stage, index: w.index, name: r.name, number: w.number, bound, satisfied: false, current: r.state,
        executor: "", volume: "", why: bound ? "" : [r.reason, r.message].filter(Boolean).join(" · "),
      });
    }
  }
  for (const a of assignments) {
    const row = rows.get(JSON.stringify([a.stage, a.reservation, a.index]));
    if (!row || row.number !== a.number) continue;
    row.current = a.state;
    row.executor = a.executor;
    row.bound = !endedWorker.includes(a.state);
    row.satisfied = started.includes(a.state);
    row.why = [a.reason, a.lastError].filter(Boolean).join(" · ");
  }
  const list = [...rows.values()];
  for (const v of volumes) {
    const owners = ["ABANDONED", "DESTROYING"].includes(v.state) ? [] : list.filter((r) => r.stage === v.stage && r.index === v.index && r.name);
    if (owners.length === 0) {
      list.push({
        stage: v.stage, index: v.index, name: "", number: 0, bound: false, satisfied: false, current: "",
        executor: v.executor, volume: `${v.id} ${v.state}`, why: v.message ?? "",
      });
    }
    for (const row of owners) {
      row.volume = `${v.id} ${v.state}`;
      row.executor ||= v.executor;
      if (!row.why && !row.satisfied) row.why = v.message ?? "";
    }
  }
  return list.sort((a, b) => (a.stage < b.stage ? -1 : a.stage > b.stage ? 1 : a.index - b.index || b.number - a.number));
}
