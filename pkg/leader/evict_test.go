package leader_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
)

// standby is a candidate that waits for the end of a leader. The leader has led for long
// enough to be evicted.
type standby struct {
	*leader.Election
	first *leader.Leadership
	won   <-chan *leader.Leadership

	mu   sync.Mutex
	fits func() bool
}

// fitIf sets the condition under which the standby may evict. By default it may always
// evict.
func (b *standby) fitIf(fits func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fits = fits
}

func (b *standby) fit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fits()
}

// moment is longer than an immediate reaction needs.
const moment = 10 * time.Millisecond

func newStandby(t *testing.T, f *store.Fake, dead func(context.Context, leader.Holder) bool) *standby {
	t.Helper()
	b := &standby{first: win(t, newElection(t, f, "x", "a")), fits: func() bool { return true }}
	var err error
	b.Election, err = leader.New(leader.Config{
		Store: f, Key: "x", TTL: ttl, Candidate: leader.Candidate{ID: "b"},
		WaitDead: dead, MayEvict: b.fit,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.won = campaign(t, b.Election)
	waits(t, b.Election, b.first.Term())
	return b
}

// newProven is like newStandby, with a probe that finds the leader dead after two seconds
// and then closes proven.
func newProven(t *testing.T, f *store.Fake) (b *standby, proven <-chan struct{}) {
	t.Helper()
	found := make(chan struct{})
	return newStandby(t, f, func(ctx context.Context, _ leader.Holder) bool {
		if store.Sleep(ctx, 2*time.Second) != nil {
			return false
		}
		close(found)
		return true
	}), found
}

func TestADeadLeaderIsEvicted(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		b := newStandby(t, f, func(ctx context.Context, h leader.Holder) bool {
			return h.ID == "a" && h.Instance == "a-x" && h.Address == "a:1" && store.Sleep(ctx, 2*time.Second) == nil
		})
		began := time.Now()
		second := <-b.won
		if took := time.Since(began); took > 2*time.Second+moment {
			t.Errorf("failover took %v", took)
		}
		<-b.first.Done()
		if !errors.Is(b.first.Err(), leader.ErrDeposed) || second.Term() <= b.first.Term() {
			t.Errorf("first: %v", b.first.Err())
		}
	})
}

func TestEvictGuards(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(f *store.Fake, b *standby)
		evicted bool
	}{
		"nothing":   {func(*store.Fake, *standby) {}, true},
		"alarm":     {func(f *store.Fake, _ *standby) { f.SetAlarms("NOSPACE") }, false},
		"unfit":     {func(_ *store.Fake, b *standby) { b.fitIf(func() bool { return false }) }, false},
		"no alarms": {func(f *store.Fake, _ *standby) { f.SetHook(dropAlarms) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			onFake(t, func(t *testing.T, f *store.Fake) {
				b := newStandby(t, f, nil)
				if err := b.Evict(t.Context(), b.first.Term()); !errors.Is(err, leader.ErrNotEvicted) {
					t.Errorf("a leader that was just seen: %v", err)
				}
				time.Sleep(time.Second)
				if err := b.Evict(t.Context(), b.first.Term()-1); !errors.Is(err, leader.ErrNotEvicted) {
					t.Errorf("another term: %v", err)
				}
				c.spoil(f, b)
				err := b.Evict(t.Context(), b.first.Term())
				if (err == nil) != c.evicted || b.first.Valid() == c.evicted && waitDone(b.first) == c.evicted {
					t.Errorf("evict: %v, want evicted %v", err, c.evicted)
				}
			})
		})
	}
}

func dropAlarms(_ context.Context, c store.Call) store.Outcome {
	if c.Method == store.MethodAlarms {
		return store.Drop()
	}
	return store.Outcome{}
}

// waitDone gives the watches some time and then reports whether the leadership is still
// valid.
func waitDone(l *leader.Leadership) bool {
	time.Sleep(moment)
	return l.Valid()
}

func TestEvictWithoutOwnLease(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		b := newStandby(t, f, nil)
		time.Sleep(time.Second)
		f.SetHook(func(_ context.Context, c store.Call) store.Outcome {
			if c.Method == store.MethodTxn {
				t.Error("sent an evict")
			}
			return store.Drop()
		})
		time.Sleep(ttl)
		if err := b.Evict(t.Context(), b.first.Term()); !errors.Is(err, leader.ErrNotEvicted) {
			t.Errorf("evict: %v", err)
		}
		f.SetHook(nil)
	})
}

