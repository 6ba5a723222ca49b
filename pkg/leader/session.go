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
	// renewals in a TTL: single calls, because a stream to a frozen member of etcd
	// is noticed too late.
	renewals = 6
	// attemptTimeout bounds one renewal, so that several fit before the deadline.
	attemptTimeout = 700 * time.Millisecond
	// retryPause comes after a renewal that failed.
	retryPause = 50 * time.Millisecond
	// farewell bounds what is sent when a session ends; the TTL does it otherwise.
	farewell = time.Second
)

// session is an etcd lease that is kept alive, and trusted for two thirds of its
// TTL from before the last successful renewal was sent. Its context is over when
// it can be trusted no more.
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

// openSession grants an etcd lease and keeps it until end is called or the
// session ends by itself. It outlives ctx.
func openSession(ctx context.Context, s store.Store, ttl time.Duration) (*session, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
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

// keep renews until the session is over.
func (n *session) keep() {
	defer n.timer.Stop()
	next := n.lastRenewed().Add(n.lease.TTL / renewals)
	for store.Sleep(n.ctx, time.Until(next)) == nil {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(n.ctx, attemptTimeout)
		_, err := n.store.KeepAlive(ctx, n.lease.ID)
		cancel()
		switch {
		case err == nil:
			n.renew(sent)
			next = sent.Add(n.lease.TTL / renewals)
		case errors.Is(err, store.ErrLeaseNotFound):
			n.end(fmt.Errorf("%w: %w", ErrExpired, err))
		default:
			next = time.Now().Add(retryPause)
		}
	}
}

// renew moves the deadline, unless it has passed.
func (n *session) renew(sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer.Stop() {
		n.renewed = sent
		n.timer.Reset(time.Until(n.deadline()))
	}
}

// deadline is when the session is trusted no more.
func (n *session) deadline() time.Time { return n.renewed.Add(n.lease.TTL * 2 / 3) }

func (n *session) lastRenewed() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renewed
}

// valid says that the session is trusted now. It looks at the clock itself: a
// process that was frozen wakes up before its timers do.
func (n *session) valid() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ctx.Err() == nil && time.Now().Before(n.deadline())
}

// close ends the session and revokes the etcd lease, as far as etcd answers.
func (n *session) close() {
	n.end(context.Canceled)
	n.group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	// An error leaves the lease to its TTL.
	_ = n.store.Revoke(ctx, n.lease.ID)
}
