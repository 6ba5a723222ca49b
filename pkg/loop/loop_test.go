package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

func TestFailoverOnResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		testFailover(t, s, leader.MinTTL)
		if n := s.open.Load(); n != 0 {
			t.Errorf("%d watches are still open", n)
		}
	})
}

func TestFailoverOnResignEtcd(t *testing.T) { testFailover(t, etcdtest.Start(t).Store(t), etcdTTL) }

// testFailover stops one of two replicas. The other replica takes over at once and has
// everything that the first replica answered.
func testFailover(t *testing.T, s store.Store, ttl time.Duration) {
	a := run(t, s, "a", nil)
	a.awaitLead(t, true)
	term := a.Status().Term
	b := run(t, s, "b", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := a.Do(ctx, put{record: executor("x")}); err != nil {
		t.Fatal(err)
	}
	// A standby follows the store and reports the leader. It also answers the requests that
	// any replica may answer.
	for known := false; !known; {
		if err := b.Peek(ctx, func(c *toy) { known = c.records[executor("x").Ref()] != nil }); err != nil &&
			!fault.Is(err, fault.ReasonNotLeader) {
			t.Fatal(err)
		}
		_ = store.Sleep(ctx, time.Millisecond) // Peek only checks ctx
	}
	for _, call := range []func() error{
		func() error { _, err := b.Do(ctx, get{}); return err },
		func() error { return b.Read(ctx, true, func(*toy) { t.Error("a standby was read") }) },
	} {
		f := fault.Of(call())
		if f.Reason != fault.ReasonNotLeader || f.Meta["leader"] != "a:1" || f.Meta["term"] != strconv.FormatInt(term, 10) {
			t.Errorf("a standby answers %v, %v; term %d", f, f.Meta, term)
		}
	}
	if status := b.Status(); !status.Current || status.Serving || status.Revision < term {
		t.Errorf("a standby's status is %+v", status)
	}

	stopped := time.Now()
	a.end()
	b.awaitLead(t, true)
	// If the key had not been deleted, the failover would take the whole TTL.
	if took := time.Since(stopped); took > 3*ttl/4 {
		t.Errorf("failover took %v", took)
	}
	if value, err := b.Do(ctx, get{executor("x").Ref()}); err != nil || value == nil {
		t.Errorf("the successor does not have a write that its predecessor answered: %v, %v", value, err)
	}
	if status := b.Status(); !status.Serving || status.Term <= term || status.Renewed.IsZero() {
		t.Errorf("the leader's status is %+v", status)
	}
	b.end()
}

// If the leadership is lost, all pending requests and reads get an answer.
func TestLostLeadershipAnswersPendingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		release := make(chan struct{})
		held := make(chan struct{}, 1)
		a := run(t, s, "a", func(*loop.Term, *toy, model.Action) {
			held <- struct{}{}
			<-release // blocks the loop, so that the following calls share a round
		})
		a.awaitLead(t, true)
		answers := make(chan error, 3)
		go a.Do(t.Context(), ping{1}) //nolint:errcheck // blocks the loop
		<-held
		go func() { _, err := a.Do(t.Context(), put{record: executor("x")}); answers <- err }()
		go func() { answers <- a.Read(t.Context(), false, func(*toy) {}) }()
		go func() { answers <- a.Read(t.Context(), true, func(*toy) {}) }()
		synctest.Wait()
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodTxn {
				return store.Drop()
			}
			return store.Outcome{}
		})
		close(release)
		synctest.Wait()
		fake.SetHook(nil)
		evict(t, fake)
		a.awaitLead(t, false)
		for range 3 {
			select {
			case err := <-answers:
				if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable {
					t.Errorf("answered %v, want unavailable", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a pending call was not answered")
			}
		}
		a.awaitLead(t, true) // the same replica starts another term
	})
}

func evict(t *testing.T, s store.Store) {
	t.Helper()
	if _, err := s.Txn(context.Background(),
		store.Txn{Then: []store.Op{store.Delete(space.Key(model.LeaderRef(service)))}}); err != nil {
		t.Fatal(err)
	}
}

// A deposed leader that does not know its state does not answer a confirmed read.
func TestConfirmedReadOfADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if err := a.Read(t.Context(), true, func(*toy) {}); err != nil {
			t.Fatal(err)
		}
		// The key is deleted, but the watches of the replica do not show that.
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodGet {
				fake.SetHook(nil)
				evict(t, fake)
			}
			return store.Outcome{}
		})
		if err := a.Read(t.Context(), true, func(*toy) { t.Error("read") }); fault.Of(err) == nil ||
			fault.Of(err).Kind != fault.Unavailable {
			t.Errorf("answered %v", err)
		}
	})
}

