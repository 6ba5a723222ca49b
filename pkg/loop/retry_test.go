package loop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/store"
)

// A frozen etcd member delays the first write with job events by only one short attempt,
// because the next attempt goes to another member.
func TestTheEtcdLeaseOfEventsIsRequestedAgain(t *testing.T) {
	for name, c := range map[string]struct{ frozen, took time.Duration }{
		"frozen": {time.Minute, 300 * time.Millisecond},
		"slow":   {200 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, fake := newStore()
				a := run(t, s, "a", nil)
				a.awaitLead(t, true)
				var grants atomic.Int64
				fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
					if call.Method == store.MethodGrant && grants.Add(1) == 1 {
						_ = store.Sleep(ctx, c.frozen)
					}
					return store.Outcome{}
				})
				began := time.Now()
				if _, err := a.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.took || took > c.took+100*time.Millisecond {
					t.Errorf("answered after %v, want %v", took, c.took)
				}
				fake.SetHook(nil)
			})
		})
	}
}

// While etcd does not answer, only one request for an etcd lease is in flight at a time.
func TestEtcdLeasesRequestedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		var underWay, most, requested atomic.Int64
		fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
			if call.Method != store.MethodGrant {
				return store.Outcome{}
			}
			requested.Add(1)
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			<-ctx.Done()
			return store.Drop()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := a.Do(ctx, put{record: executor("x"), events: 1}); err == nil {
			t.Error("stored without an etcd lease")
		}
		if n := requested.Load(); most.Load() != 1 || n < 6 || n > 20 {
			t.Errorf("%d requests, %d at once; want 6 to 20, one at a time", n, most.Load())
		}
		fake.SetHook(nil)
		a.end()
	})
}
