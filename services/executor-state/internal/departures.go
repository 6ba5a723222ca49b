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

// The bounds of proving that an agent is dead.
const (
	departuresWaiting = 32_768
	departuresAtOnce  = 128
	// proofTimeout ends the search for a proof: after it only the TTL tells.
	proofTimeout = 2 * time.Second
	redialPause  = 5 * time.Millisecond
	departCall   = 10 * time.Second
)

// departure is a stream that broke, and whose.
type departure struct {
	id, address        string
	incarnation, lease int64
}

// Departures looks after agents whose streams broke. An agent whose address
// refuses twice in a row is dead, and the leader is told, so that its executor
// gets nothing new from then on. Anything else proves nothing: a time-out is as
// well a cut network, and an agent that accepts has only lost its gateway; then
// the TTL decides. What is told wrongly is put right by the next heartbeat.
type Departures struct {
	leader  controlv1.AgentsClient
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	waiting chan departure
	log     *slog.Logger
	// Guard calls what looks after one agent, and reports whether it returned; by
	// default it only calls.
	Guard func(peer string, fn func()) bool
}

// NewDepartures tells the leader through a gateway; Run runs it.
func NewDepartures(gateway grpc.ClientConnInterface, log *slog.Logger) *Departures {
	return &Departures{
		leader: controlv1.NewAgentsClient(gateway), dial: (&net.Dialer{}).DialContext,
		waiting: make(chan departure, departuresWaiting), log: log,
		Guard: unguarded,
	}
}

// Suspect has an agent looked after. It never waits: what is too much is left to
// the TTL.
func (d *Departures) Suspect(gone departure) {
	select {
	case d.waiting <- gone:
	default:
	}
}

// Run looks after agents until ctx ends.
func (d *Departures) Run(ctx context.Context) error {
	var owned sync.WaitGroup
	for range departuresAtOnce {
		owned.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case gone := <-d.waiting:
					d.Guard("executor "+gone.id, func() { d.look(ctx, gone) })
				}
			}
		})
	}
	owned.Wait()
	return nil
}

func (d *Departures) look(ctx context.Context, gone departure) {
	if !d.refuses(ctx, gone.address) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, departCall)
	defer cancel()
	_, err := d.leader.Depart(ctx, &controlv1.DepartRequest{Id: gone.id, Incarnation: gone.incarnation, EtcdLease: gone.lease})
	if err != nil {
		d.log.Debug("a dead agent is left to its TTL", "executor", gone.id, "error", err)
		return
	}
	d.log.Info("an agent's process is dead: its address refuses", "executor", gone.id, "incarnation", gone.incarnation)
}

// refuses says whether the address refuses twice in a row. A process that is
// dying may still accept for a moment, or end what it has yet to accept, so what
// accepts or resets is asked again, until the time is over.
func (d *Departures) refuses(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
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
			return false // silence, or no way there
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
