// Package play runs played files in two worlds: in the simulator with a simulated clock and
// a store in memory (package integration/sim), and on real processes with real etcd, real
// agents and real programs (package cmd/berth/fleet). The output must be the same, word for
// word.
//
//	testdata/registry/04_wakeups.txt ─▶ Play ─▶ Cluster ┬▶ Simulated ─▶ sim.Stage
//	     (text, story in comments)      commands        └▶ Processes ─▶ fleet.Fleet
//
// # Files
//
// A file under testdata shows a promise of the product: its folder is the service, its
// number that of the promise. Files of the gateway have no number. Lines with # explain the
// file. Any other line is a command; its output follows `----`, up to the next empty line.
// `go test -run TestSimulated -rewrite` writes the files; TestProcesses checks that real
// processes have the same output.
//
// Each file has a cluster of its own. It ends with a wait until nothing is in flight, and
// with an audit of the whole history.
//
// # Commands
//
// A command is an action of a job service or an operator, or a fault. Everything uses the
// public API. Words are bare or NAME=VALUE. Reservations are named job/stage or
// job/stage/name, workers by ID: 0-7.1 is the indexes 0 to 7, each with number 1.
//
//	cluster NAME=VALUE...                         first line only; see Options
//	executors N, executor ID  slots= cpu= sku= zone= reserved=ROLE:NAME=N allow=...
//	upsert KEY  count= | workers=  slots= zone= role= timeout= grace= ...
//	            stubborn=yes                      they ignore SIGTERM
//	cancel KEY, cancel-job JOB, cancel-workers JOB/STAGE WORKERS
//	flush JOB, flush group of KEY, mark-ready
//	get KEY, list JOB, pending, hosts, workers JOB, explain KEY
//	findings [[no] KIND...]                       waits until there is each of them, or none
//	usage [SKU] NAME=...                          waits until it has these values
//	unmapped [NAME=...]                           waits until it has all of these
//	idle SKU
//	await KEY  STATE... | reason= position= RUNNING= ...
//	await ID STATE  workers= slots=2/4 ...        an executor
//	finish JOB/STAGE WORKERS exit=                  the workers' programs end
//	events JOB until STAGE KIND STAGE/NAME KIND:N the stream up to all of these
//	order KIND JOB until ...                      the same, one kind in its order
//	disable ID... | zone=  for= request=, enable REQUEST, drain ID
//	clear ID                                      confirms that its quarantined workers have ended
//	remaining JOB                                 waits until only kept records are left, and shows them
//	claim SKU max= request=
//	pool NAME  zone= lostAfter=, sku NAME  slots= cpu= minIdle= maxSize= ...
//	kill leader SERVICE, restart SERVICE
//	kill agent ID..., wipe ID, restart agent ID
//	freeze agent ID, thaw agent ID                its process is stopped meanwhile
//	restart agent ID as ID  slots= zone= sku= ... its host with another description and its old disk
//	copy ID                                       another agent with the ID, which is rejected
//	wait DURATION
//
// # The same in both worlds
//
// The output has nothing that differs between the worlds: no uid, epoch, time, address or
// term, and no transient state: a candidate of a cycle in flight (LEASING) is read again. A
// command waits only for its own answer, so that a file must await what the next line
// needs. An awaited state must be permanent. `wait` is only for promises about time. A file
// that takes many minutes says so (`cluster long=yes`): real processes play it only if
// BERTH_PLAY_LONG is set.
package play
