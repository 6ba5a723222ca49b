package play

import (
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/integration/sim"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
)

// Cluster is a Berth to play on. Its connection carries the calls of the public
// services.
type Cluster interface {
	grpc.ClientConnInterface

	// Follow gives the events of a job in the order of their stream, from the
	// first, until enough says so.
	Follow(job string, enough func(*berthv1.Event) bool) error
	// Until lets the cluster go on until something holds. The error says that it
	// did not in any reasonable time.
	Until(holds func() bool) error
	// Now is the time of the cluster's clock.
	Now() time.Time
	// Wait lets time pass.
	Wait(d time.Duration) error

	// StartExecutor starts a host's agent.
	StartExecutor(Executor) error
	// KillAgent ends an agent as kill -9 does; its workers run on.
	KillAgent(id string) error
	RestartAgent(id string) error
	// FreezeAgent has an agent do nothing, without an end to it, until it is thawed;
	// its workers run on.
	FreezeAgent(id string) error
	ThawAgent(id string) error
	// RestartAgentAs starts an agent that was killed on the disk that it had, as is
	// now described: under another id perhaps.
	RestartAgentAs(id string, now Executor) error
	// StartCopy starts another agent of an id that has one, on a host of its own.
	StartCopy(Executor) error
	// Wipe ends all that runs on the host of an agent that was killed, and takes
	// its disk away, but for its secret.
	Wipe(id string) error
	// KillLeader ends the process that leads a service as kill -9 does.
	KillLeader(service string) error
	// Restart starts the process of a service that was killed.
	Restart(service string) error
	// Finish lets the program of a worker that runs end by itself.
	Finish(worker model.Worker, code int32) error

	// Store is where everything is kept, and the keys it is kept under.
	Store() (store.Store, keyspace.Space)
	// Programs counts the programs of workers that run, on whichever host.
	Programs() (int, error)

	// Rest waits until nothing is in flight, and audits all that was ever stored.
	Rest() error
	// Close ends everything. What it finds left is an error.
	Close() error
}

// Options are what a file's cluster is configured with.
type Options struct {
	// Replicas of each service: 1 unless given, which is quicker to start.
	Replicas int
	// Readiness of the registry: auto unless given, or signal.
	Readiness string
	// Legacy mode: batches of requests that do not say start as they fit.
	Legacy bool
	// Long: what the file shows takes many minutes.
	Long bool
}

// Executor describes a host.
type Executor struct {
	ID, SKU   string
	Resources resource.Vector
	// Reserved is what of them is set aside, by role.
	Reserved   map[string]resource.Vector
	Attributes map[string]string
	Generation int64
	// Allow lists the commands that its agent starts; every command unless given.
	Allow []string
}

// program is what workers run unless a file says otherwise: a shell that waits
// for the code to end with, in a pipe of the worker's name in its directory. One of
// that name that was given up may have left its own.
const program = `p=$BERTH_JOB.$BERTH_STAGE.$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER; rm -f "$p"; mkfifo "$p"; read code <"$p"; exit "$code"`

// stubborn makes it one that does not end for being told to. The simulator knows
// it by this.
const stubborn = sim.Stubborn + "; " + program

func task(command string, stays bool) *berthv1.Task {
	switch {
	case command != "":
		return &berthv1.Task{Command: command}
	case stays:
		return &berthv1.Task{Command: "sh", Args: []string{"-ec", stubborn}}
	}
	return &berthv1.Task{Command: "sh", Args: []string{"-ec", program}}
}
