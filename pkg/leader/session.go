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
	// minPatience is how long a renewal is waited for before another one is sent
	// beside it: to another member of etcd, for that one may be frozen. The first
	// counts all the same if it is answered: an etcd that is slow as a whole, on a
	// machine with too much to do, must not cost everybody on it the leadership. With
	// a TTL of over 21 s it is longer, a thirtieth of that.
	minPatience = 700 * time.Millisecond
	// mostRenewals are under way at once.
	mostRenewals = 8
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
	// What is granted later could hardly be renewed in time; and the member of etcd
	// that was asked may be frozen.
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

// keep renews until the session is over.
func (n *session) keep() {
	defer n.timer.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	answers := make(chan renewal, mostRenewals)
	underWay, sent := 0, n.lastRenewed()
	next := time.NewTimer(time.Until(n.lastRenewed().Add(n.lease.TTL / renewals)))
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(n.patience())
			if underWay == mostRenewals {
				continue
			}
			underWay, sent = underWay+1, time.Now()
			group.Go(func() { answers <- n.attempt() })
		case r := <-answers:
			underWay--
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

// renewal is what became of one.
type renewal struct {
	sent time.Time
	err  error
}

// patience is how long one attempt is waited for before the next.
func (n *session) patience() time.Duration {
	return max(min(minPatience, n.lease.TTL/renewals), n.lease.TTL/30)
}

// attempt renews once. What is not answered by then would come too late, or leave no
// room for others.
func (n *session) attempt() renewal {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, min(n.lease.TTL*2/3, mostRenewals*n.patience()))
	defer cancel()
	_, err := n.store.KeepAlive(ctx, n.lease.ID)
	return renewal{sent, err}
}

// renew moves the deadline, unless it has passed or is later.
func (n *session) renew(sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sent.After(n.renewed) && n.timer.Stop() {
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
