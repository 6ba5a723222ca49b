package leader_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ttl is the shortest TTL of an election.
const ttl = leader.MinTTL

// etcdTTL is the TTL of tests in real time. It is long, so that a busy machine does not end
// a leadership.
const etcdTTL = 30 * time.Second

// suite has the tests of an election that run on every store.
var suite = map[string]func(t *testing.T, s store.Store, key string, ttl time.Duration){
	"SecondWinsOnResign":     testSecondWinsOnResign,
	"SecondWinsOnExpiry":     testSecondWinsOnExpiry,
	"StepsDownOnDelete":      testStepsDownOnDelete,
	"StepsDownOnReplacement": testStepsDownOnReplacement,
	"LeaseDeadWhileWaiting":  testLeaseDeadWhileWaiting,
	"LostAnswer":             testLostAnswer,
	"ResignRepeats":          testResignRepeats,
	"Observe":                testObserve,
}

func TestFake(t *testing.T) {
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, store.NewFake(store.FakeConfig{}), "leaders/x", ttl)
			})
		})
	}
}

func TestEtcd(t *testing.T) {
	cluster := etcdtest.Start(t)
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cluster.Store(t), "leaders/"+name, etcdTTL)
		})
	}
}

func newElection(t *testing.T, s store.Store, key, id string) *leader.Election {
	t.Helper()
	return newElectionFor(t, s, key, id, ttl)
}

// newElectionFor is like newElection, but with the given TTL.
func newElectionFor(t *testing.T, s store.Store, key, id string, ttl time.Duration) *leader.Election {
	t.Helper()
	e, err := leader.New(leader.Config{Store: s, Key: key, TTL: ttl,
		Candidate: leader.Candidate{ID: id, Instance: id + "-x", Address: id + ":1", Version: "v1"}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// win campaigns and returns the leadership. When the test ends, the leadership is resigned.
func win(t *testing.T, e *leader.Election) *leader.Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := e.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Resign(context.Background()) })
	return l
}

// campaign runs win in a goroutine and returns a channel with the leadership.
func campaign(t *testing.T, e *leader.Election) <-chan *leader.Leadership {
	won, ended := make(chan *leader.Leadership, 1), make(chan struct{})
	var l *leader.Leadership
	go func() {
		defer close(ended)
		defer close(won)
		var err error
		if l, err = e.Campaign(t.Context()); err == nil {
			won <- l
		}
	}()
	t.Cleanup(func() {
		<-ended
		if l != nil {
			_ = l.Resign(context.Background())
		}
	})
	return won
}

// spy wraps a store and lets a test observe and replace calls.
type spy struct {
	store.Store
	txns      atomic.Int64
	granted   atomic.Int64 // the ID of the last etcd lease that was granted
	keepAlive func(ctx context.Context, next func() (time.Duration, error)) (time.Duration, error)
	txn       func(n int64, next func() (store.TxnResult, error)) (store.TxnResult, error)
}

func (s *spy) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	l, err := s.Store.Grant(ctx, ttl)
	s.granted.Store(l.ID)
	return l, err
}

func (s *spy) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	next := func() (time.Duration, error) { return s.Store.KeepAlive(ctx, id) }
	if s.keepAlive == nil {
		return next()
	}
	return s.keepAlive(ctx, next)
}

func (s *spy) Txn(ctx context.Context, txn store.Txn) (store.TxnResult, error) {
	n := s.txns.Add(1)
	next := func() (store.TxnResult, error) { return s.Store.Txn(ctx, txn) }
	if s.txn == nil {
		return next()
	}
	return s.txn(n, next)
}

// frozen blocks a renewal until its timeout, as a frozen etcd member does.
func frozen(ctx context.Context, _ func() (time.Duration, error)) (time.Duration, error) {
	<-ctx.Done()
	return 0, fmt.Errorf("%w: frozen", store.ErrAmbiguous)
}

// waits returns once the candidate waits for the end of the term.
func waits(t *testing.T, e *leader.Election, term int64) {
	t.Helper()
	for t.Context().Err() == nil && !e.WaitsFor(term) {
		time.Sleep(time.Millisecond)
	}
}

