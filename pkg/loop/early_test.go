package loop_test

import (
	"context"
	"sync/atomic"
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

// Who is told that it may lead in a moment has the etcd lease granted by then. What
// comes of nothing is given back.
func TestPreparedBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		b := run(t, s, "b", nil)
		synctest.Wait()
		var granted, revoked atomic.Int64
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			switch call.Method {
			case store.MethodGrant:
				granted.Add(1)
			case store.MethodRevoke:
				revoked.Add(1)
			}
			return store.Outcome{}
		})
		for range 3 { // for nothing, the first time
			b.Prepare()
			b.Prepare()
		}
		synctest.Wait()
		if n := granted.Load(); n != 1 {
			t.Errorf("%d etcd leases for one suspicion", n)
		}
		time.Sleep(2 * time.Second)
		if n := revoked.Load(); n != 1 {
			t.Errorf("%d of them are given back", n)
		}
		b.Prepare()
		synctest.Wait()
		if n := granted.Load(); n != 2 {
			t.Errorf("%d etcd leases for two suspicions", n)
		}
		a.end()
		b.awaitLead(t, true)
		granted.Store(0)
		revoked.Store(0)
		if _, err := b.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if g, r := granted.Load(), revoked.Load(); g+r != 0 {
			t.Errorf("the term began with %d etcd leases more, and %d were given back", g, r)
		}
		fake.SetHook(nil)
	})
}
