package leader_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
)

// onFake runs a test on a fake store with simulated time.
func onFake(t *testing.T, test func(t *testing.T, f *store.Fake)) {
	synctest.Test(t, func(t *testing.T) { test(t, store.NewFake(store.FakeConfig{})) })
}

func TestALeaderRenewsItsLease(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		l := win(t, newElection(t, f, "x", "a"))
		time.Sleep(100 * ttl)
		if !l.Valid() || time.Since(l.Renewed()) > ttl/6 || time.Since(l.Since()) != 100*ttl {
			t.Errorf("valid %v, renewed %v ago, leading for %v", l.Valid(), time.Since(l.Renewed()), time.Since(l.Since()))
		}
	})
}

// If renewals hang, the leadership ends well before the etcd lease expires.
func TestRenewDeadline(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		l := win(t, newElection(t, &spy{Store: f, keepAlive: frozen}, "x", "a"))
		began := time.Now()
		<-l.Done()
		if took := time.Since(began); took != ttl*2/3 {
			t.Errorf("done after %v, want %v", took, ttl*2/3)
		}
		if _, found, _ := f.Get(t.Context(), "x"); !found {
			t.Error("the etcd lease expired first")
		}
		if !errors.Is(l.Err(), leader.ErrExpired) || l.Valid() {
			t.Errorf("err %v, valid %v", l.Err(), l.Valid())
		}
	})
}

// If one of three etcd members hangs, some attempts fail, but the leadership continues.
func TestOneHungMemberDoesNotEndTheLeadership(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		var n atomic.Int64
		s := &spy{Store: f, keepAlive: func(ctx context.Context, next func() (time.Duration, error)) (time.Duration, error) {
			if n.Add(1)%3 == 0 {
				return frozen(ctx, next)
			}
			return next()
		}}
		l := win(t, newElection(t, s, "x", "a"))
		time.Sleep(time.Hour)
		if !l.Valid() {
			t.Errorf("leadership lost: %v", l.Err())
		}
	})
}

// The deadline of a leadership counts from the time at which the renewal was sent. A slow
// answer proves only that the etcd lease existed while the request was in flight.
func TestDeadlineCountsFromTheSend(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		var last time.Time
		var n atomic.Int64
		s := &spy{Store: f, keepAlive: func(ctx context.Context, next func() (time.Duration, error)) (time.Duration, error) {
			if n.Add(1) > 1 {
				return frozen(ctx, next)
			}
			last = time.Now()
			defer time.Sleep(500 * time.Millisecond)
			return next()
		}}
		l := win(t, newElection(t, s, "x", "a"))
		<-l.Done()
		if took := time.Since(last); took != ttl*2/3 || l.Renewed() != last {
			t.Errorf("done %v after the last renewal was sent, want %v", took, ttl*2/3)
		}
	})
}

// etcd reports an expired lease with a TTL of 0.
func TestExpiredLease(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		s := &spy{Store: f, keepAlive: func(context.Context, func() (time.Duration, error)) (time.Duration, error) {
			return 0, store.ErrLeaseNotFound
		}}
		l := win(t, newElection(t, s, "x", "a"))
		began := time.Now()
		<-l.Done()
		if took := time.Since(began); took > ttl/6 || !errors.Is(l.Err(), store.ErrLeaseNotFound) {
			t.Errorf("done after %v: %v", took, l.Err())
		}
	})
}

func TestAnUnreachableStoreElectsNoReplica(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		f.SetHook(func(context.Context, store.Call) store.Outcome { return store.Drop() })
		won := campaign(t, newElection(t, f, "x", "a"))
		time.Sleep(time.Hour)
		select {
		case <-won:
			t.Fatal("leads without a store")
		default:
		}
		f.SetHook(nil)
		back := time.Now()
		if l := <-won; !l.Valid() || time.Since(back) > 2*time.Second {
			t.Errorf("valid %v, %v after the store was back", l.Valid(), time.Since(back))
		}
	})
}

// When the context of a candidate ends, the candidate revokes its etcd lease.
func TestCampaignEndsWithItsContext(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		win(t, newElection(t, f, "x", "a"))
		s := &spy{Store: f}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := newElection(t, s, "x", "b").Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("campaign: %v", err)
		}
		if _, err := f.KeepAlive(t.Context(), s.granted.Load()); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("the lease still exists: %v", err)
		}
	})
}

// If a watch breaks or is compacted, candidates and leaders still see every change.
func TestABrokenWatchMissesNoChange(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		first := win(t, newElection(t, f, "x", "a"))
		e := newElection(t, f, "x", "b")
		won := campaign(t, e)
		waits(t, e, first.Term())
		f.BreakWatches()
		_, _ = f.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete("x"), store.Put("y", nil)}})
		f.Compact(f.Revision())
		<-first.Done()
		if !errors.Is(first.Err(), leader.ErrDeposed) {
			t.Errorf("first: %v", first.Err())
		}
		if second := <-won; second.Term() <= first.Term() {
			t.Errorf("terms %d and %d", first.Term(), second.Term())
		}
	})
}

