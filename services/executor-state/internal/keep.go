package internal

import (
	"context"
	"errors"
	"sync"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
)

// The bounds of keeping executors present.
const (
	// keepersAtOnce is how many groups of beats are under way at a time, so that
	// one that waits for etcd does not hold up the next.
	keepersAtOnce = 4
	// keptTogether is the most in a group: what is looked up for them in the core
	// holds up others no longer than a round does.
	keptTogether = 1024
)

// due are the sessions whose beats wait: each at most once.
type due struct {
	mu       sync.Mutex
	sessions []*session
	// wake has one element when some wait.
	wake chan struct{}
}

func newDue() *due { return &due{wake: make(chan struct{}, 1)} }

func (d *due) add(s *session) {
	d.mu.Lock()
	d.sessions = append(d.sessions, s)
	d.mu.Unlock()
	d.stir()
}

func (d *due) stir() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next waits for sessions and takes those that wait together, none once ctx ends.
func (d *due) next(ctx context.Context) []*session {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return nil
		}
		d.mu.Lock()
		n := min(len(d.sessions), keptTogether)
		taken := d.sessions[:n:n]
		d.sessions = d.sessions[n:]
		more := len(d.sessions) > 0
		if !more {
			d.sessions = nil
		}
		d.mu.Unlock()
		if more {
			d.stir()
		}
		if n > 0 {
			return taken
		}
	}
}

// Run keeps executors present whose beats come, until ctx ends.
func (h *Heartbeats) Run(ctx context.Context) error {
	var keepers sync.WaitGroup
	for range keepersAtOnce {
		keepers.Go(func() {
			for sessions := h.due.next(ctx); len(sessions) > 0; sessions = h.due.next(ctx) {
				if h.loop.Guard("heartbeats", func() { h.keep(ctx, sessions) }) {
					continue
				}
				for _, s := range sessions {
					s.line.end(fault.New(fault.Internal, fault.ReasonInternal, "the replica failed to keep the executor present"))
					s.rest()
				}
			}
		})
	}
	keepers.Wait()
	return nil
}

// keep makes the presence of executors last: for another TTL, or, from a renewal
// that is young, for what that one leaves. What takes calls of its own goes on
// beside: one that joins holds up no others.
func (h *Heartbeats) keep(ctx context.Context, sessions []*session) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	var leased, unknown []*session
	for _, s := range sessions {
		doubtful, since := s.workers.doubtful()
		switch {
		case s.ctx.Err() != nil:
			s.rest() // who has left is not to be kept
		case doubtful && !since.IsZero() && time.Since(since) > judgeAgain:
			s.line.end(fault.New(fault.Unavailable, fault.ReasonUnavailable, "it is time to report everything again"))
			s.rest()
		case s.lease == 0:
			unknown = append(unknown, s)
		case s.returning && s.workers.count() == 0, !since.IsZero() && s.strays != doubtful:
			s.aside(s.tellAgain)
		default:
			leased = append(leased, s)
		}
	}
	h.renew(ctx, append(leased, h.find(ctx, unknown)...))
}

// find looks for the etcd leases that other replicas have kept so far. It answers
// the sessions that have one; those that have none join.
func (h *Heartbeats) find(ctx context.Context, sessions []*session) (found []*session) {
	if len(sessions) == 0 {
		return nil
	}
	err := h.peek(ctx, func(c *inventory.Core) {
		for _, s := range sessions {
			if live := s.locate(c); live != nil {
				s.lease = live.EtcdLease
			}
			s.term = s.leading
		}
	})
	for _, s := range sessions {
		switch {
		case err != nil:
			s.kept(false) // this replica's view is not there yet
		case s.standing == stranger:
			s.line.end(errStranger)
			s.rest()
		case s.standing == superseded:
			s.aside(s.tellSuperseded)
		case s.lease == 0:
			s.aside(s.join)
		default:
			found = append(found, s)
		}
	}
	return found
}

// renew renews the etcd leases of sessions, but for those whose renewal is young.
func (h *Heartbeats) renew(ctx context.Context, sessions []*session) {
	began := time.Now()
	var old []*session
	var leases []int64
	for _, s := range sessions {
		if began.Sub(s.renewed) < renewEvery {
			s.kept(true)
			continue
		}
		old, leases = append(old, s), append(leases, s.lease)
	}
	if len(old) == 0 {
		return
	}
	var renewed []*session
	failures := 0
	for i, err := range h.renewer.Renew(ctx, leases) {
		s := old[i]
		switch {
		case err == nil:
			s.renewed = began
			renewed = append(renewed, s)
		case errors.Is(err, store.ErrLeaseNotFound):
			s.lease = 0
			s.aside(s.join)
		default:
			if failures++; failures == 1 {
				h.log.Debug("heartbeats did not reach etcd", "executor", s.id, "error", err)
			}
			s.kept(false)
		}
	}
	h.verify(ctx, renewed)
}

