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
	// renewals is how often a lease is renewed in a TTL. Renewals are single calls,
	// because a stream to a frozen member of etcd is noticed too late.
	renewals = 6
	// minPatience is how long a renewal may take before another one is sent as well. The
	// new one goes to another member of etcd, as the first member may be frozen. A late
	// answer still counts: if etcd as a whole is slow on a busy machine, its leaders must
	// not lose their leadership. Above a TTL of 21 s it is longer: TTL/30.
	minPatience = 700 * time.Millisecond
	// maxRenewals bounds the renewals in flight.
	maxRenewals = 8
	// retryPause comes after a renewal that failed.
	retryPause = 50 * time.Millisecond
	// revokeTimeout bounds the revoke at the end of a session. Without it the TTL ends
	// the lease.
	revokeTimeout = time.Second
)

// session keeps an etcd lease alive. It is valid for two thirds of the TTL, from when the
// last successful renewal was sent. Its context ends when it is no longer valid.
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
	// A later grant could hardly be renewed in time, and the member of etcd may be
	// frozen.
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

// patience returns how long one attempt may take before the next is sent as well.
func (n *session) patience() time.Duration {
	return max(min(minPatience, n.lease.TTL/renewals), n.lease.TTL/30)
}

// attempt renews once. After its timeout an answer would be too late, or the attempt
// would keep others from being sent.
func (n *session) attempt() renewal {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, min(n.lease.TTL*2/3, maxRenewals*n.patience()))
	defer cancel()
	_, err := n.store.KeepAlive(ctx, n.lease.ID)
	return renewal{sent, err}
}

// renew extends the deadline, unless the session has expired or the deadline is later.
func (n *session) renew(sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sent.After(n.renewed) && n.timer.Stop() {
		n.renewed = sent
		n.timer.Reset(time.Until(n.deadline()))
	}
}

// deadline returns when the session expires.
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
	// After an error the TTL ends the lease.
	_ = n.store.Revoke(ctx, n.lease.ID)
}
