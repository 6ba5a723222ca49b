// Package play plays one set of scenarios in two worlds: in the simulator, with
// its own clock and a store in memory (package integration/sim), and on real
// processes with real etcd, real agents and real programs (package
// cmd/berth/fleet). What came of them has to be the same, word for word.
//
//	testdata/registry/04_wakeups.txt ─▶ Play ─▶ Cluster ┬▶ Simulated ─▶ sim.Stage
//	     (text, story in comments)      commands        └▶ Processes ─▶ fleet.Fleet
//
// # Files
//
// A file under testdata shows a promise of the product: its folder is the
// service that promises, its number that of the promise; what the gateway puts
// together has none. Lines with # tell the story. Any other line is a command;
// what came of it stands below `----`, up to the next empty line. `go test -run
// TestSimulated -rewrite` writes the files anew; then TestProcesses says whether
// the real thing agrees.
//
// A file is a cluster of its own. It ends with a wait until nothing is in flight
// and with the audit of all that was ever stored.
//
// # Commands
//
// A command is what a job service, an operator or a fault does. Everything goes
// through the public API. Words are bare or NAME=VALUE; reservations are named
// job/stage or job/stage/name, workers by ID: 0-7.1 is indexes 0 to 7, each
// with number 1.
//
//	cluster NAME=VALUE...                         first line only; see Options
//	executors N, executor ID  slots= cpu= sku= zone= reserved=ROLE:NAME=N allow=...
//	upsert KEY  count= | workers=  slots= zone= role= timeout= grace= ...
//	            stubborn=yes                      they do not end for being told to
//	cancel KEY, cancel-job JOB, cancel-workers JOB/STAGE WORKERS
//	flush JOB, flush group of KEY, mark-ready
//	get KEY, list JOB, pending, hosts, workers JOB, explain KEY
//	findings [[no] KIND...]                       once there is each of them, or none
//	usage [SKU] NAME=...                          once it is as named
//	unmapped [NAME=...]                           once it has all that is named
//	idle SKU
//	await KEY  STATE... | reason= position= RUNNING= ...
//	await ID STATE  workers= slots=2/4 ...        an executor
//	finish JOB/STAGE WORKERS exit=                  the workers' programs end
//	events JOB until STAGE KIND STAGE/NAME KIND:N the stream up to all of these
//	order KIND JOB until ...                      the same, one kind in its order
//	disable ID... | zone=  for= request=, enable REQUEST, drain ID
//	clear ID                                      the quarantine of all that are being stopped there
//	gone JOB                                      all but what is kept to be read
//	claim SKU max= request=
//	pool NAME  zone= lostAfter=, sku NAME  slots= cpu= minIdle= maxSize= ...
//	kill leader SERVICE, restart SERVICE
//	kill agent ID..., wipe ID, restart agent ID
//	freeze agent ID, thaw agent ID                it does nothing meanwhile
//	restart agent ID as ID  slots= zone= sku= ... its host as it is now, with its old disk
//	copy ID                                       another agent of the id, elsewhere: it is refused
//	wait DURATION
//
// # The same in both worlds
//
// Nothing is printed that one world decides by itself: no uid, epoch, time,
// address or number of a term; no state that is only passed through, so what is
// a candidate of a cycle in flight (LEASING) is read once more. A command waits for nothing but its
// own answer, so a file awaits what the next line needs. What is awaited holds
// from then on, or the file is wrong. `wait` is for promises that are about time,
// and for nothing else. A file that waits for many minutes says so (`cluster
// long=yes`): real processes play it only where BERTH_PLAY_LONG is set.
package play
