package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/store"
)

// pull waits for a batch in simulated time.
func pull(t *testing.T, v *store.View) store.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := v.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// silentStore wraps a store and can silence its watches.
type silentStore struct {
	store.Store
	silent bool
	opened int
}

func (m *silentStore) Watch(prefix string, from int64) store.Watch {
	m.opened++
	return &silentWatch{m.Store.Watch(prefix, from), m.silent}
}

type silentWatch struct {
	store.Watch
	silent bool
}

func (w *silentWatch) Next(ctx context.Context) (store.Batch, error) {
	if w.silent {
		<-ctx.Done()
		return store.Batch{}, ctx.Err()
	}
	return w.Watch.Next(ctx)
}

// deliveredBySecond checks that the second watch of a view soon delivers one change.
func deliveredBySecond(t *testing.T, v *store.View, opened *int) {
	t.Helper()
	began := time.Now()
	b := pull(t, v)
	if b.Reset || len(b.Changes) != 1 || *opened != 2 {
		t.Errorf("got %+v from watch %d, want the change from the second", b, *opened)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("blind for %v", took)
	}
}

// A hanging etcd member keeps the connection open but sends nothing.
func TestViewReplacesSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := store.NewFake(store.FakeConfig{})
		m := &silentStore{Store: f, silent: true}
		v := store.OpenView(m, "p/")
		defer v.Close()
		pull(t, v)
		time.Sleep(4 * time.Second)
		if v.Ready() {
			t.Error("ready, though the watch was never heard of")
		}
		m.silent = false // the next watch reaches another member
		do(t, f, putOf("p/a", "1"))
		deliveredBySecond(t, v, &m.opened)
	})
}

// laggingStore wraps a store. While cut is set, new watches behave like those of an etcd
// member that answers but receives no changes.
type laggingStore struct {
	store.Store
	cut    bool
	opened int
}

func (m *laggingStore) Watch(prefix string, from int64) store.Watch {
	m.opened++
	w := m.Store.Watch(prefix, from)
	if m.cut {
		return &oldWatch{w, store.Batch{Revision: from - 1}, make(chan struct{}, 1)}
	}
	return w
}

type oldWatch struct {
	store.Watch
	old   store.Batch
	asked chan struct{}
}

func (w *oldWatch) RequestProgress() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

func (w *oldWatch) Next(ctx context.Context) (store.Batch, error) {
	select {
	case <-w.asked:
		return w.old, nil
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}

// An etcd member that is cut off from the others answers but sends no changes. If another
// member has a newer revision, the watch moves to that member.
func TestViewReplacesALaggingWatch(t *testing.T) {
	for name, tell := range map[string]func(*store.View, int64){"wanted": (*store.View).Want,
		"known": (*store.View).Know} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := store.NewFake(store.FakeConfig{})
				m := &laggingStore{Store: f, cut: true}
				v := store.OpenView(m, "p/")
				defer v.Close()
				pull(t, v)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if b, err := v.Next(ctx); err == nil || m.opened != 1 || !v.Ready() {
					t.Fatalf("while nothing more is known: %+v by watch %d, ready %v", b, m.opened, v.Ready())
				}
				do(t, f, putOf("p/a", "1"))
				m.cut = false // the next watch reaches another member
				tell(v, f.Revision())
				deliveredBySecond(t, v, &m.opened)
			})
		})
	}
}

func TestViewReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := store.NewFake(store.FakeConfig{})
		m := &silentStore{Store: f}
		v := store.OpenView(m, "p/")
		defer v.Close()
		pull(t, v)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		go func() { _, err := v.Next(ctx); done <- err }()
		time.Sleep(30 * time.Minute)
		if !v.Ready() || m.opened != 1 {
			t.Errorf("a quiet store: ready %v, %d watches", v.Ready(), m.opened)
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("next: %v", err)
		}
		time.Sleep(time.Minute)
		if v.Ready() {
			t.Error("ready, although the view was not read for a minute")
		}
	})
}

func TestViewOfStoreOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := store.NewFake(store.FakeConfig{})
		calls := 0
		f.SetHook(func(context.Context, store.Call) store.Outcome { calls++; return store.Drop() })
		v := store.OpenView(f, "p/")
		defer v.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := v.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || v.Ready() {
			t.Errorf("next: %v, ready %v", err, v.Ready())
		}
		if calls < 12_000 || calls > 16_000 {
			t.Errorf("%d attempts in an hour, want four a second", calls)
		}
		f.SetHook(nil)
		if b := pull(t, v); !b.Reset {
			t.Errorf("told %+v", b)
		}
	})
}

// splitter delivers the second of two changes of a revision separately.
type splitter struct{ store.Store }

func (s splitter) Watch(prefix string, from int64) store.Watch {
	return &splitWatch{Watch: s.Store.Watch(prefix, from)}
}

type splitWatch struct {
	store.Watch
	rest []store.Change
}

func (w *splitWatch) Next(ctx context.Context) (store.Batch, error) {
	if len(w.rest) > 0 {
		b := store.Batch{Revision: w.rest[0].Mod, Changes: w.rest}
		w.rest = nil
		return b, nil
	}
	b, err := w.Watch.Next(ctx)
	if len(b.Changes) > 1 {
		w.rest = b.Changes[1:]
		b.Changes = b.Changes[:1]
	}
	return b, err
}

// If the remaining changes of a revision arrive late, the view never delivers them as a
// change of their own.
func TestViewOfSplitRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := store.NewFake(store.FakeConfig{})
		v := store.OpenView(splitter{f}, "p/")
		defer v.Close()
		pull(t, v)
		do(t, f, putOf("p/a", "1"), putOf("p/b", "1"))
		pull(t, v)
		if b := pull(t, v); !b.Reset || len(b.Changes) != 2 {
			t.Errorf("got %+v, want a reset with both", b)
		}
	})
}

// A simulator calls the store and its views from one goroutine and uses its own clock.
func TestFakeInOneGoroutine(t *testing.T) {
	now := time.Unix(1000, 0)
	f := store.NewFake(store.FakeConfig{Clock: func() time.Time { return now }, WatchRevisions: 1})
	v := store.OpenView(f, "p/", "p/skip/")
	defer v.Close()
	next := func() (store.Batch, bool) { return v.TryNext() }
	if b, ok := next(); !ok || !b.Reset {
		t.Fatalf("snapshot: %+v", b)
	}
	lease, err := f.Grant(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	do(t, f, store.Op{Key: "p/a", Lease: lease.ID})
	skip := do(t, f, putOf("p/skip/a", "1"))
	if b, ok := next(); !ok || len(b.Changes) != 1 || b.Revision != skip-1 {
		t.Fatalf("first change: %+v", b)
	}
	if b, ok := next(); !ok || len(b.Changes) != 0 || b.Revision != skip {
		t.Fatalf("skipped change: %+v", b)
	}
	elsewhere := do(t, f, putOf("q/a", "1"))
	if b, ok := next(); ok {
		t.Fatalf("got %+v of another prefix", b)
	}
	v.Want(elsewhere)
	if b, ok := next(); !ok || len(b.Changes) != 0 || b.Revision != elsewhere {
		t.Fatalf("wanted revision %d: %+v", elsewhere, b)
	}
	now = now.Add(lease.TTL)
	f.Tick()
	if b, ok := next(); !ok || len(b.Changes) != 1 || !b.Changes[0].Deleted {
		t.Fatalf("expiry: %+v", b)
	}
	do(t, f, putOf("p/b", "1"))
	do(t, f, putOf("p/b", "2"))
	f.Compact(f.Revision())
	if b, ok := next(); !ok || !b.Reset || len(b.Changes) != 1 {
		t.Fatalf("after a compaction: %+v", b)
	}
	for i, r := range f.History() {
		if r.Revision != int64(i+2) || len(r.Changes) == 0 {
			t.Errorf("history %d is %+v", i, r)
		}
	}
	if len(f.History()) != int(f.Revision())-1 {
		t.Error("the compaction shortened the history")
	}
}
