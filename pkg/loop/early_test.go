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

// A member of etcd that is frozen does not hold up the first write with job events:
// another is asked beside it. What the first one grants after all is given back.
func TestTheEtcdLeaseOfEventsIsAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		name                     string
		frozen                   time.Duration
		idle                     time.Duration // after which the early one is given back
		answered                 time.Duration
		wantGranted, wantRevoked int64
	}{
		{"at the beginning of a term", time.Second, 0, 300 * time.Millisecond, 2, 1},
		{"later", time.Second, time.Minute, 300 * time.Millisecond, 2, 2},
		{"not at once", 200 * time.Millisecond, time.Minute, 200 * time.Millisecond, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, fake := newStore()
				var granted, revoked atomic.Int64
				freezes := func(_ context.Context, call store.Call) store.Outcome {
					switch call.Method {
					case store.MethodGrant:
						if granted.Add(1) == 1 {
							time.Sleep(c.frozen)
						}
					case store.MethodRevoke:
						revoked.Add(1)
					}
					return store.Outcome{}
				}
				elected := false
				fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
					if call.Method == store.MethodGrant && !elected { // the first is the election's
						elected = true
						if c.idle == 0 {
							fake.SetHook(freezes)
						}
					}
					return store.Outcome{}
				})
				a := run(t, s, "a", nil)
				<-a.serving
				if c.idle != 0 {
					time.Sleep(c.idle)
					fake.SetHook(freezes)
				}
				began := time.Now()
				if _, err := a.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > c.answered || took < c.answered/2 {
					t.Errorf("answered after %v, want %v", took, c.answered)
				}
				time.Sleep(2 * time.Second)
				if g, r := granted.Load(), revoked.Load(); g != c.wantGranted || r != c.wantRevoked {
					t.Errorf("%d etcd leases were granted and %d given back, want %d and %d", g, r, c.wantGranted, c.wantRevoked)
				}
				fake.SetHook(nil)
			})
		})
	}
}

// An etcd that answers nobody is not asked ever more: what is under way is bounded.
func TestEtcdLeasesAskedForAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		time.Sleep(time.Minute) // the early one is of no use any more
		var underWay, most, asked atomic.Int64
		fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
			if call.Method != store.MethodGrant {
				return store.Outcome{}
			}
			asked.Add(1)
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
		if most.Load() != 3 || asked.Load() < 6 {
			t.Errorf("%d were asked for, %d at once; want 3 at once, again and again", asked.Load(), most.Load())
		}
		fake.SetHook(nil)
		a.end()
	})
}
