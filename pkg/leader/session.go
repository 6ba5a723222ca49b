package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth.dev/pkg/store"
)

const (
	// renewals is the number of times that a lease is renewed in one TTL. Renewals are
	// single calls instead of a stream, because the client would notice too late that the
	// stream's etcd member is frozen.
	renewals = 6
	// minPatience is how long a renewal may take before the session sends another renewal in
	// addition. The additional renewal goes to another etcd member, because the first member
	// may be frozen. A late answer still counts: if all of etcd is slow, leaders must not
	// lose their leadership. With a TTL above 21 s the time is longer, TTL/30; with a TTL
	// below 4.2 s it is shorter, TTL/6.
	minPatience = 700 * time.Millisecond
	// maxRenewals is the maximum number of renewals in flight.
	maxRenewals = 8
	// retryPause is the pause after a renewal that failed.
	retryPause = 50 * time.Millisecond
	// revokeTimeout is the timeout of the revoke at the end of a session. If the revoke
	// fails, the TTL ends the lease.
	revokeTimeout = time.Second
)

// session keeps an etcd lease alive. The session is valid for two thirds of the TTL from
// the time at which the last successful renewal was sent. Its context ends when the
// session is no longer valid.
type session struct {
	store store.Store
	lease store.Lease
	ctx   context.Context
	end   context.CancelCauseFunc
	group sync.WaitGroup

	mu      sync.Mutex
	renewed time.Time
	timer   *time.Timer // ends the session at its deadline
}

// openSession grants an etcd lease and keeps it alive until end is called or the session
// expires. The session does not end with ctx.
func openSession(ctx context.Context, s store.Store, ttl time.Duration) (*session, error) {
	sent := time.Now()
	// The timeout is short, because a later grant could hardly be renewed in time, and
	// because the etcd member may be frozen.
	ctx, cancel := context.WithTimeout(ctx, min(ttl/3, store.DefaultTimeout))
	defer cancel()
	lease, err := s.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	n := &session{store: s, lease: lease, renewed: sent}
	n.ctx, n.end = context.WithCancelCause(context.Background())
	n.timer = time.AfterFunc(time.Until(n.deadline()), func() { n.end(ErrExpired) })
	n.group.Go(n.keep)
	return n, nil
}

// keep renews the lease until the session ends.
func (n *session) keep() {
	defer n.timer.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	answers := make(chan renewal, maxRenewals)
	inFlight, sent := 0, n.lastRenewed()
	next := time.NewTimer(time.Until(n.lastRenewed().Add(n.lease.TTL / renewals)))
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(n.patience())
			if inFlight == maxRenewals {
				continue
			}
			inFlight, sent = inFlight+1, time.Now()
			group.Go(func() { answers <- n.attempt() })
		case r := <-answers:
			inFlight--
			switch {
			case r.err == nil:
				n.renew(r.sent)
				pause := max(n.lease.TTL/renewals-time.Since(n.lastRenewed()), n.patience()-time.Since(sent))
				next.Reset(pause)
			case errors.Is(r.err, store.ErrLeaseNotFound):
				n.end(fmt.Errorf("%w: %w", ErrExpired, r.err))
			case r.sent.After(n.lastRenewed()):
				next.Reset(retryPause)
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// renewal is the outcome of one attempt.
type renewal struct {
	sent time.Time
	err  error
}

// patience returns how long one renewal may take before the session sends the next one in
// addition.
func (n *session) patience() time.Duration {
	return max(min(minPatience, n.lease.TTL/renewals), n.lease.TTL/30)
}

// attempt renews the lease once. After its timeout an answer would be too late, or
// maxRenewals attempts would be in flight and prevent the next one.
func (n *session) attempt() renewal {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, min(n.lease.TTL*2/3, maxRenewals*n.patience()))
	defer cancel()
	_, err := n.store.KeepAlive(ctx, n.lease.ID)
	return renewal{sent, err}
}

// renew extends the deadline, unless the session has expired or a later renewal has
// already extended it.
func (n *session) renew(sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sent.After(n.renewed) && n.timer.Stop() {
		n.renewed = sent
		n.timer.Reset(time.Until(n.deadline()))
	}
}

// deadline returns the time at which the session expires.
func (n *session) deadline() time.Time { return n.renewed.Add(n.lease.TTL * 2 / 3) }

func (n *session) lastRenewed() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renewed
}

// valid reports whether the session is valid now. It reads the clock, because the timers
// of a process that was frozen fire late.
func (n *session) valid() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ctx.Err() == nil && time.Now().Before(n.deadline())
}

// close ends the session and tries to revoke the etcd lease.
func (n *session) close() {
	n.end(context.Canceled)
	n.group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	// If this fails, the TTL ends the lease.
	_ = n.store.Revoke(ctx, n.lease.ID)
}
