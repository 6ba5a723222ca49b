package liveness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

// start starts a renewer with a new etcd.
func start(t *testing.T) (*Renewer, *store.Etcd) {
	t.Helper()
	s := etcdtest.Start(t).Store(t)
	r := NewRenewer(s.Client())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r, s
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// one renews a single etcd lease.
func (r *Renewer) one(ctx context.Context, lease int64) error { return r.Renew(ctx, []int64{lease})[0] }

// If many etcd leases are renewed at once, in one call or in many, each lease gets its own
// answer.
func TestRenewMany(t *testing.T) {
	r, s := start(t)
	ctx := within(t)
	const n = maxRenewal + 100
	leases := make([]int64, n)
	for i := range leases {
		lease, err := s.Grant(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if leases[i] = lease.ID; i%5 == 0 {
			if err := s.Revoke(ctx, lease.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all sync.WaitGroup
	answered := func(i int, err error) {
		if gone := i%5 == 0; gone != errors.Is(err, store.ErrLeaseNotFound) || !gone && err != nil {
			t.Errorf("lease %d (expired: %v): %v", i, gone, err)
		}
	}
	for range 2 {
		for i, lease := range leases {
			all.Go(func() { answered(i, r.one(ctx, lease)) })
		}
		all.Go(func() {
			for i, err := range r.Renew(ctx, leases) {
				answered(i, err)
			}
		})
	}
	all.Wait()
	if errs := r.Renew(ctx, nil); len(errs) > 0 {
		t.Errorf("nothing is renewed with %v", errs)
	}
	over, end := context.WithCancel(ctx)
	end()
	for i, err := range r.Renew(over, leases) {
		// The answer may have arrived before the cancel.
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("lease %d of a canceled call: %v", i, err)
		}
	}
}

// A renewal gives the etcd lease its full TTL. Without renewals the etcd lease expires, and the
// next renewal returns an error.
func TestRenewExtendsAndReportsExpired(t *testing.T) {
	r, s := start(t)
	ctx := within(t)
	// If a renewal was late because the machine paused, the result proves nothing. The test
	// therefore retries a few times.
	for tries := 10; ; tries-- {
		gap, err := keepOne(ctx, r, s, fmt.Sprint(tries))
		if err == nil {
			return
		}
		if gap < time.Second/2 || tries == 1 {
			t.Fatalf("%v; longest time without a renewal: %v", err, gap)
		}
	}
}

// keepOne renews one of two etcd leases until the other one expires. It returns the longest
// time between two renewals.
func keepOne(ctx context.Context, r *Renewer, s *store.Etcd, name string) (gap time.Duration, err error) {
	last := time.Now()
	kept, err := s.Grant(ctx, time.Second)
	if err != nil {
		return 0, err
	}
	missed, err := s.Grant(ctx, time.Second)
	if err != nil {
		return 0, err
	}
	defer func() { gap = max(gap, time.Since(last)) }()
	if _, err := s.Txn(ctx, store.Txn{Then: []store.Op{{Key: "missed-" + name, Lease: missed.ID},
		{Key: "kept-" + name, Lease: kept.ID}}}); err != nil {
		return 0, err
	}
	watch := s.Watch("missed-"+name, 1)
	defer watch.Close()
	deleted := make(chan error, 1)
	go func() {
		for {
			b, err := watch.Next(ctx)
			if err != nil || b.Changes[len(b.Changes)-1].Deleted {
				deleted <- err
				return
			}
		}
	}()
	tick := time.NewTicker(kept.TTL / 10)
	defer tick.Stop()
	for {
		began := time.Now()
		err := r.one(ctx, kept.ID)
		gap = max(gap, time.Since(last))
		if err != nil {
			return gap, fmt.Errorf("one that is renewed: %w", err)
		}
		last = began
		select {
		case err := <-deleted:
			if err != nil {
				return gap, err
			}
			if err := r.one(ctx, missed.ID); !errors.Is(err, store.ErrLeaseNotFound) {
				return gap, fmt.Errorf("an expired etcd lease: %v", err)
			}
			if _, found, err := s.Get(ctx, "kept-"+name); err != nil || !found {
				return gap, fmt.Errorf("one that was kept: %v, %v", found, err)
			}
			return gap, nil
		case <-tick.C:
		}
	}
}
