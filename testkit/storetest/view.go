package storetest

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"berth.dev/pkg/store"
)

// watchPause is the pause between two progress requests.
const watchPause = 10 * time.Millisecond

// next returns the next batch of a view.
func next(t *testing.T, v *store.View) store.Batch {
	t.Helper()
	b, err := v.Next(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testView(t *testing.T, s Subject) {
	must(t, s, put("p/a", "1"), put("p/events/1", "x"), put("q/a", "1"))
	rev := must(t, s, put("p/b", "1"))
	v := store.OpenView(s, "p/", "p/events/")
	defer v.Close()
	if v.Ready() || v.Revision() != 0 {
		t.Error("ready before the snapshot")
	}
	b := next(t, v)
	if !b.Reset || b.Revision != rev || describe(b.Changes) != "p/a=1 p/b=1" || b.Changes[1].Mod != rev {
		t.Fatalf("snapshot %+v", b)
	}
	if !v.Ready() || v.Revision() != rev {
		t.Errorf("after the snapshot: ready %v at %d", v.Ready(), v.Revision())
	}
	rev = must(t, s, store.Delete("p/a"), put("p/events/2", "y"), put("p/c", "1"))
	b = next(t, v)
	if b.Reset || b.Revision != rev || describe(b.Changes) != "-p/a p/c=1" || b.Changes[0].Mod != rev ||
		describe(b.Skipped) != "p/events/2=y" {
		t.Fatalf("change %+v", b)
	}
	rev = must(t, s, put("p/events/3", "z"))
	b = next(t, v)
	if b.Reset || b.Revision != rev || len(b.Changes) != 0 || describe(b.Skipped) != "p/events/3=z" {
		t.Fatalf("a change under the skipped prefix was delivered as %+v, want a separate one at %d", b, rev)
	}
}

func testViewCompacted(t *testing.T, s Subject) {
	must(t, s, put("p/a", "1"))
	v := store.OpenView(&lateStore{Store: s}, "p/")
	defer v.Close()
	next(t, v)
	must(t, s, put("p/b", "1"))
	rev := must(t, s, store.Delete("p/a"))
	s.Compact(t, rev)
	b := next(t, v)
	if !b.Reset || b.Revision != rev || describe(b.Changes) != "p/b=1" {
		t.Fatalf("after a compaction %+v, want a reset", b)
	}
	rev = must(t, s, put("p/c", "1"))
	if b = next(t, v); b.Reset || describe(b.Changes) != "p/c=1" || b.Revision != rev {
		t.Fatalf("after the reset %+v", b)
	}
}

// lateStore opens its first watch only when Next is called, so that a compaction comes before
// it.
type lateStore struct {
	store.Store
	opened int
}

func (d *lateStore) Watch(prefix string, from int64) store.Watch {
	if d.opened++; d.opened == 1 {
		return &lateWatch{open: func() store.Watch { return d.Store.Watch(prefix, from) }}
	}
	return d.Store.Watch(prefix, from)
}

func testViewWant(t *testing.T, s Subject) {
	must(t, s, put("p/a", "1"))
	v := store.OpenView(s, "p/")
	defer v.Close()
	next(t, v)
	rev := must(t, s, put("q/a", "1"))
	v.Want(rev)
	for v.Revision() < rev {
		if b := next(t, v); b.Reset || len(b.Changes) != 0 {
			t.Fatalf("delivered %+v", b)
		}
	}
}

// Transactions that change two keys run concurrently with a view. After every batch, the
// view must have the state of the store at that revision.
func testViewUnderLoad(t *testing.T, s Subject) {
	const writes = 300
	v := store.OpenView(s, "p/")
	defer v.Close()
	next(t, v)
	written := make(chan struct{})
	defer func() { <-written }()
	go func() {
		defer close(written)
		for i := range writes {
			ops := []store.Op{put(fmt.Sprintf("p/%d", i%7), fmt.Sprint(i)), put("p/twin", fmt.Sprint(i+1))}
			if i%5 == 0 {
				ops[0] = store.Delete(ops[0].Key)
			}
			if _, err := s.Txn(patient(t), store.Txn{Then: ops}); err != nil {
				t.Error(err)
			}
		}
	}()
	told := map[string]string{}
	for batches := 0; told["p/twin"] != fmt.Sprint(writes); batches++ {
		b := next(t, v)
		for _, c := range b.Changes {
			if c.Deleted {
				delete(told, c.Key)
			} else {
				told[c.Key] = string(c.Value)
			}
		}
		if batches%10 == 0 {
			compareAt(t, s, told, b.Revision)
		}
	}
	compareAt(t, s, told, v.Revision())
}

func compareAt(t *testing.T, s store.Store, told map[string]string, revision int64) {
	t.Helper()
	page, err := s.Page(patient(t), store.PageRequest{From: "p/", To: "p0", Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for _, kv := range page.KVs {
		held[kv.Key] = string(kv.Value)
	}
	if !maps.Equal(told, held) {
		t.Fatalf("at revision %d the view holds %v, the store %v", revision, told, held)
	}
}