// If two replicas consider each other dead, they stop after three evicts.
func TestEvictIsLimited(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		e := newElection(t, f, "x", "b")
		for n := range 5 {
			first := win(t, newElection(t, f, "x", "a"))
			won := campaign(t, e)
			waits(t, e, first.Term())
			time.Sleep(time.Second)
			err := e.Evict(t.Context(), first.Term())
			if want := n < 3; (err == nil) != want {
				t.Fatalf("evict %d: %v", n, err)
			}
			if err != nil {
				time.Sleep(time.Minute)
				if err := e.Evict(t.Context(), first.Term()); err != nil {
					t.Fatalf("a minute later: %v", err)
				}
			}
			if err := (<-won).Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n == 3 {
				return
			}
		}
	})
}

// If an evict hangs at a frozen etcd member, the standby still becomes the leader as soon
// as another replica deletes the key.
func TestAHungEvictDoesNotDelayTheNextLeader(t *testing.T) {
	type otherEvict struct{}
	for name, after := range map[string]time.Duration{"at once": 0, "after 50 ms": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			onFake(t, func(t *testing.T, f *store.Fake) {
				b, proven := newProven(t, f)
				f.SetHook(func(ctx context.Context, c store.Call) store.Outcome {
					if c.Method == store.MethodTxn && c.Txn.Then[0].Delete && ctx.Value(otherEvict{}) == nil {
						<-ctx.Done()
						return store.Drop()
					}
					return store.Outcome{}
				})
				<-proven
				time.Sleep(after)
				evict := store.Txn{If: []store.Compare{store.CreatedAt("x", b.first.Term())}, Then: []store.Op{store.Delete("x")}}
				if _, err := f.Txn(context.WithValue(t.Context(), otherEvict{}, true), evict); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				<-b.won
				if took := time.Since(began); took > moment {
					t.Errorf("the standby leads %v after the key was deleted", took)
				}
				f.SetHook(nil)
			})
		})
	}
}

// An evict is retried until it is possible. It may fail because of an election in etcd, a
// lost request or an outdated view.
func TestAnEvictIsRetriedUntilItIsPossible(t *testing.T) {
	lost := func(is func(c store.Call) bool) func(f *store.Fake, b *standby, until time.Time) {
		return func(f *store.Fake, _ *standby, until time.Time) {
			f.SetHook(func(_ context.Context, c store.Call) store.Outcome {
				if is(c) && time.Now().Before(until) {
					return store.Drop()
				}
				return store.Outcome{}
			})
		}
	}
	for name, spoil := range map[string]func(f *store.Fake, b *standby, until time.Time){
		"no answer about alarms": lost(func(c store.Call) bool { return c.Method == store.MethodAlarms }),
		"evicts are lost": lost(func(c store.Call) bool {
			return c.Method == store.MethodTxn &&
				c.Txn.Then[0].Delete
		}),
		"nothing is written": lost(func(c store.Call) bool { return c.Method == store.MethodTxn }),
		"an alarm": func(f *store.Fake, _ *standby, until time.Time) {
			f.SetAlarms("NOSPACE")
			time.AfterFunc(time.Until(until), func() { f.SetAlarms() })
		},
		"not fit": func(_ *store.Fake, b *standby, until time.Time) {
			b.fitIf(func() bool { return !time.Now().Before(until) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFake(t, func(t *testing.T, f *store.Fake) {
				const fault = 2 * time.Second
				b, proven := newProven(t, f)
				spoil(f, b, time.Now().Add(2*time.Second+fault))
				<-proven
				began := time.Now()
				<-b.won
				if took := time.Since(began); took < fault || took > fault+500*time.Millisecond {
					t.Errorf("the standby leads %v after the probe", took)
				}
				f.SetHook(nil)
			})
		})
	}
}

// If an evict arrives late, it does not depose the next leader.
func TestALateEvictDeposesNoOtherLeader(t *testing.T) {
	onFake(t, func(t *testing.T, f *store.Fake) {
		b, proven := newProven(t, f)
		late := false
		f.SetHook(func(_ context.Context, c store.Call) store.Outcome {
			if c.Method == store.MethodTxn && c.Txn.Then[0].Delete && !late {
				late = true
				return store.Hold() // delayed on its way to etcd
			}
			return store.Outcome{}
		})
		<-proven
		second := <-b.won // because of another evict
		f.SetHook(nil)
		f.ReleaseHeld()
		time.Sleep(time.Second)
		if !late || !second.Valid() || second.Term() <= b.first.Term() {
			t.Errorf("an evict was late: %v; term %d: %v", late, second.Term(), second.Err())
		}
	})
}
