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

// Cluster is a Berth that a file runs on. It is a connection for calls of the public
// services.
type Cluster interface {
	grpc.ClientConnInterface

	// Follow calls enough with the events of a job in the order of their stream, from the
	// first one, until it returns true.
	Follow(job string, enough func(*berthv1.Event) bool) error
	// Until runs the cluster until a condition holds. The error means that it does not
	// within a reasonable time.
	Until(holds func() bool) error
	// Now returns the time of the cluster's clock.
	Now() time.Time
	// Wait lets time pass.
	Wait(d time.Duration) error

	// StartExecutor starts a host's agent.
	StartExecutor(Executor) error
	// KillAgent ends an agent like kill -9; its workers keep running.
	KillAgent(id string) error
	RestartAgent(id string) error
	// FreezeAgent stops an agent without an end until it is thawed; its workers keep
	// running.
	FreezeAgent(id string) error
	ThawAgent(id string) error
	// RestartAgentAs starts a killed agent with a new description, and possibly another ID,
	// on its old disk.
	RestartAgentAs(id string, now Executor) error
	// StartCopy starts another agent with an existing ID, on a host of its own.
	StartCopy(Executor) error
	// Wipe ends all workers on the host of a killed agent and deletes its disk, except for
	// the agent's secret.
	Wipe(id string) error
	// KillLeader ends the process of a service's leader like kill -9.
	KillLeader(service string) error
	// Restart starts the killed process of a service.
	Restart(service string) error
	// Finish makes the running program of a worker end.
	Finish(worker model.Worker, code int32) error

	// Store returns the store and the key space of the cluster.
	Store() (store.Store, keyspace.Space)
	// Programs returns the number of running worker programs on all hosts.
	Programs() (int, error)

	// Rest waits until nothing is in flight and audits the whole history.
	Rest() error
	// Close ends everything. Leftover processes are an error.
	Close() error
}

// Options configure the cluster of a file.
type Options struct {
	// Replicas of each service; default 1, which starts faster.
	Replicas int
	// Readiness of the registry: auto (the default) or signal.
	Readiness string
	// Legacy mode: batches of requests without a start mode start as they fit.
	Legacy bool
	// Long is set if the file takes many minutes.
	Long bool
}

// Executor describes a host.
type Executor struct {
	ID, SKU   string
	Resources resource.Vector
	// Reserved are shares of the resources, by role.
	Reserved   map[string]resource.Vector
	Attributes map[string]string
	Generation int64
	// Allow lists the commands that its agent starts; default every command.
	Allow []string
}

// program is the default program of workers: a shell that reads its exit code from a pipe
// with the worker's name in its directory. A lost worker with the same name may have left
// its pipe.
const program = `p=$BERTH_JOB.$BERTH_STAGE.$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER; rm -f "$p"; mkfifo "$p"; read code <"$p"; exit "$code"`

// stubborn ignores SIGTERM. The simulator recognizes it by this text.
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
