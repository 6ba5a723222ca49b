import { pages, query } from "./call";

// about has the kinds of findings, each with what its object is.
export const about: Record<string, "reservation" | "executor" | "worker" | "index" | "pool" | "service" | "record"> = {
  HEAD_WAITS: "reservation", GAVE_UP: "reservation", INCOMPLETE_GANG: "reservation", HOLD_OLD: "reservation", CRASH_LOOP: "reservation",
  REGISTRY_NOT_READY: "service", MASS_LOSS: "pool", OVERCOMMITTED: "executor", LOST_WITH_WORKERS: "executor",
  DUPLICATE_AGENT: "executor", FAILS_STARTS: "executor", VOLUME_AWAY: "index", VOLUME_LOST: "index",
  VOLUME_MISPLACED: "executor", VOLUME_UNKNOWN: "executor", VOLUME_STUCK: "index", OFFER_SILENT: "executor",
  NOT_ACKNOWLEDGED: "worker", NOT_RUNNING: "worker", QUARANTINED: "worker", ORPHANED_WORKER: "worker",
  REFUSES_LEADER: "executor", POISON: "record", PEER_PANIC: "record", SERVICE_UNAVAILABLE: "service",
  GATEWAY_NOT_READY: "record", OTHER_ETCD: "record", REPLICA_CUT_OFF: "record",
};

// objectPage returns the view of the object of a finding. The search finds an object whose kind
// the page does not know. A record, a gateway and a replica have no view, so they have no link. The object "findings" stands for
// the findings of a kind that the service does not list.
export function objectPage({ kind, object }: { kind: string; object: string }): string | undefined {
  if (object === "findings") return pages.findings(kind);
  switch (about[kind]) {
    case "reservation": {
      const [job, stage, name] = object.split("/");
      return name ? pages.reservation(job!, stage!, name) : pages.search(object);
    }
    case "executor":
      return pages.executor(object);
    case "pool":
      return object === "executors" ? "/executors" : query("/executors", { pool: object });
    case "service":
      return query("/", { at: object });
    case "record":
      return undefined;
    default:
      return pages.search(object);
  }
}
