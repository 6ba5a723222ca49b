import type { JobEvent, Reservation } from "./types";

// Tone is the color of a state. The style sheet gives each tone its icon.
export type Tone = "good" | "wait" | "hold" | "warn" | "bad" | "done" | "plain";

const tones: Record<string, Tone> = {
  LEADER: "good", READY: "good", ACTIVE: "good", RUNNING: "good", COMPLETED: "good", STANDBY: "plain", OK: "good",
  QUEUED: "wait", LEASING: "wait", ASSIGNING: "wait", OFFERING: "wait", HELD: "hold", STARTING: "wait", ASSIGNED: "wait",
  PLANNED: "wait", REGISTERED: "plain", CANCELLING: "warn", EVICT: "warn", EVICTING: "warn", DRAINING: "warn",
  DISABLED: "warn", SKIPPED: "warn", UNREACHABLE: "warn", DESTROYING: "warn", CANCELLED: "done", EVICTED: "done",
  REPLACED: "done", EXPIRED: "bad", FAILED: "bad", LOST: "bad", "NO LEADER": "bad", "NO ANSWER": "bad", ABANDONED: "bad",
};

export const toneOf = (state: string): Tone => tones[state] ?? "plain";

export interface Result {
  // word is the state with the workers that did not end well, such as "COMPLETED, 2 failed".
  word: string;
  tone: Tone;
}

type Counted = Pick<Reservation, "state" | "reason" | "workerCounts" | "workers" | "ends" | "requestedCount" | "requestedWorkers">;

// requestedEndedWell reports whether all workers that the latest request names have completed. It
// may name fewer workers than the reservation has.
function requestedEndedWell({ workers = [], ends = [], requestedCount = 0, requestedWorkers = [] }: Counted): boolean {
  const wanted = workers.filter((w) => w.index < requestedCount || requestedWorkers.some((q) => q.index === w.index));
  const completed = ends.filter((e) => e.state === "COMPLETED").flatMap((e) => e.workers ?? []);
  return wanted.length > 0 && wanted.every((w) => completed.some((c) => c.first <= w.index && w.index <= c.last));
}

// resultOf returns what became of a reservation. COMPLETED only says that every worker has ended:
// it is a success if no worker failed, was lost or was stopped. An ACTIVE reservation with failed
// or lost workers needs attention. A worker index counts with its newest worker. The command line
// has the same rule (cmd/berth/internal/cli/show/result.go).
export function resultOf(r: Counted): Result {
  const bad = { COMPLETED: ["FAILED", "LOST", "EVICTED"], ACTIVE: ["FAILED", "LOST"] }[r.state] ?? [];
  const found = bad.filter((state) => (r.workerCounts?.[state] ?? 0) > 0);
  if (found.length === 0 || (r.state === "COMPLETED" && (r.reason === "COMPLETES_WITH" || requestedEndedWell(r)))) return { word: r.state, tone: toneOf(r.state) };
  return {
    word: [r.state, ...found.map((state) => `${r.workerCounts![state]} ${state.toLowerCase()}`)].join(", "),
    tone: r.state === "ACTIVE" || found[0] === "EVICTED" ? "warn" : "bad",
  };
}

function toneOfKind(kind: string): Tone {
  if (/FAILED|LOST|EXPIRED|WITHDRAWN/.test(kind)) return "bad";
  if (/CANCELLED|EVICT|REPLACED|DISABLED|REQUEUED|ABANDONED|DESTROYED/.test(kind)) return "warn";
  return /RUNNING|COMPLETED|READY|BOUND/.test(kind) ? "good" : "plain";
}

// eventTones returns the tone of each event of a job by its cursor. The events are in order, and
// the end of a reservation has the tone of its result.
export function eventTones(events: JobEvent[]): Map<string, Tone> {
  const tones = new Map<string, Tone>();
  const newest = new Map<string, Map<number, { number: number; state: string }>>(); // by reservation and worker index
  for (const e of events) {
    tones.set(e.cursor, toneOfKind(e.kind));
    const key = `${e.stage}/${e.reservation}`;
    if (e.kind === "RESERVATION_COMPLETED") {
      const workerCounts: Record<string, number> = {};
      for (const { state } of newest.get(key)?.values() ?? []) workerCounts[state] = (workerCounts[state] ?? 0) + 1;
      tones.set(e.cursor, resultOf({ state: "COMPLETED", workerCounts }).tone);
      newest.delete(key);
    } else if (e.kind.startsWith("WORKER_")) {
      const workers = newest.get(key) ?? new Map<number, { number: number; state: string }>();
      newest.set(key, workers);
      for (const w of e.workers ?? []) {
        if (w.number >= (workers.get(w.index)?.number ?? 0)) workers.set(w.index, { number: w.number, state: e.kind.slice("WORKER_".length) });
      }
    }
  }
  return tones;
}
