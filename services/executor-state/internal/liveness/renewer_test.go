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
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Many at once are all answered, each its own answer.
func TestRenewMany(t *testing.T) {
	r, s := start(t)
	ctx := within(t)
	const n = 500
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
	for round := range 4 {
		for i, lease := range leases {
			all.Go(func() {
				err := r.Renew(ctx, lease)
				if gone := i%5 == 0; gone != errors.Is(err, store.ErrLeaseNotFound) || !gone && err != nil {
					t.Errorf("round %d, lease %d (gone: %v): %v", round, i, gone, err)
				}
			})
		}
	}
	all.Wait()
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
		if err := r.Renew(ctx, kept.ID); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-deleted:
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Renew(ctx, missed.ID); !errors.Is(err, store.ErrLeaseNotFound) {
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
