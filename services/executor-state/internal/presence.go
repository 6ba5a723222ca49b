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

const (
	// presenceWorkers is how many groups of heartbeats are handled concurrently, so that a
	// group that waits for etcd does not delay the next group.
	presenceWorkers = 4
	// maxGroup is the maximum number of heartbeats in a group. With it, looking up a group
	// in the core delays other calls no longer than a round does.
	maxGroup = 1024
)

// sessionQueue holds the sessions with a pending heartbeat, each at most once.
type sessionQueue struct {
	mu       sync.Mutex
	changed  *sync.Cond
	sessions []*session
}

func newSessionQueue() *sessionQueue {
	q := &sessionQueue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func (q *sessionQueue) add(s *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sessions = append(q.sessions, s)
	q.changed.Signal()
}

// wakeAll makes every waiting next check its context.
func (q *sessionQueue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// next waits for sessions, and removes and returns a group of them. It returns none once
// ctx ends. When ctx ends, wakeAll must be called.
func (q *sessionQueue) next(ctx context.Context) []*session {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.sessions) == 0 && ctx.Err() == nil {
		q.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil
	}
	n := min(len(q.sessions), maxGroup)
	group := q.sessions[:n:n]
	if q.sessions = q.sessions[n:]; len(q.sessions) == 0 {
		q.sessions = nil // so that the queue does not keep ended sessions
	}
	return group
}

// Run handles heartbeats until ctx ends.
func (h *Heartbeats) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.queue.wakeAll)()
	var running sync.WaitGroup
	for range presenceWorkers {
		running.Go(func() {
			for sessions := h.queue.next(ctx); len(sessions) > 0; sessions = h.queue.next(ctx) {
				if h.loop.Guard("heartbeats", func() { h.keepPresent(ctx, sessions) }) {
					continue
				}
				for _, s := range sessions {
					s.fail(fault.New(fault.Internal, fault.ReasonInternal, "the replica failed to keep the executor present"))
				}
			}
		})
	}
	running.Wait()
	return nil
}

// keepPresent extends the presence of executors. It renews their etcd leases, except
// leases that were renewed a short time ago. Steps that need calls of their own run
// concurrently, so that an executor that joins does not delay others.
func (h *Heartbeats) keepPresent(ctx context.Context, sessions []*session) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	var leased, unknown []*session
	for _, s := range sessions {
		orphans, since := s.workers.mayHaveOrphans()
		switch {
		case s.ctx.Err() != nil:
			s.finish() // the stream has ended
		case orphans && !since.IsZero() && time.Since(since) > maxOrphaned:
			s.fail(fault.New(fault.Unavailable, fault.ReasonUnavailable, "full report required"))
		case s.lease == 0:
			unknown = append(unknown, s)
		case s.returning && s.workers.count() == 0, !since.IsZero() && s.orphans != orphans:
			s.async(s.announceAgain)
		default:
			leased = append(leased, s)
		}
	}
	h.renew(ctx, append(leased, h.find(ctx, unknown)...))
}

// find looks up the etcd leases that other replicas have renewed so far, and returns the
// sessions that have such a lease. The other sessions join.
func (h *Heartbeats) find(ctx context.Context, sessions []*session) (found []*session) {
	if len(sessions) == 0 {
		return nil
	}
	err := h.peek(ctx, func(c *inventory.Core) {
		for _, s := range sessions {
			if live := s.observe(c); live != nil {
				s.lease = live.EtcdLease
			}
			s.term = s.leading
		}
	})
	for _, s := range sessions {
		switch {
		case err != nil:
			s.respond(false) // this replica has no view yet
		case s.registration == otherAgent:
			s.fail(errOtherAgent)
		case s.registration == superseded:
			s.async(s.announceSuperseded)
		case s.lease == 0:
			s.async(s.join)
		default:
			found = append(found, s)
		}
	}
	return found
}

// renew renews the etcd leases of sessions, except leases that were renewed within
// renewInterval.
func (h *Heartbeats) renew(ctx context.Context, sessions []*session) {
	began := time.Now()
	var old []*session
	var leases []int64
	for _, s := range sessions {
		if began.Sub(s.renewed) < renewInterval {
			s.respond(true)
			continue
		}
		old, leases = append(old, s), append(leases, s.lease)
	}
	if len(old) == 0 {
		return
	}
	var renewed []*session
	logged := false
	for i, err := range h.renewer.Renew(ctx, leases) {
		s := old[i]
		switch {
		case err == nil:
			s.renewed = began
			renewed = append(renewed, s)
		case errors.Is(err, store.ErrLeaseNotFound):
			s.lease = 0
			s.async(s.join)
		default:
			if !logged {
				h.log.Debug("failed to renew etcd leases", "executor", s.id, "error", err)
				logged = true
			}
			s.respond(false)
		}
	}
	h.verify(ctx, renewed)
}

