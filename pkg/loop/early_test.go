package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/store"
)

// The first write of a term finds the etcd lease of its job events granted. One
// that has lain unused is not taken: the events on it would not be kept for as long
// as they are to be.
func TestTheEtcdLeaseOfEventsIsGrantedEarly(t *testing.T) {
	for _, c := range []struct {
		name   string
		idle   time.Duration
		grants int
	}{
		{"at once", 0, 0},
		{"after a while", 2 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, fake := newStore()
				a := run(t, s, "a", nil)
				a.awaitLead(t, true)
				synctest.Wait()
				time.Sleep(c.idle)
				grants := 0
				fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
					if call.Method == store.MethodGrant {
						grants++
					}
					return store.Outcome{}
				})
				for _, id := range []string{"x", "y"} {
					if _, err := a.Do(t.Context(), put{record: executor(id), events: 1}); err != nil {
						t.Fatal(err)
					}
				}
				if grants != c.grants {
					t.Errorf("%d etcd leases were asked for, want %d", grants, c.grants)
				}
			})
		})
	}
}

// Where the early lease is not to be had, the first write asks for one itself.
func TestNoEarlyEtcdLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		lost := 0
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodGrant {
				if lost++; lost == 2 { // the first is the election's
					return store.Drop()
				}
			}
			return store.Outcome{}
		})
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if _, err := a.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil || lost < 3 {
			t.Errorf("after %d grants: %v", lost, err)
		}
	})
}
