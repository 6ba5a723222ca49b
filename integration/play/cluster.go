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

// Cluster is the Berth cluster on which a file runs. It is a connection for calls to the
// public services.
type Cluster interface {
	grpc.ClientConnInterface

	// Follow calls enough with the events of a job, in the order of the stream from the
	// first event on, until enough returns true.
	Follow(job string, enough func(*berthv1.Event) bool) error
	// Until runs the cluster until a condition holds. It returns an error if the
	// condition does not hold within a reasonable time.
	Until(holds func() bool) error
	// Now returns the time of the cluster's clock.
	Now() time.Time
	// Wait lets time pass.
	Wait(d time.Duration) error

	// StartExecutor starts a host's agent.
	StartExecutor(Executor) error
	// KillAgent ends an agent, as kill -9 does. The agent's workers keep running.
	KillAgent(id string) error
	RestartAgent(id string) error
	// FreezeAgent suspends an agent until ThawAgent is called. The agent's workers keep
	// running.
	FreezeAgent(id string) error
	ThawAgent(id string) error
	// AnswerAgent makes the agent of a silent host answer requests.
	AnswerAgent(id string) error
	// RestartAgentAs starts a killed agent with its old disk, a new description, and
	// possibly another ID.
	RestartAgentAs(id string, now Executor) error
	// StartCopy starts another agent with an existing ID on another host.
	StartCopy(Executor) error
	// Wipe ends all workers on the host of a killed agent and deletes its disk, except for
	// the agent's secret.
	Wipe(id string) error
	// WipeVolumes deletes the volumes of a killed agent's host.
	WipeVolumes(id string) error
	// AddVolume makes a directory among the volumes of an agent's host.
	AddVolume(id, name string) error
	// HasVolume reports whether a host has the directory of a volume.
	HasVolume(id, volume string) bool
	// Written returns which workers have written to a volume on a host, in order.
	Written(id, volume string) ([]string, error)
	// KillLeader ends the process of a service's leader, as kill -9 does.
	KillLeader(service string) error
	// Restart starts the killed process of a service.
	Restart(service string) error
	// Finish makes the running program of a worker end.
	Finish(worker model.Worker, code int32) error
	// Ready makes the running program of a worker report that it is ready.
	Ready(worker model.Worker) error
	// Timely reports whether the limits of time of a file apply.
	Timely() bool

	// Store returns the store and the key space of the cluster.
	Store() (store.Store, keyspace.Space)
	// Programs returns the number of running worker programs on all hosts.
	Programs() (int, error)

	// Rest waits until nothing is in flight and audits the whole history.
	Rest() error
	// Close stops all processes. It returns an error if processes are left over.
	Close() error
}

// Options configure the cluster of a file.
type Options struct {
	// Replicas is the number of replicas of each service. The default is 1, which starts
	// fastest.
	Replicas int
	// Readiness is the readiness mode of the registry: auto (the default) or signal.
	Readiness string
	// Legacy is set if batches without a start mode start worker by worker, as they fit.
	Legacy bool
	// Defaults is a default attribute of the registry, NAME=VALUE.
	Defaults string
	// Long is set if the file takes many minutes.
	Long bool
	// Timely is set if the limits of time of a file apply to real processes. They always apply
	// to simulated ones.
	Timely bool
}

// Executor describes a host.
type Executor struct {
	ID, SKU   string
	Resources resource.Vector
	// Reserved has the shares of the resources that are reserved, by role.
	Reserved   map[string]resource.Vector
	Attributes map[string]string
	Generation int64
	// Allow lists the paths of the commands that the agent starts; default every command.
	Allow []string
	// Silent is set if the agent sends heartbeats, and answers no request until AnswerAgent. No
	// connection to it can be made, unless Connects is set.
	Silent, Connects bool
	// Starts is the number of workers that it starts at the same time; default that of the
	// agent. Simulated hosts have no limit.
	Starts int
}

// program is the default program of workers: a shell that reads lines from a pipe: its exit
// code, or that it is ready. The pipe is in the working directory and has the worker's name.
// The program first deletes a pipe that a lost worker with the same name has left. It opens
// the pipe once, so that it loses no line. A program on a volume first writes the ID of its
// worker to the file written.
const program = `[ -z "$BERTH_VOLUME" ] || echo $BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER >>"$BERTH_VOLUME/written"; ` +
	`p=$BERTH_JOB.$BERTH_STAGE.$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER; rm -f "$p"; mkfifo "$p"; exec 3<>"$p"; ` +
	`while read line <&3; do [ "$line" = ` + ready + ` ] || exit "$line"; echo >"$BERTH_READY_PIPE"; done`

// ready is the line that makes a program report that it is ready.
const ready = "ready"

// stubborn is a program that ignores SIGTERM. The simulator recognizes the program by
// this text.
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
