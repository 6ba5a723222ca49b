// Package agent is the library for executor agents. An agent registers a host with
// Berth, sends heartbeats for it, and starts and stops workers on the requests of the
// assigner.
//
//	Agent ──── Register, Heartbeat (with reports) ──▶ gateway ──▶ executor-state
//	  │   ◀─── SubmitTask, StopTask ──────────────── gateway ◀── assigner
//	  │
//	  ├── ledger    which requests are accepted, what is reported   (pure)
//	  ├── journal   the tombstones, on disk
//	  └── Driver    Process: processes, each under a keeper
//	                Functions: functions of the program that runs the agent
//	                Simulated: no workers at all
//
// # Promises
//
// A worker has a name (job, stage, index, number) and an epoch. The agent starts each
// (worker, epoch) at most once, however often it receives the start request. If it
// confirms a stop, in an answer or by reporting an end, the process has exited. From
// then on it refuses to start that (worker, epoch), also after the agent restarts. It
// refuses requests of a lower term, of another incarnation or of a lower epoch.
//
// The agent writes an end to the journal before it reports it, and repeats the report
// until the control plane answers that the end is durable there. Reports and answers to
// requests share one rising sequence. Therefore a report proves the absence of only
// those workers that were acknowledged before it.
//
// Workers outlive their agent. Each process runs under a keeper: the agent's own binary
// in a session of its own (see ShimMain). A new agent on the same directory adopts the
// running workers and reads the exit codes of those that ended in the meantime. Keepers
// ignore SIGTERM, SIGINT and SIGHUP. If a service manager kills all processes of a
// service at once, configure it to stop only the agent (systemd: KillMode=process).
//
// # Retention
//
// The agent keeps a tombstone until it is older than Config.TombstoneAge (24 hours by
// default) and not among the newest 1,024. One tombstone for each worker name is
// enough, since it covers every lower epoch too. Requests also carry a term and an
// incarnation. Therefore a tombstone only has to outlive the retries of one control
// plane, which stop seconds later at their deadlines.
//
// The package requires Linux: adoption, and killing all processes of a worker, rely on
// named pipes, process groups and /proc.
package agent
