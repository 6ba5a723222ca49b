package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"berth.dev/pkg/store"
)

// renewal is a request to renew some etcd leases.
type renewal struct {
	ctx    context.Context // the context of the caller
	leases []int64
	// done is closed when all leases are answered.
	done chan struct{}

	mu   sync.Mutex
	errs []error
	left int
}

func newRenewal(ctx context.Context, leases []int64) *renewal {
	n := &renewal{ctx: ctx, leases: leases, done: make(chan struct{}), left: len(leases), errs: make([]error, len(leases))}
	for i := range n.errs {
		n.errs[i] = errUnanswered
	}
	return n
}

// answer records the result for the lease with index i.
func (n *renewal) answer(i int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs[i] = err
	if n.left--; n.left == 0 {
		close(n.done)
	}
}

// outcome returns the result for each lease; missing is the result for leases without an
// answer.
func (n *renewal) outcome(missing error) []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := slices.Clone(n.errs)
	for i, err := range errs {
		if err == errUnanswered {
			errs[i] = missing
		}
	}
	return errs
}

// pending holds the renewals that were sent over a stream and have no answer yet.
type pending struct {
	mu      sync.Mutex
	byLease map[int64][]place
	since   time.Time // the time of the last progress
}

// place is one lease of a renewal, which receives an answer.
type place struct {
	of *renewal
	i  int
}

func (p *pending) add(n *renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byLease) == 0 {
		p.since = time.Now()
	}
	for i, lease := range n.leases {
		p.byLease[lease] = append(p.byLease[lease], place{n, i})
	}
}

func (p *pending) answer(lease, ttl int64) {
	var err error
	if ttl <= 0 {
		err = store.ErrLeaseNotFound
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	places := p.byLease[lease]
	switch len(places) {
	case 0:
		return
	case 1:
		delete(p.byLease, lease)
	default:
		p.byLease[lease] = places[1:]
	}
	places[0].of.answer(places[0].i, err)
}

func (p *pending) overdue(after time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byLease) > 0 && time.Since(p.since) > after
}

func (p *pending) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for lease, places := range p.byLease {
		for _, at := range places {
			at.of.answer(at.i, err)
		}
		delete(p.byLease, lease)
	}
}