func testSecondWinsOnResign(t *testing.T, s store.Store, key string, ttl time.Duration) {
	first := win(t, newElectionFor(t, s, key, "a", ttl))
	if !first.Valid() || first.Err() != nil || first.Revision() != first.Term() {
		t.Errorf("the winner is not valid: %v", first.Err())
	}
	e := newElectionFor(t, s, key, "b", ttl)
	won := campaign(t, e)
	waits(t, e, first.Term())
	select {
	case <-won:
		t.Fatal("two leaders")
	default:
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.Valid() || !errors.Is(first.Err(), leader.ErrResigned) {
		t.Errorf("resigned, but valid %v, err %v", first.Valid(), first.Err())
	}
	second := <-won
	if second.Term() <= first.Term() {
		t.Errorf("term %d after term %d", second.Term(), first.Term())
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Errorf("resigning twice: %v", err)
	}
	if kv, found, err := s.Get(t.Context(), key); err != nil || !found || kv.Create != second.Term() {
		t.Errorf("the earlier leader resigned the later one's key: %+v, %v", kv, err)
	}
}

// On every store, the etcd lease that expires has the shortest TTL, because the test waits
// for its end.
func testSecondWinsOnExpiry(t *testing.T, s store.Store, key string, given time.Duration) {
	bubble := given == ttl // simulated time
	first := win(t, newElection(t, &spy{Store: s, keepAlive: frozen}, key, "a"))
	began := time.Now()
	won := campaign(t, newElection(t, s, key, "b"))
	second := <-won
	if first.Valid() {
		t.Fatal("two leaders, both valid")
	}
	<-first.Done()
	// If a test in real time is delayed, the leader may be expired or deposed.
	expired := errors.Is(first.Err(), leader.ErrExpired) || !bubble && errors.Is(first.Err(), leader.ErrDeposed)
	if !expired || second.Term() <= first.Term() {
		t.Errorf("first: %v, terms %d and %d", first.Err(), first.Term(), second.Term())
	}
	if took := time.Since(began); bubble && took > 2*ttl {
		t.Errorf("took %v", took)
	}
}

func testStepsDownOnDelete(t *testing.T, s store.Store, key string, ttl time.Duration) {
	l := win(t, newElectionFor(t, s, key, "a", ttl))
	if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete(key)}}); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	if !errors.Is(l.Err(), leader.ErrDeposed) || l.Valid() {
		t.Errorf("err %v, valid %v", l.Err(), l.Valid())
	}
}

func testStepsDownOnReplacement(t *testing.T, s store.Store, key string, ttl time.Duration) {
	l := win(t, newElectionFor(t, s, key, "a", ttl))
	for _, op := range []store.Op{store.Delete(key), store.Put(key, nil)} {
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	<-l.Done()
	if !errors.Is(l.Err(), leader.ErrDeposed) {
		t.Errorf("err %v", l.Err())
	}
}

// If the etcd lease of a candidate expires while the candidate waits, the election of the
// etcd client library makes it the leader without a key. Berth's election must not do that.
func testLeaseDeadWhileWaiting(t *testing.T, s store.Store, key string, ttl time.Duration) {
	first := win(t, newElectionFor(t, s, key, "a", ttl))
	second := &spy{Store: s}
	e := newElectionFor(t, second, key, "b", ttl)
	won := campaign(t, e)
	waits(t, e, first.Term())
	if err := s.Revoke(t.Context(), second.granted.Load()); err != nil {
		t.Fatal(err)
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := <-won
	kv, found, err := s.Get(t.Context(), key)
	if err != nil || !found || kv.Create != l.Term() || kv.Lease != second.granted.Load() {
		t.Fatalf("leads at term %d without its key: %+v, %v", l.Term(), kv, err)
	}
	if _, err := s.KeepAlive(t.Context(), kv.Lease); err != nil || !l.Valid() {
		t.Errorf("leads on an expired lease: %v", err)
	}
}

// If the answer to a winning transaction is lost, the candidate still wins.
func testLostAnswer(t *testing.T, s store.Store, key string, ttl time.Duration) {
	lossy := &spy{Store: s, txn: func(n int64, next func() (store.TxnResult, error)) (store.TxnResult, error) {
		res, err := next()
		if n == 1 {
			return store.TxnResult{}, fmt.Errorf("%w: answer lost", store.ErrAmbiguous)
		}
		return res, err
	}}
	l := win(t, newElectionFor(t, lossy, key, "a", ttl))
	if kv, _, err := s.Get(t.Context(), key); err != nil || kv.Create != l.Term() {
		t.Errorf("term %d, key %+v, %v", l.Term(), kv, err)
	}
}

func testResignRepeats(t *testing.T, s store.Store, key string, ttl time.Duration) {
	broken := &spy{Store: s, txn: func(n int64, next func() (store.TxnResult, error)) (store.TxnResult, error) {
		if n == 2 || n == 3 {
			return store.TxnResult{}, fmt.Errorf("%w: down", store.ErrAmbiguous)
		}
		return next()
	}}
	l := win(t, newElectionFor(t, broken, key, "a", ttl))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Resign(ctx); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("resign without time: %v", err)
	}
	if err := l.Resign(t.Context()); err != nil {
		t.Errorf("second resign: %v", err)
	}
	if _, found, err := s.Get(t.Context(), key); err != nil || found {
		t.Errorf("the key still exists: %v, %v", found, err)
	}
}

func testObserve(t *testing.T, s store.Store, key string, ttl time.Duration) {
	type seen struct {
		id   string
		term int64
	}
	reports := make(chan seen)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- leader.Observe(ctx, s, key, func(h leader.Holder, found bool) bool {
			if found != (h.Term != 0) {
				t.Errorf("found %v, %+v", found, h)
			}
			reports <- seen{h.ID, h.Term}
			return true
		})
	}()
	expect := func(want seen) {
		t.Helper()
		if got := <-reports; got != want {
			t.Errorf("reported %+v, want %+v", got, want)
		}
	}
	expect(seen{})
	first := win(t, newElectionFor(t, s, key, "a", ttl))
	expect(seen{"a", first.Term()})
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(seen{})
	second := win(t, newElectionFor(t, s, key, "b", ttl))
	expect(seen{"b", second.Term()})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("observe ended with %v", err)
	}
}
