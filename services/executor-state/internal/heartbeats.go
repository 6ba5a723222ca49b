package internal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/fault"
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
	// judgeAgain is how long an executor may have strays before it is asked to
	// report everything again: who leads the assigner meanwhile may not know them.
	judgeAgain = PresenceTTL

	beatTimeout   = 5 * time.Second
	peekTimeout   = 500 * time.Millisecond
	reportBacklog = 64
)

// Heartbeats is control.v1.Heartbeats, on leader and standbys alike: a live
// stream keeps the executor's etcd lease, and only a presence that is not there
// yet is asked of the leader. However often an agent beats, its etcd lease is
// renewed once in renewEvery.
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
	pulse     pulse
}

// renewer makes etcd leases last for another TTL; *liveness.Renewer is the real
// one.
type renewer interface {
	Renew(ctx context.Context, lease int64) error
}

// NewHeartbeats puts the parts together.
func NewHeartbeats(l *loop.Loop[*inventory.Core], s store.Store, renewer *liveness.Renewer, reports *Reports, gone *Departures, gateway grpc.ClientConnInterface, log *slog.Logger) *Heartbeats {
	return &Heartbeats{loop: l, store: s, renewer: renewer, reports: reports, gone: gone, leader: controlv1.NewAgentsClient(gateway), log: log, peeks: newGate(gateSize), newcomers: newGate(newcomersAtOnce)}
}

// Heartbeat implements control.v1.Heartbeats.
func (h *Heartbeats) Heartbeat(stream grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h.pulse.begin()
	defer h.pulse.end()
	s := &session{h: h, id: first.GetId(), incarnation: first.GetIncarnation(), workers: newLiving()}

	// Three activities, so that none of them holds up another: presence must
	// not wait for a report under way, nor the answers for either.
	answers := make(chan *controlv1.HeartbeatAnswer, reportBacklog)
	beats := make(chan struct{}, 1)
	reports := make(chan *controlv1.ExecutorReport, reportBacklog)
	go func() {
		var last time.Time
		for m, err := first, error(nil); ; m, err = stream.Recv() {
			switch {
			case errors.Is(err, io.EOF):
				end(nil)
				return
			case err != nil:
				end(err)
				return
			case m.GetId() != s.id || m.GetIncarnation() != s.incarnation:
				end(fault.New(fault.Invalid, fault.ReasonInvalid, "one stream is for one executor and incarnation"))
				return
			}
			now := time.Now()
			if !last.IsZero() {
				h.pulse.beat(now.Sub(last))
			}
			last = now
			if r := m.GetReport(); r != nil {
				s.workers.reported(r)
			}
			select {
			case beats <- struct{}{}:
			default: // a beat waits already
			}
			if r := m.GetReport(); r != nil {
				r.Executor, r.Incarnation = s.id, s.incarnation
				select {
				case reports <- r:
				default:
					end(fault.New(fault.Exhausted, fault.ReasonOverloaded, "%d reports wait already", reportBacklog))
					return
				}
			}
		}
	}()
	var beating sync.WaitGroup // owns the session until the stream ends
	beating.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-beats:
			}
			answer, err := s.beat(ctx)
			if err != nil {
				end(err)
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
			}
		}
	})
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case r := <-reports:
				answer, err := h.reports.Forward(ctx, r)
				if err != nil {
					// The agent brings everything again on its next stream.
					end(err)
					return
				}
				if s.workers.judge(answer) {
					select {
					case beats <- struct{}{}: // it is to be announced
					default:
					}
				}
				select {
				case answers <- &controlv1.HeartbeatAnswer{Present: true, Report: answer}:
				case <-ctx.Done():
				}
			}
		}
	}()
	for {
		select {
		case <-h.loop.Ended():
			// The agent goes on at another replica; here it would hold up the stop.
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the replica is stopping")
		case <-ctx.Done():
			beating.Wait()
			s.suspect()
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case answer := <-answers:
			if err := stream.Send(answer); err != nil {
				end(err)
			}
		}
	}
}
