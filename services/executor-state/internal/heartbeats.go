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
	"berth.dev/pkg/rpc"
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

	beatTimeout   = 5 * time.Second
	peekTimeout   = 500 * time.Millisecond
	reportBacklog = 64
)

// Heartbeats is control.v1.Heartbeats, on leader and standbys alike: a live
// stream keeps the executor's etcd lease, and only a presence that is not there
// yet is asked of the leader.
type Heartbeats struct {
	controlv1.UnimplementedHeartbeatsServer
	loop    *loop.Loop[*inventory.Core]
	store   store.Store
	renewer *liveness.Renewer
	reports *Reports
	gone    *Departures
	leader  controlv1.AgentsClient
	log     *slog.Logger
}

// NewHeartbeats puts the parts together.
func NewHeartbeats(l *loop.Loop[*inventory.Core], s store.Store, renewer *liveness.Renewer, reports *Reports, gone *Departures, gateway grpc.ClientConnInterface, log *slog.Logger) *Heartbeats {
	return &Heartbeats{loop: l, store: s, renewer: renewer, reports: reports, gone: gone, leader: controlv1.NewAgentsClient(gateway), log: log}
}

// Heartbeat implements control.v1.Heartbeats.
func (h *Heartbeats) Heartbeat(stream grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &session{h: h, id: first.GetId(), incarnation: first.GetIncarnation()}

	// Three activities, so that none of them holds up another: presence must
	// not wait for a report under way, nor the answers for either.
	answers := make(chan *controlv1.HeartbeatAnswer, reportBacklog)
	beats := make(chan struct{}, 1)
	reports := make(chan *controlv1.ExecutorReport, reportBacklog)
	go func() {
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

// session is the presence of one executor as this replica keeps it.
type session struct {
	h           *Heartbeats
	id          string
	incarnation int64
	// lease is the etcd lease that presence stands on, 0 while it is not known.
	lease int64
}

// beat makes presence last for another TTL. An error ends the stream.
func (s *session) beat(ctx context.Context) (*controlv1.HeartbeatAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	answer := &controlv1.HeartbeatAnswer{}
	if s.lease == 0 {
		if err := s.h.loop.Peek(ctx, func(c *inventory.Core) {
			if live, ok := c.Live(s.id); ok && live.Incarnation == s.incarnation {
				s.lease = live.EtcdLease // another replica kept it so far
			}
			answer.AssignerTerm = c.AssignerTerm()
		}); err != nil {
			return answer, nil // this replica's view is not there yet
		}
	}
	if s.lease != 0 {
		err := s.h.renewer.Renew(ctx, s.lease)
		if err == nil {
			answer.Present = s.present(ctx)
			return answer, nil
		}
		if !errors.Is(err, store.ErrLeaseNotFound) {
			s.h.log.Debug("a heartbeat did not reach etcd", "executor", s.id, "error", err)
			return answer, nil
		}
		s.lease = 0
	}
	lease, err := s.h.store.Grant(ctx, PresenceTTL)
	if err != nil {
		s.h.log.Debug("a heartbeat did not reach etcd", "executor", s.id, "error", err)
		return answer, nil
	}
	_, err = s.h.leader.Announce(ctx, &controlv1.AnnounceRequest{Id: s.id, Incarnation: s.incarnation, EtcdLease: lease.ID})
	if err != nil {
		// What was perhaps announced runs out by itself if it is not used.
		switch f := rpc.FromStatus(err); f.Reason {
		case fault.ReasonOtherIncarnation, fault.ReasonNotFound:
			return nil, f
		}
		return answer, nil
	}
	s.lease = lease.ID
	answer.Present = true
	return answer, nil
}

// present says whether presence still stands on the etcd lease that was renewed.
// Where it does not, because the executor has registered again say, the next beat
// asks for it anew, and the leader says what is wrong. A replica that cannot say
// now has renewed the lease all the same.
func (s *session) present(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	present := true
	_ = s.h.loop.Peek(ctx, func(c *inventory.Core) {
		live, ok := c.Live(s.id)
		present = ok && live.Incarnation == s.incarnation && live.EtcdLease == s.lease
	})
	if !present {
		s.lease = 0
	}
	return present
}

// suspect has the agent looked after whose stream has ended, whatever ended it.
func (s *session) suspect() {
	if s.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), peekTimeout)
	defer cancel()
	gone := departure{id: s.id, incarnation: s.incarnation, lease: s.lease}
	if err := s.h.loop.Peek(ctx, func(c *inventory.Core) {
		if view, ok := c.Executor(s.id); ok && view.Incarnation == s.incarnation {
			gone.address = view.Address
		}
	}); err == nil && gone.address != "" {
		s.h.gone.Suspect(gone)
	}
}