// A read is not executed if its caller has already returned.
func TestNoReadAfterItsCallerHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		blocked, release := make(chan struct{}, 1), make(chan struct{})
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodGet {
				blocked <- struct{}{}
				<-release
			}
			return store.Outcome{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-blocked; cancel() }()
		touched := false
		if err := a.Read(ctx, true, func(*toy) { touched = true }); err == nil {
			t.Error("the read was answered")
		}
		close(release)
		fake.SetHook(nil)
		if err := a.Read(t.Context(), false, func(*toy) {}); err != nil { // in the following round
			t.Fatal(err)
		}
		if touched {
			t.Error("the read ran after its caller got an error")
		}
	})
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		release, held := make(chan struct{}), make(chan struct{}, 1)
		a := run(t, s, "a", func(*loop.Term, *toy, model.Action) { held <- struct{}{}; <-release })
		a.awaitLead(t, true)
		var waiting sync.WaitGroup
		waiting.Go(func() { a.Do(t.Context(), ping{1}) }) //nolint:errcheck // blocks the loop
		<-held
		const inbox = 8192
		for range inbox {
			waiting.Go(func() {
				if _, err := a.Do(t.Context(), get{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := a.Do(t.Context(), get{}); !fault.Is(err, fault.ReasonOverloaded) {
			t.Errorf("one more was answered %v", err)
		}
		close(release)
		waiting.Wait()
	})
}

// A stopped replica rejects requests at once, before its port is closed.
func TestStoppedAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		a.end()
		asked := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := a.Do(ctx, get{})
		if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable || time.Since(asked) > 0 {
			t.Errorf("answered %v after %v", err, time.Since(asked))
		}
		if err := a.Peek(ctx, func(*toy) { t.Error("read") }); err == nil {
			t.Error("a read was answered")
		}
		if _, found, _ := fake.Get(ctx, space.Key(model.LeaderRef(service))); found {
			t.Error("the leadership was not resigned")
		}
		if !reflect.DeepEqual(a.Status(), loop.Status{}) {
			t.Errorf("status %+v", a.Status())
		}
	})
}

// If a replica wins the leadership while it stops, it gives the leadership up.
func TestWonWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		var a *replica
		known := make(chan struct{})
		stop := func(store.Txn) { <-known; a.stop() }
		s.afterTxn.Store(&stop)
		a = run(t, s, "a", nil)
		close(known)
		<-a.ended
		if _, found, _ := fake.Get(t.Context(), space.Key(model.LeaderRef(service))); found {
			t.Error("the leader key still exists, so no other replica can lead")
		}
	})
}

// The events of a job wait until an etcd lease is granted. The term continues.
func TestEventsWaitForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		time.Sleep(2 * time.Second) // the etcd lease that was granted at the start can no longer be used
		term := a.Status().Term
		refused := 0
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodGrant && refused < 5 {
				refused++
				return store.Drop()
			}
			return store.Outcome{}
		})
		if _, err := a.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil {
			t.Fatal(err)
		}
		if refused != 5 || a.Status().Term != term {
			t.Errorf("%d grants failed, term %d after %d", refused, a.Status().Term, term)
		}
		// The events wait at most until the end of the term.
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodGrant {
				return store.Drop()
			}
			return store.Outcome{}
		})
		go func() {
			time.Sleep(15 * time.Minute) // longer than the rotation interval
			evict(t, fake)
		}()
		time.Sleep(11 * time.Minute)
		if _, err := a.Do(t.Context(), put{record: executor("y"), events: 1}); fault.Of(err) == nil ||
			fault.Of(err).Kind != fault.Unavailable {
			t.Errorf("answered %v", err)
		}
		fake.SetHook(nil)
	})
}

// The driver starts a new etcd lease for events after some time and after many events. The
// end of a lease with very many keys would stall etcd.
func TestEventLeaseRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		for range 60 {
			if _, err := a.Do(t.Context(), put{record: executor("x"), events: 100}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Minute)
		if _, err := a.Do(t.Context(), put{record: executor("x"), events: 1}); err != nil {
			t.Fatal(err)
		}
		keys := map[int64]int{}
		for _, revision := range fake.History() {
			for _, change := range revision.Changes {
				if strings.HasPrefix(change.Key, space.Events()) && !change.Deleted {
					keys[change.Lease]++
				}
			}
		}
		var counts []int
		for lease, n := range keys {
			if lease == 0 {
				t.Errorf("%d events never end", n)
			}
			counts = append(counts, n)
		}
		slices.Sort(counts)
		if !slices.Equal(counts, []int{1, 1000, 5000}) {
			t.Errorf("etcd leases with %v events", counts)
		}
	})
}

// If a leader has missed changes, it can no longer trust its view, so a new term begins.
func TestCompactedViewBeginsANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		term := a.Status().Term
		s.compacted.Store(true)
		value := []byte{}
		if _, err := fake.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(space.Key(gate("g")), value)}}); err != nil {
			t.Fatal(err)
		}
		a.awaitLead(t, false)
		a.awaitLead(t, true)
		if now := a.Status().Term; now <= term {
			t.Errorf("term %d after %d", now, term)
		}
		known := false
		if err := a.Read(t.Context(), true, func(c *toy) { known = c.records[gate("g")] != nil }); err != nil || !known {
			t.Errorf("the missed change is known: %v, %v", known, err)
		}
	})
}

