package internal

import (
	"context"
	"errors"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/rpc"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
)

// session is the presence of one executor as this replica keeps it.
type session struct {
	h           *Heartbeats
	id          string
	incarnation int64
	// address is where the agent listens, empty while it is not known.
	address string
	// lease is the etcd lease that presence stands on, 0 while it is not known.
	lease int64
	// renewed is when the last renewal of lease that succeeded began.
	renewed time.Time
	// returning: it was given up, is back, and had workers of before. strays: it
	// was announced with workers that it should not have.
	returning, strays bool
	workers           *living
}

// beat makes presence last: for another TTL, or, from a renewal that is young,
// for what that one leaves. An error ends the stream.
func (s *session) beat(ctx context.Context) (*controlv1.HeartbeatAnswer, error) {
	stream := ctx
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	answer := &controlv1.HeartbeatAnswer{}
	began := time.Now()
	doubtful, since := s.workers.doubtful()
	if doubtful && !since.IsZero() && began.Sub(since) > judgeAgain {
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "it is time to report everything again")
	}
	if s.lease != 0 && (s.returning && s.workers.count() == 0 || !since.IsZero() && s.strays != doubtful) {
		s.tellAgain(ctx)
	}
	if s.lease != 0 && began.Sub(s.renewed) < renewEvery {
		answer.Present = true
		return answer, nil
	}
	if s.lease == 0 {
		if err := s.h.peek(ctx, func(c *inventory.Core) {
			if live, ok := c.Live(s.id); ok && live.Incarnation == s.incarnation {
				s.lease = live.EtcdLease // another replica kept it so far
			}
			s.locate(c)
			answer.AssignerTerm = c.AssignerTerm()
		}); err != nil {
			return answer, nil // this replica's view is not there yet
		}
	}
	if s.lease != 0 {
		err := s.h.renewer.Renew(ctx, s.lease)
		if err == nil {
			s.renewed = began
			answer.Present = s.present(ctx)
			return answer, nil
		}
		if !errors.Is(err, store.ErrLeaseNotFound) {
			s.h.log.Debug("a heartbeat did not reach etcd", "executor", s.id, "error", err)
			return answer, nil
		}
		s.lease = 0
	}
	s.workers.await(stream, judgeTimeout)
	turn := false
	err := s.h.newcomers.pass(ctx, func() (err error) {
		turn = true
		answer.Present, err = s.announce(stream)
		return err
	})
	if turn && err != nil {
		return nil, err
	}
	return answer, nil
}

// announce puts presence on a new etcd lease. It has time of its own: what was
// granted and then not announced would be granted again, and when very many join
// at once none of them would get through. An error ends the stream.
func (s *session) announce(ctx context.Context) (present bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	granting := time.Now()
	lease, err := s.h.store.Grant(ctx, PresenceTTL)
	if err != nil {
		s.h.log.Debug("a heartbeat did not reach etcd", "executor", s.id, "error", err)
		return false, nil
	}
	if err = s.tell(ctx, lease.ID); err != nil {
		// What was perhaps announced runs out by itself if it is not used.
		switch f := rpc.FromStatus(err); f.Reason {
		case fault.ReasonOtherIncarnation, fault.ReasonNotFound:
			return false, f
		}
		return false, nil
	}
	s.lease, s.renewed = lease.ID, granting
	return true, nil
}

// tellAgain announces an executor once more, on the etcd lease that it has, when
// what was told of its workers is so no longer. What fails is tried again with the
// next beat.
func (s *session) tellAgain(ctx context.Context) {
	if s.tell(ctx, s.lease) == nil {
		s.returning = s.returning && s.workers.count() > 0
	}
}

// tell announces an executor with its workers.
func (s *session) tell(ctx context.Context, lease int64) error {
	doubtful, _ := s.workers.doubtful()
	_, err := s.h.leader.Announce(ctx, &controlv1.AnnounceRequest{
		Id: s.id, Incarnation: s.incarnation, EtcdLease: lease, Workers: s.workers.count(), Strays: doubtful,
	})
	if err == nil {
		s.strays = doubtful
	}
	return err
}

// present says whether presence still stands on the etcd lease that was renewed.
// Where it does not, because the executor has registered again say, the next beat
// asks for it anew, and the leader says what is wrong. A replica that cannot say
// now has renewed the lease all the same.
func (s *session) present(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	present := true
	_ = s.h.peek(ctx, func(c *inventory.Core) {
		live, ok := c.Live(s.id)
		present = ok && live.Incarnation == s.incarnation && live.EtcdLease == s.lease
		s.locate(c)
	})
	if !present {
		s.lease = 0
	}
	return present
}

// locate notes the agent's address, which an incarnation keeps for good, whether it
// is back from LOST with workers of before, and whether it has strays.
func (s *session) locate(c *inventory.Core) {
	if view, ok := c.Executor(s.id); ok && view.Incarnation == s.incarnation {
		s.address, s.returning, s.strays = view.Address, view.Returning, view.Strays
	}
}

// suspect has the agent looked after whose stream has ended, whatever ended it.
// What that takes is known by then, for very many may end at once; but for one
// that ended so soon that its registration had not been seen here.
func (s *session) suspect() {
	if s.lease != 0 && s.address == "" {
		ctx, cancel := context.WithTimeout(context.Background(), peekTimeout)
		_ = s.h.peek(ctx, s.locate) // without an answer its etcd lease tells
		cancel()
	}
	if s.lease != 0 && s.address != "" {
		s.h.gone.Suspect(departure{id: s.id, address: s.address, incarnation: s.incarnation, lease: s.lease})
	}
}

// peek looks at the core. Streams that begin or end all at once come one after
// the other, and leave room for others.
func (h *Heartbeats) peek(ctx context.Context, look func(*inventory.Core)) error {
	return h.peeks.pass(ctx, func() error { return h.loop.Peek(ctx, look) })
}
