package liveness

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/store"
	"berth.dev/pkg/store/etcdtest"
)

// start runs a renewer on an etcd of its own.
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// one renews an etcd lease by itself.
func (r *Renewer) one(ctx context.Context, lease int64) error { return r.Renew(ctx, []int64{lease})[0] }

// Many at once are all answered, each its own answer, whether they are asked for
// together or one by one.
func TestRenewMany(t *testing.T) {
	r, s := start(t)
	ctx := within(t)
	const n = together + 100
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
			t.Errorf("lease %d (gone: %v): %v", i, gone, err)
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
		// It may have been answered all the same.
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("lease %d, of who waits no more: %v", i, err)
		}
	}
}

// A renewal gives the etcd lease its whole TTL; without one it runs out, and that
// is an error.
func TestRenewKeepsAndMissesRunOut(t *testing.T) {
	r, s := start(t)
	ctx := within(t)
	kept, err := s.Grant(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	missed, err := s.Grant(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Txn(ctx, store.Txn{Then: []store.Op{{Key: "missed", Lease: missed.ID}, {Key: "kept", Lease: kept.ID}}}); err != nil {
		t.Fatal(err)
	}
	watch := s.Watch("missed", 1)
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
		if err := r.one(ctx, kept.ID); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-deleted:
			if err != nil {
				t.Fatal(err)
			}
			if err := r.one(ctx, missed.ID); !errors.Is(err, store.ErrLeaseNotFound) {
				t.Errorf("an etcd lease that ran out: %v", err)
			}
			if _, found, err := s.Get(ctx, "kept"); err != nil || !found {
				t.Errorf("one that was kept: %v, %v", found, err)
			}
			return
		case <-tick.C:
		}
	}
}