// A leader whose core hangs keeps renewing its etcd lease. The loop therefore makes it give
// up the leadership.
func TestHangingLoopLosesLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		release := make(chan struct{})
		a := run(t, s, "a", func(*loop.Term, *toy, model.Action) { <-release })
		a.awaitLead(t, true)
		b := run(t, s, "b", nil)
		waits := make(chan error, 1)
		go func() { _, err := a.Do(t.Context(), ping{1}); waits <- err }()
		a.awaitLead(t, false)
		b.awaitLead(t, true)
		if a.Status().Serving {
			t.Error("a hanging loop is reported as serving")
		}
		close(release)
		if err := <-waits; err != nil && fault.Of(err).Kind != fault.Unavailable {
			t.Error(err)
		}
	})
}

// The event of a call reaches only the term that made the call. After the end of that term,
// posting an event never blocks.
func TestPostAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		over := make(chan struct{})
		a := run(t, s, "a", func(term *loop.Term, _ *toy, action model.Action) {
			p := action.(ping)
			term.Go("peer", nil, func(ctx context.Context) {
				if p.n == 2 {
					<-ctx.Done()
				}
				term.Post(p)
				if p.n == 2 {
					close(over)
				}
			})
		})
		a.awaitLead(t, true)
		for n := 1; n <= 2; n++ {
			if value, err := a.Do(t.Context(), ping{n}); err != nil || value != n {
				t.Fatal(value, err)
			}
		}
		synctest.Wait()
		if err := a.Read(t.Context(), false, func(c *toy) {
			if !slices.Contains(c.received, "pong 1") {
				t.Errorf("told %q", c.received)
			}
		}); err != nil {
			t.Fatal(err)
		}
		evict(t, fake)
		a.awaitLead(t, true)
		<-over
		if err := a.Read(t.Context(), true, func(c *toy) {
			if slices.Contains(c.received, "pong 2") {
				t.Error("the core got an input that was posted for an earlier term")
			}
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if err := a.Read(t.Context(), false, func(c *toy) {
			c.received, c.next = nil,
				time.Now().Add(90*time.Minute)
		}); err != nil {
			t.Fatal(err)
		}
		received := func() (received bool) {
			synctest.Wait()
			if err := a.Read(t.Context(), false, func(c *toy) { received = slices.Contains(c.received, "nil") }); err != nil {
				t.Fatal(err)
			}
			return received
		}
		time.Sleep(90*time.Minute - time.Nanosecond)
		if received() {
			t.Error("the core got the deadline too early")
		}
		time.Sleep(time.Nanosecond)
		if !received() {
			t.Error("the core did not get the deadline in time")
		}
	})
}

// If terms fail one after the other, the pauses between them grow.
func TestFailingTermsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		var terms atomic.Int64
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if call.Method == store.MethodTxn && len(call.Txn.Then) == 1 && !call.Txn.Then[0].Delete &&
				call.Txn.Then[0].Lease != 0 {
				terms.Add(1)
			}
			if call.Method == store.MethodTxn && len(call.Txn.Then) > 1 {
				return store.Refuse(fmt.Errorf("%w: by the test", store.ErrDenied))
			}
			return store.Outcome{}
		})
		a := run(t, s, "a", nil)
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			_, err := a.Do(t.Context(), put{record: executor("x")})
			if err == nil {
				t.Fatal("stored")
			}
			if !errors.As(err, new(*fault.Error)) {
				t.Errorf("%T", err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := terms.Load(); n > 40 {
			t.Errorf("%d terms in 20 s", n)
		}
	})
}

// If a call to a peer panics, the core gets a substitute for the lost answer. The replica
// keeps leading, and the panic becomes a finding.
func TestACallThatPanicsIsAFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", func(term *loop.Term, _ *toy, action model.Action) {
			term.Go("executor e", ping{7}, func(context.Context) { panic("a lie") })
		})
		a.awaitLead(t, true)
		before := a.Status().Term
		for range 2 {
			if _, err := a.Do(t.Context(), ping{1}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := a.Read(t.Context(), false, func(c *toy) {
			if !slices.Contains(c.received, "pong 7") {
				t.Errorf("told %q", c.received)
			}
		}); err != nil {
			t.Fatal(err)
		}
		status := a.Status()
		if status.Term != before || len(status.Panics) != 1 {
			t.Fatalf("term %d, was %d; panics %v", status.Term, before, status.Panics)
		}
		f := status.Findings(model.ServiceAssigner)[0]
		if f.GetKind() != loop.FindingPeerPanic || f.GetObject() != "executor e" ||
			f.GetMessage() != "the handler of its messages panicked (count 2): a lie" {
			t.Errorf("the finding is %v", f)
		}
	})
}
