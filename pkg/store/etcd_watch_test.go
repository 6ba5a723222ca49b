package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

// If etcd is unreachable, a caller that waits for a watch waits only until its deadline,
// because a term that has ended must stop.
func TestWatchOfEtcdOutOfReach(t *testing.T) {
	s, err := store.Dial(store.DialConfig{Endpoints: []string{porttest.Hold(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.Watch("p/", 1)
	defer w.Close()
	if _, told, err := w.TryNext(); told || err != nil {
		t.Errorf("delivered %v, %v", told, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next: %v", err)
	}
}

// If its etcd member is excluded, a watch continues at the same revision on another member.
func TestWatchMovesOn(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	writer := cluster.Store(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	put := func() int64 {
		t.Helper()
		res, err := writer.Txn(ctx, store.Txn{Then: []store.Op{store.Put("p/k", nil)}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Revision
	}
	first := put()
	for _, member := range cluster.Endpoints() {
		s := cluster.Store(t)
		w := s.Watch("p/", first)
		defer w.Close()
		next := first
		follow := func(to int64) {
			t.Helper()
			for next <= to {
				b, err := w.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range b.Changes {
					if c.Mod != next {
						t.Fatalf("revision %d and not %d", c.Mod, next)
					}
					next++
				}
			}
		}
		follow(put())
		s.LeaveOut(member)
		for range 50 {
			follow(put())
		}
		for slices.Contains(s.Client().Endpoints(), member) {
			s.Suspect() // repeated because all members may have been slow
			follow(put())
		}
		follow(put())
	}
}
