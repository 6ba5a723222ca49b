// Package agent is the library of executor agents: it makes a host known to
// Berth, keeps it present, and starts and stops workers as the assigner orders.
//
//	Agent ──── Register, Heartbeat (with reports) ──▶ gateway ──▶ executor-state
//	  │   ◀─── SubmitTask, StopTask ──────────────── gateway ◀── assigner
//	  │
//	  ├── ledger    which orders are taken, what is reported       (pure)
//	  ├── journal   the tombstones, on disk
//	  └── Driver    Process: real processes, each under a keeper
//	                Functions: functions of the program that runs the agent
//	                Simulated: none at all
//
// # What it promises
//
// A worker is known by its name (job, stage, index, number) and its epoch. One
// (worker, epoch) is started once, however often it is ordered. A stop that is
// confirmed (answered or reported with an end) is a promise: the process is
// gone, and that (worker, epoch) is refused from then on, also after a restart
// of the agent. An order of a lower term, of another incarnation or of a lower
// epoch is refused.
//
// An end is written to the journal before it is told, and told again until the
// control plane answers that it is durable there. Reports and answers to orders
// share one rising sequence, so that a report proves the absence of those
// workers only that were acknowledged before it.
//
// Workers outlive their agent. Each process runs under a keeper: the agent's
// own binary, started again (see ShimMain), in a session of its own. A new agent
// on the same directory adopts what runs, and learns what ended meanwhile, with
// its exit code. Keepers pay no heed to signals; where a service manager ends all
// processes of a service at once, tell it to end the agent alone (systemd:
// KillMode=process).
//
// # What is kept, and for how long
//
// A tombstone is kept while it is younger than Config.TombstoneAge (24 hours
// unless given) and, beyond that, while it is among the newest 1,024. One
// tombstone a worker name is enough: it stands for every lower epoch too. Orders
// also carry term and incarnation, so that a tombstone only has to outlive the
// repeats of orders by one and the same control plane, which end with their
// deadlines, seconds later.
//
// The package is for Linux: adoption and the death of whole process groups rest
// on named pipes, process groups and /proc as Linux has them.
package agent