// verify checks that presence still uses the etcd leases that were renewed, and answers
// the heartbeats. If presence uses another lease, for example because the executor has
// registered again, the next heartbeat joins, and the leader decides. If the core does
// not answer in time, the executors count as present, because their etcd leases are
// renewed. An observation stays valid until the core reports a change, so only a few of
// thousands of heartbeats need a lookup.
func (h *Heartbeats) verify(ctx context.Context, sessions []*session) {
	if len(sessions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	_ = h.peek(ctx, func(c *inventory.Core) {
		for _, s := range sessions {
			now := observation{c, c.Presences(), s.lease}
			if s.seen == now {
				continue
			}
			if live := s.observe(c); live == nil || live.EtcdLease != s.lease {
				s.lease = 0
			}
			s.seen = now
		}
	})
	for _, s := range sessions {
		s.respond(s.lease != 0)
	}
}

// join makes an absent executor present. It waits until a place is free, and until the
// assigner has answered about the workers of the executor.
func (s *session) join() {
	// An etcd lease is granted only to an agent that has registered the executor. etcd
	// expires at most a thousand leases a second, and the leases of leaders are among them.
	if s.registration != registered {
		if err := s.awaitRegistration(); err != nil {
			s.fail(err)
			return
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
	defer cancel()
	s.workers.await(ctx, answerWait)
	present, superseded := false, false
	var refused error
	_ = s.h.joins.do(ctx, func() error {
		present, superseded, refused = s.announce()
		return nil
	})
	s.respondAnnounced(present, superseded, refused)
}

// announceSuperseded announces how many workers of a superseded agent live, and answers
// the agent that another agent has superseded it.
func (s *session) announceSuperseded() {
	ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
	defer cancel()
	superseded, err := s.callAnnounce(ctx, 0)
	s.respondAnnounced(false, superseded, permanent(err))
}

// respondAnnounced answers a heartbeat with the result of an announcement.
func (s *session) respondAnnounced(present, superseded bool, refused error) {
	switch {
	case refused != nil:
		s.fail(refused)
	case superseded:
		s.stream.answer(&controlv1.HeartbeatAnswer{Superseded: true})
		s.finish()
	default:
		s.respond(present)
	}
}

// permanent returns the error of an announcement if a retry would fail too, and nil
// otherwise.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	failure := rpc.FromStatus(err)
	switch failure.Reason {
	case fault.ReasonOtherIncarnation, fault.ReasonNotFound, fault.ReasonOtherAgent:
		return failure
	}
	return nil
}

// announce announces the executor with a new etcd lease. It has a timeout of its own.
// Otherwise, when very many executors join at once, etcd leases would be granted, not
// announced in time, and granted again. announce returns an error if the stream must end.
func (s *session) announce() (present, superseded bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
	defer cancel()
	granting := time.Now()
	lease, err := s.h.store.Grant(ctx, PresenceTTL)
	if err != nil {
		s.h.log.Debug("failed to grant an etcd lease", "executor", s.id, "error", err)
		return false, false, nil
	}
	superseded, err = s.callAnnounce(ctx, lease.ID)
	if err != nil || superseded {
		return false, superseded, permanent(err) // the lease expires if it is not used
	}
	s.lease, s.renewed = lease.ID, granting
	return true, false, nil
}

// announceAgain announces the executor with its current etcd lease after its workers have
// changed, and continues the heartbeat. If the announcement fails, the next heartbeat
// repeats it.
func (s *session) announceAgain() {
	ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
	defer cancel()
	_, _ = s.callAnnounce(ctx, s.lease)
	s.h.renew(ctx, []*session{s})
}

// callAnnounce announces the executor and its workers to the leader. It reports whether
// another agent has superseded the agent of this session.
func (s *session) callAnnounce(ctx context.Context, lease int64) (superseded bool, err error) {
	workers := s.workers.count()
	orphans, _ := s.workers.mayHaveOrphans()
	answer, err := s.h.leader.Announce(ctx, &controlv1.AnnounceRequest{
		Id: s.id, Incarnation: s.incarnation, EtcdLease: lease, Workers: workers, Orphans: orphans, Nonce: s.nonce,
	})
	if err != nil || answer.GetSuperseded() {
		return answer.GetSuperseded(), err
	}
	s.admit()
	s.orphans, s.returning = orphans, s.returning && workers > 0
	return false, nil
}
