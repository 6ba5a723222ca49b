package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/store"
	_ "berth.dev/testkit/fixedseed"
)

// writes reports whether a call would write something.
func writes(call store.Call) bool { return call.Method == store.MethodTxn && len(call.Txn.Then) > 0 }

// script sets the outcomes of the next writing transactions in order. All later
// transactions succeed.
func script(f *store.Fake, outcomes ...store.Outcome) {
	f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if !writes(call) || len(outcomes) == 0 {
			return store.Outcome{}
		}
		out := outcomes[0]
		outcomes = outcomes[1:]
		return out
	})
}

func putOf(key, value string) store.Op { return store.Put(key, []byte(value)) }

func write(key string, compares ...store.Compare) store.Write {
	return store.Write{Ops: []store.Op{putOf(key, "1")}, If: compares}
}

func do(t testing.TB, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	res, err := s.Txn(context.Background(), store.Txn{Then: ops})
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}

// newTerm returns a store with a leader, and the leader's committer, which never pauses.
func newTerm(t testing.TB) (*store.Fake, *store.Committer) {
	f := store.NewFake(store.FakeConfig{})
	term := do(t, f, putOf("leader", "a"))
	return f, store.NewCommitter(f, store.CommitterConfig{
		LeaderKey: "leader", Term: term, ChainKey: "chain",
		Wait: func(ctx context.Context, _ int) error { return ctx.Err() },
	})
}

func TestAmbiguousOutcomes(t *testing.T) {
	for name, outcomes := range map[string][]store.Outcome{
		"nothing":                   nil,
		"request lost":              {store.Drop()},
		"answer lost":               {store.DropAnswer()},
		"both":                      {store.Drop(), store.DropAnswer(), store.Drop()},
		"delayed and sent again":    {store.Hold()},
		"held twice":                {store.Hold(), store.Hold()},
		"delayed, then answer lost": {store.Hold(), store.DropAnswer()},
	} {
		t.Run(name, func(t *testing.T) {
			f, committer := newTerm(t)
			script(f, outcomes...)
			done, err := committer.Commit(t.Context(), []store.Write{write("x")})
			if err != nil || len(done) != 1 {
				t.Fatalf("committed %+v, %v", done, err)
			}
			x, _, _ := f.Get(t.Context(), "x")
			if x.Mod != done[0].Revision || x.Create != x.Mod {
				t.Errorf("x = %+v, reported revision %d", x, done[0].Revision)
			}
			if late := f.ReleaseHeld(); late != 0 {
				t.Errorf("%d lost attempts were applied again", late)
			}
			if _, err := committer.Commit(t.Context(), []store.Write{write("y")}); err != nil {
				t.Errorf("the next batch: %v", err)
			}
		})
	}
}

// If the chain names a batch, the batch was committed. This holds even if its leader was
// already deposed when it reads the chain.
func TestCommittedThoughDeposed(t *testing.T) {
	f, c := newTerm(t)
	n := 0
	f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if n++; n == 1 {
			return store.DropAnswer()
		}
		f.SetHook(nil)
		do(t, f, store.Delete("leader"))
		return store.Outcome{}
	})
	done, err := c.Commit(t.Context(), []store.Write{write("x")})
	if err != nil || len(done) != 1 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	if x, _, _ := f.Get(t.Context(), "x"); x.Mod != done[0].Revision {
		t.Errorf("x is at revision %d, reported %d", x.Mod, done[0].Revision)
	}
	if _, err := c.Commit(t.Context(), []store.Write{write("y")}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("then: %v", err)
	}
}

// After a batch was refused, a lost attempt of the batch must not be applied. This holds
// even if the key that it must not find has been deleted.
func TestRefusedStaysRefused(t *testing.T) {
	f, c := newTerm(t)
	n := 0
	f.SetHook(func(context.Context, store.Call) store.Outcome {
		if n++; n == 1 {
			return store.Hold()
		}
		f.SetHook(nil)
		do(t, f, putOf("foreign", "here"))
		return store.Outcome{}
	})
	done, err := c.Commit(t.Context(), []store.Write{write("x", store.Absent("foreign"))})
	var conflict *store.Conflict
	if !errors.As(err, &conflict) || len(done) != 0 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	do(t, f, store.Delete("foreign"))
	if late := f.ReleaseHeld(); late != 0 {
		t.Fatal("the refused batch was applied")
	}
	if _, err := c.Commit(t.Context(), []store.Write{write("y")}); err != nil {
		t.Errorf("the next batch: %v", err)
	}
}

