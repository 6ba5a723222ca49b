// Package bench is `berth bench`: named workloads against a real Berth, each compared
// with a baseline of the same run.
//
//	workload ──▶ Run ──▶ World: etcd, services, gateway, simulated executors,
//	                │           each a process of its own, or a cluster named
//	                │           with --gateway
//	                ├── callers, paced ──▶ gateway      the load
//	                ├── puts ────────────▶ etcd         the baseline
//	                ├── tail ◀──────────── etcd         when a change became visible
//	                ├── processor time of each kind of process, /proc
//	                └── audit of every revision that the workload wrote
//	                         │
//	                      Report ──▶ tables, JSON, and from that (berth bench docs)
//	                                 Markdown and plots
//
// It promises:
//
//   - A figure and its baseline were measured on the same machine and in the same run,
//     moments apart. Their ratio is meaningful even on a noisy machine.
//   - A duration ends when a watch of etcd delivers the change, not when a poll
//     finds it.
//   - The costs of the load, of each service and of other processes on the machine are
//     reported separately.
//   - Executors without work and reservations that stay queued may be seeded: the bench
//     writes them to etcd before the services start. The audit begins after them.
//   - If the history breaks a promise of Berth, the command fails. A missed target does
//     not fail it, because targets depend on the machine.
//
// A workload is one file: a [Workload] with a name, a description, and a function that
// adds figures to a [Run]. Its entry is in [Workloads].
package bench
