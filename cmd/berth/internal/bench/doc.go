// Package bench is `berth bench`: named workloads against a real Berth, each
// beside a baseline measured in the same run.
//
//	workload ──▶ Run ──▶ World: etcd, services, gateway, simulated executors,
//	                │           each a process of its own, or a cluster named
//	                │           with --gateway
//	                ├── callers, paced ──▶ gateway      the load
//	                ├── puts ────────────▶ etcd         the baseline
//	                ├── tail ◀──────────── etcd         when what was asked for became so
//	                ├── processor time of each kind of process, /proc
//	                └── audit of every revision that the workload wrote
//	                         │
//	                      Report ──▶ tables, JSON, and from that (berth bench docs)
//	                                 Markdown and plots
//
// It promises:
//
//   - A figure that names a baseline was measured on the same machine, in the
//     same run, a moment apart; the ratio of the two outlives a noisy machine.
//   - A duration ends when the change it waits for is seen in etcd, by a watch
//     that every world has, and not when somebody polls.
//   - What the load costs and what each service costs are told apart, and so is
//     what other processes took of the machine meanwhile.
//   - Executors that are only looked at, and give nobody work, and reservations that
//     only wait, may be seeded: they are in etcd before the services start, and the
//     audit begins behind them.
//   - A history that broke a promise of Berth makes the command fail, whatever
//     the figures. A target that was missed is shown, and fails nothing: it
//     depends on the machine.
//
// A workload is one file: a [Workload] with a name, what it shows and a function
// that adds figures to a [Run], and its line in the list of workloads.
package bench