// If the lost attempt arrives between the refusal and the seal, it is committed, and the
// committer reports that.
func TestLostAttemptBeatsSeal(t *testing.T) {
	f, c := newTerm(t)
	n := 0
	f.SetHook(func(context.Context, store.Call) store.Outcome {
		switch n++; n {
		case 1:
			return store.Hold()
		case 2: // the repeat finds that the key exists
			do(t, f, putOf("foreign", "here"))
		case 4: // the seal arrives too late; call 3 was the put above
			do(t, f, store.Delete("foreign"))
			f.ReleaseHeld()
		}
		return store.Outcome{}
	})
	done, err := c.Commit(t.Context(), []store.Write{write("x", store.Absent("foreign"))})
	if err != nil || len(done) != 1 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	f.SetHook(nil)
	if x, _, _ := f.Get(t.Context(), "x"); x.Mod != done[0].Revision {
		t.Errorf("x is at revision %d, reported %d", x.Mod, done[0].Revision)
	}
	if _, err := c.Commit(t.Context(), []store.Write{write("y")}); err != nil {
		t.Errorf("the next batch: %v", err)
	}
}

// If ctx ends while an outcome is open, the committer sends nothing more. The successor
// determines the outcome.
func TestInDoubt(t *testing.T) {
	f, c := newTerm(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.SetHook(func(context.Context, store.Call) store.Outcome { cancel(); return store.Drop() })
	for range 2 {
		if done, err := c.Commit(ctx, []store.Write{write("x")}); !errors.Is(err, store.ErrAmbiguous) || len(done) != 0 {
			t.Errorf("committed %+v, %v", done, err)
		}
	}
	f.SetHook(nil)
	if _, err := c.Commit(t.Context(), []store.Write{write("x")}); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("later: %v", err)
	}
}

// Every attempt has a deadline, so an attempt that hangs does not delay later attempts.
func TestAttemptDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newTerm(t)
		n := 0
		f.SetHook(func(ctx context.Context, _ store.Call) store.Outcome {
			if n++; n == 1 {
				<-ctx.Done()
			}
			return store.Outcome{}
		})
		if _, err := c.Commit(t.Context(), []store.Write{write("x")}); err != nil {
			t.Fatal(err)
		}
	})
}

// If etcd is slower than the timeout of the first attempts, the committer waits longer, and
// the write is committed once. While etcd is known to be slow, the committer does not send
// every request twice. When etcd is fast again, the longer timeout ends.
func TestSlowEtcdIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := store.NewFake(store.FakeConfig{})
		term := do(t, f, putOf("leader", "a"))
		c := store.NewCommitter(f, store.CommitterConfig{LeaderKey: "leader", Term: term, ChainKey: "chain"})
		attempts, takes := 0, time.Duration(0)
		f.SetHook(func(ctx context.Context, _ store.Call) store.Outcome {
			attempts++
			_ = store.Sleep(ctx, takes) // the fake only checks ctx
			return store.Outcome{}
		})
		for _, step := range []struct {
			takes    time.Duration
			key      string
			attempts int
		}{
			{time.Millisecond, "fast", 1},
			{250 * time.Millisecond, "slower", 1},
			{600 * time.Millisecond, "within three times as long", 1},
			{time.Second, "slow", 1},
			{time.Millisecond, "fast again", 1},
			{400 * time.Millisecond, "slow all of a sudden", 13},
			{400 * time.Millisecond, "known to be slow", 1},
		} {
			attempts, takes = 0, step.takes
			if _, err := c.Commit(t.Context(), []store.Write{write(step.key)}); err != nil || attempts != step.attempts {
				t.Errorf("%s: %d attempts, %v; want %d", step.key, attempts, err, step.attempts)
			}
		}
	})
}