// verify answers whether presence still stands on the etcd leases that were
// renewed. Where it does not, because the executor has registered again say, the
// next beat asks for it anew, and the leader says what is wrong. A replica that
// cannot say now has renewed the etcd leases all the same. What was looked up is so
// while the core tells of no change: of thousands of beats hardly one takes a look.
func (h *Heartbeats) verify(ctx context.Context, sessions []*session) {
	if len(sessions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	missing := map[*session]bool{}
	_ = h.peek(ctx, func(c *inventory.Core) {
		for _, s := range sessions {
			now := sight{c, c.Presences(), s.lease}
			if s.seen == now {
				continue
			}
			if live := s.locate(c); live == nil || live.EtcdLease != s.lease {
				missing[s] = true
			}
			s.seen = now
		}
	})
	for _, s := range sessions {
		if missing[s] {
			s.lease = 0
		}
		s.kept(!missing[s])
	}
}

// join makes an executor present that is not, when it is its turn and there is an
// answer about the workers that it comes with.
func (s *session) join() {
	// An etcd lease is granted only to an agent that has registered the executor: etcd
	// ends at most a thousand leases a second, those of leaders among them.
	if s.standing != registrant {
		if err := s.awaitRegistration(); err != nil {
			s.line.end(err)
			s.rest()
			return
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, beatTimeout)
	defer cancel()
	s.workers.await(ctx, judgeTimeout)
	var present, superseded bool
	var refused error
	_ = s.h.newcomers.pass(ctx, func() error {
		present, superseded, refused = s.announce()
		return nil
	})
	switch {
	case refused != nil:
		s.line.end(refused)
		s.rest()
	case superseded:
		s.supersededBeat()
	default:
		s.kept(present)
	}
}

// tellSuperseded tells the leader how many workers of a superseded agent live, and
// the agent that it is.
func (s *session) tellSuperseded() {
	ctx, cancel := context.WithTimeout(s.ctx, beatTimeout)
	defer cancel()
	superseded, err := s.tell(ctx, 0)
	switch {
	case superseded:
		s.supersededBeat()
	case err != nil && gone(err):
		s.line.end(rpc.FromStatus(err))
		s.rest()
	default:
		s.kept(false)
	}
}

// supersededBeat ends a beat of a superseded agent with its answer.
func (s *session) supersededBeat() {
	s.line.answer(&controlv1.HeartbeatAnswer{Superseded: true})
	s.rest()
}

// gone reports whether an announcement is refused for good.
func gone(err error) bool {
	switch rpc.FromStatus(err).Reason {
	case fault.ReasonOtherIncarnation, fault.ReasonNotFound, fault.ReasonOtherAgent:
		return true
	}
	return false
}

// announce puts presence on a new etcd lease. It has time of its own: what was
// granted and then not announced would be granted again, and when very many join
// at once none of them would get through. An error ends the stream.
func (s *session) announce() (present, superseded bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, beatTimeout)
	defer cancel()
	granting := time.Now()
	lease, err := s.h.store.Grant(ctx, PresenceTTL)
	if err != nil {
		s.h.log.Debug("a heartbeat did not reach etcd", "executor", s.id, "error", err)
		return false, false, nil
	}
	superseded, err = s.tell(ctx, lease.ID)
	switch {
	case err != nil && gone(err):
		return false, false, rpc.FromStatus(err)
	case err != nil || superseded:
		// What was perhaps announced runs out by itself if it is not used.
		return false, superseded, nil
	}
	s.lease, s.renewed = lease.ID, granting
	return true, false, nil
}

// tellAgain announces an executor once more, on the etcd lease that it has, when
// what was told of its workers is so no longer, and goes on with the beat. What
// fails is tried again with the next one.
func (s *session) tellAgain() {
	ctx, cancel := context.WithTimeout(s.ctx, beatTimeout)
	defer cancel()
	_, _ = s.tell(ctx, s.lease)
	s.h.renew(ctx, []*session{s})
}

// tell announces an executor with its workers, and answers whether another agent has
// superseded the one of this session.
func (s *session) tell(ctx context.Context, lease int64) (superseded bool, err error) {
	workers := s.workers.count()
	doubtful, _ := s.workers.doubtful()
	answer, err := s.h.leader.Announce(ctx, &controlv1.AnnounceRequest{
		Id: s.id, Incarnation: s.incarnation, EtcdLease: lease, Workers: workers, Strays: doubtful, Nonce: s.nonce,
	})
	if err != nil || answer.GetSuperseded() {
		return answer.GetSuperseded(), err
	}
	s.admit()
	s.strays, s.returning = doubtful, s.returning && workers > 0
	return false, nil
}