// When etcd elects a leader, it extends every lease to its full TTL, which delays the
// failover.
func TestFailoverAfterRefresh(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		first := win(t, newElection(t, &spy{Store: f, keepAlive: frozen}, "x", "a"))
		won := campaign(t, newElection(t, f, "x", "b"))
		time.Sleep(ttl - time.Millisecond)
		f.RefreshLeases()
		began := time.Now()
		second := <-won
		if took := time.Since(began); took < ttl || took > ttl+time.Second || second.Term() <= first.Term() {
			t.Errorf("took %v", took)
		}
	})
}

func TestTermsRise(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		last := int64(0)
		for i := range 20 {
			l := win(t, newElection(t, f, "x", fmt.Sprint(i)))
			if l.Term() <= last || l.Revision() != f.Revision() {
				t.Errorf("term %d after %d", l.Term(), last)
			}
			last = l.Term()
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestInvalidConfigIsRejected(t *testing.T) {
	me := leader.Candidate{ID: "a"}
	for name, cfg := range map[string]leader.Config{
		"short": {Candidate: me, TTL: time.Second},
		"long":  {Candidate: me, TTL: time.Hour},
		"no id": {},
		"bytes": {Candidate: leader.Candidate{ID: "\xff"}},
	} {
		if _, err := leader.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// On a busy machine, etcd may take seconds for every call. No leader loses its leadership
// then, because an answer counts until the deadline that it extends.
func TestSlowRenewalsCount(t *testing.T) {
	const slow = 900 * time.Millisecond
	onFake(t, func(t *testing.T, f *store.Fake) {
		var under, most atomic.Int64
		s := &spy{Store: f, keepAlive: func(_ context.Context, next func() (time.Duration, error)) (time.Duration, error) {
			defer under.Add(-1)
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			left, err := next()
			time.Sleep(slow)
			return left, err
		}}
		l := win(t, newElection(t, s, "x", "a"))
		time.Sleep(time.Hour)
		if !l.Valid() {
			t.Errorf("leadership lost: %v", l.Err())
		}
		if n := most.Load(); n != 3 {
			t.Errorf("%d renewals at once, want 3: one each sixth of the TTL", n)
		}
	})
}

// If one renewal hangs and others fail at once, the leader keeps trying, because etcd may
// recover just before the deadline.
func TestRenewalsContinueWhileOneHangs(t *testing.T) {
	const ttl = 5 * time.Second
	for _, before := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 690 * time.Millisecond} {
		onFake(t, func(t *testing.T, f *store.Fake) {
			var n atomic.Int64
			back := time.Now().Add(ttl*2/3 - before)
			s := &spy{Store: f, keepAlive: func(ctx context.Context, next func() (time.Duration, error)) (time.Duration, error) {
				switch {
				case n.Add(1) == 1:
					return frozen(ctx, next)
				case time.Now().Before(back):
					return 0, fmt.Errorf("%w: no leader", store.ErrAmbiguous)
				}
				return next()
			}}
			l := win(t, electionOf(t, s, ttl))
			time.Sleep(ttl)
			if !l.Valid() {
				t.Errorf("etcd was back %v before the deadline: %v, after %d renewals", before, l.Err(), n.Load())
			}
		})
	}
}

// Even with a long TTL, the grant of an etcd lease has a short timeout, because a member
// may be frozen. Renewals may take seconds.
func TestLongTTL(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		var granted, renewals atomic.Int64
		f.SetHook(func(ctx context.Context, c store.Call) store.Outcome {
			if c.Method == store.MethodGrant && granted.Add(1) == 1 {
				<-ctx.Done()
				return store.Drop()
			}
			return store.Outcome{}
		})
		s := &spy{Store: f, keepAlive: func(ctx context.Context, next func() (time.Duration, error)) (time.Duration, error) {
			renewals.Add(1)
			left, err := next()
			if store.Sleep(ctx, 6*time.Second) != nil {
				return 0, store.ErrAmbiguous
			}
			return left, err
		}}
		began := time.Now()
		l := win(t, electionOf(t, s, leader.MaxTTL))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v with one frozen member", took)
		}
		time.Sleep(10 * leader.MaxTTL)
		if n := renewals.Load(); !l.Valid() || n > 200 {
			t.Errorf("with %d renewals in ten TTL: %v", n, l.Err())
		}
		f.SetHook(nil)
	})
}

// electionOf returns an election with the given TTL.
func electionOf(t *testing.T, s store.Store, ttl time.Duration) *leader.Election {
	t.Helper()
	e, err := leader.New(leader.Config{Store: s, Key: "x", TTL: ttl, Candidate: leader.Candidate{ID: "a", Address: "a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
