package internal

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/store"
)

// The limits of liveness probes.
const (
	maxQueuedProbes  = 32_768
	concurrentProbes = 128
	// probeTimeout ends a probe. After that only the TTL of the etcd lease decides.
	probeTimeout  = 2 * time.Second
	redialPause   = 5 * time.Millisecond
	departTimeout = 10 * time.Second
)

// brokenStream identifies an agent whose stream has ended.
type brokenStream struct {
	id, address        string
	incarnation, lease int64
}

// Prober probes agents whose streams have ended. If an agent's address refuses
// connections twice in a row, the agent is dead. The prober reports the dead agent to the
// leader, so that the executor gets no new work. No other result proves anything: a
// timeout may be a network partition, and an agent that accepts may have lost only its
// gateway. Then the TTL of the etcd lease decides. If a report was wrong, the agent's
// next heartbeat corrects it.
type Prober struct {
	leader controlv1.AgentsClient
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	queue  chan brokenStream
	log    *slog.Logger
	guard  guard
}

// NewProber returns a prober that reports to the leader through a gateway. Run runs it.
func NewProber(gateway grpc.ClientConnInterface, guard guard, log *slog.Logger) *Prober {
	return &Prober{
		leader: controlv1.NewAgentsClient(gateway), dial: (&net.Dialer{}).DialContext,
		queue: make(chan brokenStream, maxQueuedProbes), log: log,
		guard: guard,
	}
}

// Probe queues the probe of an agent. It does not wait: if the queue is full, the TTL
// decides.
func (d *Prober) Probe(s brokenStream) {
	select {
	case d.queue <- s:
	default:
	}
}

// Run probes agents until ctx ends.
func (d *Prober) Run(ctx context.Context) error {
	var probing sync.WaitGroup
	for range concurrentProbes {
		probing.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case s := <-d.queue:
					d.guard("executor "+s.id, func() { d.probe(ctx, s) })
				}
			}
		})
	}
	probing.Wait()
	return nil
}

func (d *Prober) probe(ctx context.Context, s brokenStream) {
	if !d.refuses(ctx, s.address) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, departTimeout)
	defer cancel()
	_, err := d.leader.Depart(ctx, &controlv1.DepartRequest{Id: s.id, Incarnation: s.incarnation, EtcdLease: s.lease})
	if err != nil {
		d.log.Debug("failed to report a dead agent: its executor waits for the TTL", "executor", s.id, "error", err)
		return
	}
	d.log.Info("an agent's process is dead: its address refuses connections", "executor", s.id, "incarnation",
		s.incarnation)
}

// refuses reports whether the address refuses connections twice in a row. A process that
// is exiting may accept or reset connections for a moment, so refuses retries in these
// cases until the timeout.
func (d *Prober) refuses(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for refused, attempt := 0, 1; ; attempt++ {
		conn, err := d.dial(ctx, "tcp", address)
		pause := redialPause
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			if refused++; refused == 2 {
				return true
			}
		case err != nil && !errors.Is(err, syscall.ECONNRESET):
			return false // no answer, or no route
		default:
			if err == nil {
				conn.Close()
			}
			refused = 0
			pause = store.Backoff(attempt + 2)
		}
		if store.Sleep(ctx, pause) != nil {
			return false
		}
	}
}
