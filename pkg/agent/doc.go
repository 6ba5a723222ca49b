// Package agent starts each worker at most once on its host, and reports a worker as
// ended only after its process has exited. It is the library for executor agents. An
// agent registers a host with Berth, sends heartbeats for it, and starts and stops
// workers when the assigner requests it.
//
//	Agent ──── Register, Heartbeat (with reports) ──▶ gateway ──▶ executor-state
//	  │   ───── ListMembers (of gangs) ─────────────▶ gateway ──▶ assigner
//	  │   ◀─── SubmitTask, StopTask, DropVolumes ─── gateway ◀── assigner
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
// (worker, epoch) at most once, however often it receives the start request. When the
// agent confirms a stop, in an answer or by reporting an end, the process has exited.
// From then on the agent refuses to start that (worker, epoch), also after a restart of
// the agent. The agent refuses requests of a lower term, of another incarnation or of a
// lower epoch.
//
// The agent writes the end of a worker to the journal before it reports the end. It
// repeats the report until the control plane answers that it has stored the end durably.
// Reports and answers to requests are numbered in one increasing sequence. Therefore a
// report proves the absence of only those workers that were acknowledged before it.
//
// Workers outlive their agent. Each process runs under a keeper: the agent's own binary
// in a session of its own (see ShimMain). A new agent on the same directory adopts the
// running workers and reads the exit codes of the workers that ended in the meantime.
// Keepers ignore SIGTERM, SIGINT and SIGHUP. If a service manager kills all processes of
// a service at once, configure it to stop only the agent (systemd: KillMode=process).
//
// # Gangs
//
// A worker of a gang has the members of the gang in a file: before it starts, and each time
// that they change. The agent fetches them from the assigner, once for all workers of a gang
// that it has, and follows them with one call that waits for a change (see gangs.go). A start
// that waits for them holds up no other start.
//
// # Volumes
//
// A volume is the directory volumes/{id} below Config.Dir. It outlives its workers.
//
//   - The agent makes a volume only for a start request with create. Without create and without
//     the directory it refuses the worker, so that a worker never starts on an empty directory
//     by mistake. The directory is durable before the worker starts.
//   - At most one worker that has not ended is on a volume, also after a restart of the agent.
//   - The agent sends the whole list of its volumes in the first message of each stream, and
//     when it has changed, before it reports that a worker on a new volume runs. It reads
//     volumes/ once, when it starts. If it cannot read volumes/, it does not start, because an
//     empty list would prove that all volumes are lost.
//   - The agent destroys a volume only for DropVolumes, and not while a worker that has not
//     ended is on it. It makes a tombstone durable, and then removes the directory, which may
//     take long. From the tombstone on it refuses workers on the volume. Once the directory is
//     removed, the agent lists the volume as gone until a list with it was received. If the
//     agent exits, the next one continues.
//   - The agent lists other directories and files in volumes/ if their names are IDs, and
//     removes none of them by itself. It follows no symbolic link in volumes/.
//
// A [Simulated] executor has volumes only in memory, until its process ends.
//
// # Retention
//
// The agent keeps a tombstone until it is older than Config.TombstoneAge (24 hours by
// default) and not among the newest 1,024. One tombstone for each worker name is enough,
// because a tombstone also covers every lower epoch. Requests also carry a term and an
// incarnation. Therefore a tombstone only has to outlive the retries of one control
// plane. These retries stop after seconds, at the deadline of the call.
//
// The tombstones of volumes are in the same file and count like the others. If one is
// dropped before the control plane has received the confirmation, the control plane repeats
// DropVolumes.
//
// The package requires Linux: adoption, and killing all processes of a worker, rely on
// named pipes, process groups and /proc.
package agent
