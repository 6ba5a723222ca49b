package audit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"berth.dev/pkg/store"
)

// play writes a world's history to a new store. The store then has the same revisions as
// the world.
func play(t *testing.T, s store.Store, history []store.Change) {
	t.Helper()
	for i := 0; i < len(history); {
		var txn store.Txn
		for mod := history[i].Mod; i < len(history) && history[i].Mod == mod; i++ {
			c := history[i]
			txn.Then = append(txn.Then, store.Op{Key: c.Key, Value: c.Value, Delete: c.Deleted})
		}
		if _, err := s.Txn(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
}

// silent is a store whose first reads fail.
type silent struct {
	store.Store
	left int
}

func (s *silent) Page(ctx context.Context, request store.PageRequest) (store.Page, error) {
	if s.left > 0 {
		s.left--
		return store.Page{}, store.ErrAmbiguous
	}
	return s.Store.Page(ctx, request)
}

// TestCheckRetries checks that Check repeats a failed read a limited number of times.
func TestCheckRetries(t *testing.T) {
	w := newWorld(t)
	w.run(reservation("r", 1, 3), 1)
	s := store.NewFake(store.FakeConfig{})
	play(t, s, w.history)
	synctest.Test(t, func(t *testing.T) {
		quiet := &silent{s, maxReads - 1}
		if a, err := Check(t.Context(), quiet, space, 0); err != nil || a.Stats().Revision != w.revision {
			t.Errorf("audited %+v, want up to revision %d, %v", a, w.revision, err)
		}
		quiet.left = maxReads
		if _, err := Check(t.Context(), quiet, space, 0); !errors.Is(err, store.ErrAmbiguous) {
			t.Error(err)
		}
	})
}

func TestCheck(t *testing.T) {
	w := newWorld(t)
	r := reservation("r", 1, 3)
	w.stop(r, w.run(r, 1))
	middle := w.revision
	w.txn("", r)
	s := store.NewFake(store.FakeConfig{})
	play(t, s, w.history)

	whole, err := Check(t.Context(), s, space, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := w.audit()
	if diff := cmp.Diff(want.Violations(), whole.Violations()); diff != "" || len(want.Violations()) == 0 {
		t.Errorf("violations %v: %s", want.Violations(), diff)
	}
	if diff := cmp.Diff(want.Stats(), whole.Stats()); diff != "" {
		t.Error(diff)
	}

	s.Compact(middle)
	rest, err := Check(t.Context(), s, space, middle)
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, rest, RuleFence)
	if _, err := Check(t.Context(), s, space, middle-1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("error %v for a compacted revision", err)
	}
	if _, err := Check(t.Context(), s, space, 0); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("error %v for a compacted history", err)
	}
}

func TestFollower(t *testing.T) {
	w := newWorld(t)
	s := store.NewFake(store.FakeConfig{})
	play(t, s, w.history)
	begun := len(w.history)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	f := Follow(s, space)
	running.Go(func() { f.Run(ctx) })
	if err := f.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}

	r := reservation("r", 1, 3)
	w.run(r, 1)
	w.put(deletion{r.Ref()})
	play(t, s, w.history[begun:])
	// CatchUp must return even if other clients have increased the revision outside the
	// prefix.
	if _, err := s.Txn(ctx, store.Txn{Then: []store.Op{store.Put("/elsewhere", nil)}}); err != nil {
		t.Fatal(err)
	}
	if err := f.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	f.Look(func(a *Auditor) {
		wantRules(t, a, RuleNeverLost)
		if s := a.Stats(); s.Snapshots != 1 || s.WorkersRunning != 3 || s.Reservations != 1 {
			t.Errorf("stats %+v", s)
		}
		if left := a.Quiesced(); len(left) == 0 || left[0].Rule != RuleLeaseOwner {
			t.Errorf("not quiesced: %v", left)
		}
	})
}
