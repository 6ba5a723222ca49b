package internal

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/internal/liveness"
	"berth.dev/services/executor-state/inventory"
)

// Heartbeats of executors.
const (
	// PresenceTTL is the TTL of an executor's etcd lease.
	PresenceTTL = 15 * time.Second
	// HeartbeatEvery is how often agents are told to send one.
	HeartbeatEvery = PresenceTTL / 3

	// renewEvery is how long a renewal stands for the beats behind it: an agent
	// with much to report beats far more often than presence needs. Two beats in
	// time and this long are still well within the TTL.
	renewEvery = PresenceTTL / 5

	// judgeTimeout is how long presence waits for what the assigner says of the
	// workers that an executor comes with. Then it is announced with strays, which
	// gives it no work.
	judgeTimeout = time.Second
	// judgeAgain is how long an executor may have strays, and no answer of a leader
	// that was told everything, before its stream is ended, for the next one begins
	// with a complete report: its agent may be one that does not know how to be asked.
	judgeAgain = PresenceTTL

	// admitPause is how long a session waits at first for this replica to see the
	// registration of its agent.
	admitPause = 20 * time.Millisecond

	beatTimeout = 5 * time.Second
	peekTimeout = 500 * time.Millisecond
)

// Heartbeats is control.v1.Heartbeats, on leader and standbys alike: a live
// stream keeps the executor's etcd lease, and only a presence that is not there
// yet is asked of the leader. However often an agent beats, its etcd lease is
// renewed once in renewEvery. Beats that come together are kept together: they
// share a look at the core and a word with etcd.
type Heartbeats struct {
	controlv1.UnimplementedHeartbeatsServer
	loop    *loop.Loop[*inventory.Core]
	store   store.Store
	renewer renewer
	reports *Reports
	gone    *Departures
	leader  controlv1.AgentsClient
	log     *slog.Logger
	peeks   gate
	// newcomers are the executors that are being made present.
	newcomers gate
	due       *due
	pulse     pulse
	crowd     crowd
	// decoding has one element while a large request is decoded.
	decoding chan struct{}
}

// renewer makes etcd leases last for another TTL, and answers what became of each;
// *liveness.Renewer is the real one.
type renewer interface {
	Renew(ctx context.Context, leases []int64) []error
}

// NewHeartbeats puts the parts together; Run runs them.
func NewHeartbeats(l *loop.Loop[*inventory.Core], s store.Store, renewer *liveness.Renewer, reports *Reports, gone *Departures, gateway grpc.ClientConnInterface, log *slog.Logger) *Heartbeats {
	return newHeartbeats(l, s, renewer, reports, gone, controlv1.NewAgentsClient(gateway), log)
}

func newHeartbeats(l *loop.Loop[*inventory.Core], s store.Store, renewer renewer, reports *Reports, gone *Departures, leader controlv1.AgentsClient, log *slog.Logger) *Heartbeats {
	return &Heartbeats{
		loop: l, store: s, renewer: renewer, reports: reports, gone: gone, leader: leader, log: log,
		peeks: newGate(gateSize), newcomers: newGate(newcomersAtOnce), due: newDue(), decoding: make(chan struct{}, 1),
	}
}

// errStopping ends streams of a replica that stops: the agents go on at another,
// and here they would hold up the stop.
var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the replica is stopping")

// peek looks at the core. Streams that begin or end all at once come one after
// the other, and leave room for others.
func (h *Heartbeats) peek(ctx context.Context, look func(*inventory.Core)) error {
	return h.peeks.pass(ctx, func() error { return h.loop.Peek(ctx, look) })
}