// The results of the committer match the history of the store, whatever happens to single
// attempts. Committed writes are at their revision, and no other write is in the history.
func TestCommitterMatchesHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, c := newTerm(t)
		// told has the writes that were reported as durable. open has the writes whose outcome
		// was not reported because the term is over.
		told, open, deposed, succeeding := map[string]int64{}, map[string]bool{}, false, false
		f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			if succeeding {
				return store.Outcome{}
			}
			switch fate := rapid.IntRange(0, 11).Draw(rt, "fate"); fate {
			case 0:
				return store.Drop()
			case 1:
				return store.DropAnswer()
			case 2:
				return store.Hold()
			case 3:
				f.ReleaseHeld()
			case 4, 5:
				if writes(call) {
					return []store.Outcome{store.Fills(), store.Full()}[fate-4]
				}
			case 6:
				if len(told) > 3 && !deposed {
					deposed, succeeding = true, true
					do(t, f, store.Delete("leader"))
					do(t, f, putOf("leader", "b"))
					do(t, f, putOf("chain", "b-1"))
					succeeding = false
				}
			}
			return store.Outcome{}
		})
		for round := range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			var writes []store.Write
			for i := range rapid.IntRange(1, 5).Draw(rt, "writes") {
				w := write(fmt.Sprintf("x/%d/%d", round, i))
				if rapid.IntRange(0, 5).Draw(rt, "compares") == 0 {
					w.If = append(w.If, store.Absent("foreign"))
				}
				writes = append(writes, w)
			}
			done, err := c.Commit(context.Background(), writes)
			var conflict *store.Conflict
			isFull := errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrAmbiguous)
			fenced := errors.Is(err, store.ErrFenced) && deposed
			if err != nil && !isFull && !errors.As(err, &conflict) && !fenced {
				rt.Fatal(err)
			}
			for _, d := range done {
				for _, w := range writes[:d.Writes] {
					told[w.Ops[0].Key] = d.Revision
				}
				writes = writes[d.Writes:]
			}
			if fenced {
				for _, w := range writes {
					open[w.Ops[0].Key] = true
				}
				break
			}
			if rapid.Bool().Draw(rt, "toggle") {
				foreign := store.Op{Key: "foreign", Delete: rapid.Bool().Draw(rt, "delete")}
				_, _ = f.Txn(context.Background(), store.Txn{Then: []store.Op{foreign}})
			}
		}
		f.ReleaseHeld()
		for _, rev := range f.History() {
			for _, change := range rev.Changes {
				if !strings.HasPrefix(change.Key, "x/") || open[change.Key] {
					continue
				}
				if told[change.Key] != rev.Revision {
					rt.Fatalf("%s was written at revision %d, reported %d", change.Key, rev.Revision, told[change.Key])
				}
				delete(told, change.Key)
			}
		}
		if len(told) > 0 {
			rt.Fatalf("reported %v, which does not exist", told)
		}
	})
}

// If the error says that the store is full, the committer determines whether the write was
// applied. It does not wait for free space.
func TestAFullStoreAnswersAtOnce(t *testing.T) {
	f, c := newTerm(t)
	script(f, store.Fills(), store.Full())
	done, err := c.Commit(t.Context(), []store.Write{write("fills-it")})
	if err != nil || len(done) != 1 || done[0].Revision != f.Revision() {
		t.Errorf("write that fills the store: %+v, %v", done, err)
	}
	done, err = c.Commit(t.Context(), []store.Write{write("x"), write("y")})
	if !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrAmbiguous) || len(done) != 0 {
		t.Errorf("write to the full store: %+v, %v", done, err)
	}
	if done, err = c.Commit(t.Context(), []store.Write{write("x"), write("y")}); err != nil || len(done) != 1 {
		t.Errorf("after space was freed: %+v, %v", done, err)
	}
}

// The write that fills the store gets ErrFull although it is applied. If a successor writes
// before the committer determines that, the committer must not report that the write did
// not happen.
func TestAFullStoreIsNoProofThatNothingWasWritten(t *testing.T) {
	f, c := newTerm(t)
	fills := true
	f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		switch {
		case !fills:
		case writes(call):
			return store.Fills()
		default:
			fills = false
			do(t, f, store.Delete("leader"))
			do(t, f, putOf("leader", "b"))
			do(t, f, putOf("chain", "b-1"))
		}
		return store.Outcome{}
	})
	if done, err := c.Commit(t.Context(), []store.Write{write("x")}); !errors.Is(err, store.ErrFenced) ||
		errors.Is(err, store.ErrFull) {
		t.Errorf("got %+v, %v", done, err)
	}
}

// A lost attempt may still arrive when the store has space again. The outcome therefore
// stays open until then.
func TestFullStoreLeavesALostAttemptAmbiguous(t *testing.T) {
	f, c := newTerm(t)
	script(f, store.Hold(), store.Full(), store.Full())
	if done, err := c.Commit(t.Context(), []store.Write{write("x")}); err != nil || len(done) != 1 {
		t.Errorf("committed %+v, %v", done, err)
	}
	if f.ReleaseHeld() != 0 {
		t.Error("the lost attempt was applied as well")
	}

	// A full store does not make a refusal final either.
	f, c = newTerm(t)
	script(f, store.Hold(), store.Refuse(store.ErrLeaseNotFound), store.Full())
	if done, err := c.Commit(t.Context(), []store.Write{write("x")}); !errors.Is(err, store.ErrLeaseNotFound) ||
		len(done) != 0 {
		t.Errorf("committed %+v, %v", done, err)
	}
	if f.ReleaseHeld() != 0 {
		t.Error("what was refused is applied")
	}
}
