// Package bench measures named workloads against a real Berth cluster and compares each
// figure with a baseline from the same machine and the same run. It is `berth bench`.
//
//	workload ──▶ Run ──▶ World: etcd, services, gateway, simulated executors,
//	                │           each a separate process, or a cluster named
//	                │           with --gateway
//	                ├── callers, paced ──▶ gateway      the load
//	                ├── puts ────────────▶ etcd         the baseline
//	                ├── tail ◀──────────── etcd         when a change became visible
//	                ├── processor time of each kind of process, /proc
//	                └── audit of every revision that the workload wrote
//	                         │
//	                      Report ──▶ tables, JSON; `berth bench docs` writes
//	                                 Markdown and plots from the JSON
//
// It promises:
//
//   - A figure and its baseline were measured on the same machine and in the same run,
//     moments apart. Their ratio is meaningful even on a noisy machine.
//   - A duration ends when a watch of etcd delivers the change, not when a poll
//     finds it.
//   - The costs of the load, of each service and of other processes on the machine are
//     reported separately.
//   - If the audit finds a violation, the command fails. A missed target does not fail the
//     command, because targets depend on the machine.
//
// The bench may seed executors without work and reservations that stay queued: it writes
// their records to etcd before the services start. The audit begins after these records.
//
// Each workload is in one file, which declares a [Workload] with a name, a description, and
// a function that adds figures to a [Run]. [Workloads] lists all workloads.
package bench
