package internal

import (
	"context"
	"log/slog"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
)

// The timing of the heartbeats of executors.
const (
	// PresenceTTL is the TTL of an executor's etcd lease.
	PresenceTTL = 15 * time.Second
	// HeartbeatEvery is the interval at which agents should send heartbeats.
	HeartbeatEvery = PresenceTTL / 3

	// renewInterval is how long a renewal also counts for later heartbeats, because an agent
	// with many reports sends heartbeats far more often than presence needs. Two regular
	// heartbeats plus this interval are well within the TTL.
	renewInterval = PresenceTTL / 5

	// answerWait is how long presence waits for the assigner's answer about the workers of
	// an executor that joins. After that, the executor is announced with orphaned workers
	// and gets no work.
	answerWait = time.Second
	// maxOrphaned is how long an executor may have orphaned workers without a new answer of
	// a leading assigner that has received a complete report. After that, the session ends
	// the agent's stream. The next stream begins with a complete report. The agent may be
	// too old to send a complete report on request.
	maxOrphaned = PresenceTTL

	// admitPause is the first interval at which a session looks for the registration of its
	// agent.
	admitPause = 20 * time.Millisecond

	heartbeatTimeout = 5 * time.Second
	peekTimeout      = 500 * time.Millisecond
)

// Heartbeats implements control.v1.Heartbeats on every replica. Heartbeats renew the
// executor's etcd lease, and only an executor that is not present is announced to the
// leader. However often an agent sends heartbeats, its etcd lease is renewed once in
// renewInterval. Heartbeats that arrive at the same time share one look at the core and
// one request to etcd.
type Heartbeats struct {
	controlv1.UnimplementedHeartbeatsServer
	loop    *loop.Loop[*inventory.Core]
	store   store.Store
	renewer renewer
	reports *Reports
	prober  *Prober
	leader  controlv1.AgentsClient
	log     *slog.Logger
	peeks   limiter
	// joins limits the executors that are announced at the same time.
	joins   limiter
	queue   *sessionQueue
	streams streamMetrics
	shared  sharedItems
	cells   cells
	// sharedVolumes counts listed volumes, and lists limits the lists that are sent to the
	// leader at the same time.
	sharedVolumes sharedItems
	lists         limiter
	// decoding admits one large request at a time.
	decoding limiter
}

// renewer renews etcd leases and returns the result of each renewal. Production uses
// *liveness.Renewer.
type renewer interface {
	Renew(ctx context.Context, leases []int64) []error
}

// NewHeartbeats returns the service. Run handles the heartbeats that it receives.
func NewHeartbeats(l *loop.Loop[*inventory.Core], s store.Store, renewer renewer, reports *Reports, prober *Prober,
	leader controlv1.AgentsClient, log *slog.Logger) *Heartbeats {
	return &Heartbeats{
		loop: l, store: s, renewer: renewer, reports: reports, prober: prober, leader: leader, log: log,
		peeks: newLimiter(maxLoopCalls), joins: newLimiter(concurrentJoins), queue: newSessionQueue(),
		decoding: newLimiter(1), lists: newLimiter(concurrentJoins),
	}
}

// errStopping ends the agents' streams when a replica stops, because otherwise they would
// delay the stop. The agents continue at another replica.
var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the replica is stopping")

// peek looks at the core. The limiter leaves space for other calls when many streams
// begin or end at once.
func (h *Heartbeats) peek(ctx context.Context, look func(*inventory.Core)) error {
	return h.peeks.do(ctx, func() error { return h.loop.Peek(ctx, look) })
}
