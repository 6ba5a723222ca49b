// Package play proves that the simulator and real processes behave in the same way. It
// runs each file of commands in both worlds, and the output must be the same, word for
// word. The simulated world has a simulated clock and a store in memory (package
// integration/sim). The real world has real etcd, real agents and real programs (package
// cmd/berth/fleet).
//
//	testdata/registry/04_wakeups.txt ─▶ Play ─▶ Cluster ┬▶ Simulated ─▶ sim.Stage
//	     (text, story in comments)      commands        └▶ Processes ─▶ fleet.Fleet
//
// # Files
//
// A file under testdata shows a promise of the product. Its folder names the service, and
// its number is the number of the promise. Files of the gateway have no number. In the
// folders lifetimes, volumes and holds, the number is that of the acceptance check, if any. Lines with # explain the
// file. Every other line is a command. The output of a command follows `----`, up to the
// next empty line. `go test -run TestSimulated -rewrite` writes the files; TestProcesses
// checks that real processes have the same output.
//
// Each file runs on a separate cluster. At the end, the player waits until nothing is in
// flight and audits the whole history.
//
// # Commands
//
// A command is an action of a job service or an operator, or a fault. Actions use the
// public API. Words are bare or NAME=VALUE. A reservation is named job/stage or
// job/stage/name. Workers are named by ID: 0-7.1 means the indexes 0 to 7, each with the
// number 1.
//
//	cluster NAME=VALUE...                         first line only; see Options
//	executors N, executor ID  slots= cpu= sku= zone= reserved=ROLE:NAME=N starts= allow=/PATH,...
//	            silent=yes|connects               the agent sends heartbeats and answers no request; yes means
//	                                              that no connection can be made
//	upsert KEY  count= | workers=  slots= zone= role= timeout= grace= stopSignal= ...
//	            stubborn=yes                      the workers ignore SIGTERM
//	            env=NAME=VALUE                    a variable of the task; no agent allows those that load code
//	            expire= notBefore=                times, as durations from now
//	            lifetime=FOR:FROM restart= onLoss= restarts= requeue= shrink= startTimeout=
//	            readiness=
//	            hold=DURATION|default             held until a bind
//	bind KEY  task=yes request=                   binds a held reservation; task=yes replaces its task
//	resend KEY                                    sends the answer to a read back
//	cancel KEY, cancel-job JOB, cancel-workers JOB/STAGE WORKERS  grace=
//	flush JOB, flush group of KEY, mark-ready
//	get KEY, list JOB, jobs, pending, hosts, workers JOB, explain KEY
//	findings [[no] KIND...]                       waits until there is a finding of each kind, or of none
//	usage [SKU] NAME=...                          waits until the usage has these values
//	unmapped [NAME=...]                           waits until a line has all these values
//	idle SKU
//	await KEY  STATE... | reason= position= RUNNING= ...
//	await ID STATE  workers= slots=2/4 skipped=yes ...
//	                                              an executor
//	finish JOB/STAGE WORKERS exit=                the workers' programs end
//	ready JOB/STAGE WORKERS                       the workers' programs report that they are ready
//	events JOB until STAGE KIND STAGE/NAME KIND:N the stream until all these events occurred
//	order KIND JOB until ...                      the events of one kind, in the order of the stream
//	disable ID... | zone=  for= request=, enable REQUEST, drain ID grace=
//	clear ID                                      declares the quarantined workers of an executor dead
//	gone JOB                                      waits until only readable records are left
//	claim SKU max= request=
//	pool NAME  zone= lostAfter=, sku NAME  slots= minIdle= maxSize= cooldown= hold= ...
//	kill leader SERVICE, restart SERVICE
//	kill agent ID..., wipe ID, restart agent ID
//	freeze agent ID, thaw agent ID                suspends and resumes the agent's process
//	answer agent ID                               the agent of a silent host answers requests from now on
//	restart agent ID as ID  slots= zone= sku= ... the host has a new description and its old disk
//	copy ID                                       starts another agent with the ID, which is rejected
//	upsert KEY  room= volume=room volumeLoss= keep=
//	                                              each worker index has a volume
//	volumes JOB [INDEX=STATE,...|none...]         waits for volumes in exactly these states
//	written JOB INDEX workers=N                   the workers that have written to a volume, at least N
//	delete-volumes JOB [INDEX...], abandon JOB INDEX...
//	delete-unknown EXECUTOR VOLUME                a volume that no record names
//	wipe-volumes ID, add-volume ID NAME, has-volume ID NAME [no=yes]
//	wait DURATION
//	within DURATION COMMAND...                    the command takes no longer
//	elapsed JOB/STAGE from=KIND:WORKER to=KIND:WORKER least= most=
//	                                              the time between two events of workers
//
// # The same output in both worlds
//
// The output contains nothing that differs between the worlds: no uid, epoch, time,
// address or term. It also contains no transient state: while a reservation is a
// candidate in a cycle in flight (LEASING), the player reads the reservation again. A
// command waits only for its own answer, so a file must await the state that the next
// command needs. An awaited state must be permanent. Limits of time always apply in the
// simulator; for real processes only with -acceptance. Use `wait` only for promises about
// time. Mark a file that takes many minutes with `cluster long=yes`. Real processes play
// such a file only if BERTH_PLAY_LONG is set.
package play
