package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth.dev/pkg/store"
)

func cancelledContext(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// fill puts n keys under a prefix.
func fill(t *testing.T, s store.Store, prefix string, n int) (revision int64) {
	t.Helper()
	for i := 0; i < n; {
		var ops []store.Op
		for ; i < n && len(ops) < store.MaxTxnOps; i++ {
			ops = append(ops, put(fmt.Sprintf("%s%05d", prefix, i), "v"))
		}
		revision = must(t, s, ops...)
	}
	return revision
}

func testPages(t *testing.T, s Subject) {
	must(t, s, put("a", "1"), put("b", "1"), put("c", "1"), put("d", "1"))
	rev := must(t, s, store.Delete("b"))
	must(t, s, put("c", "2"), put("bb", "late"))

	page, err := s.Page(patient(t), store.PageRequest{From: "a", To: "d", Revision: rev, Limit: 1})
	if err != nil || len(page.KVs) != 1 || page.KVs[0].Key != "a" || !page.More || page.Revision != rev {
		t.Fatalf("first page: %+v, %v", page, err)
	}
	page, err = s.Page(patient(t), store.PageRequest{From: "a\x00", To: "d", Revision: rev, Limit: 1})
	if err != nil || len(page.KVs) != 1 || string(page.KVs[0].Value) != "1" || page.KVs[0].Key != "c" || page.More {
		t.Fatalf("second page: %+v, %v", page, err)
	}
	page, err = s.Page(patient(t), store.PageRequest{From: "a", To: "z"})
	if err != nil || len(page.KVs) != 4 || page.Revision != rev+1 {
		t.Fatalf("latest: %+v, %v", page, err)
	}
	if _, err = s.Page(patient(t), store.PageRequest{From: "a", To: "z", Revision: rev + 100}); !errors.Is(err,
		store.ErrFutureRevision) {
		t.Errorf("future: %v", err)
	}
	s.Compact(t, rev+1)
	if _, err = s.Page(patient(t), store.PageRequest{From: "a", To: "z", Revision: rev}); !errors.Is(err,
		store.ErrCompacted) {
		t.Errorf("compacted: %v", err)
	}
	if page, err = s.Page(patient(t), store.PageRequest{From: "a", To: "z", Revision: rev + 1}); err != nil ||
		len(page.KVs) != 4 {
		t.Errorf("read at the compacted revision: %+v, %v", page, err)
	}
}

// ways returns the store in two forms: s hides all methods except those of store.Store,
// so ranges are read in pages; s.Store may also support streams.
func ways(s Subject) []store.Store { return []store.Store{s, s.Store} }

func testKeys(t *testing.T, s Subject) {
	const n = 5100 // more than a page
	fill(t, s, "k/", n)
	must(t, s, put("k", "v"), put("l", "v"))
	for _, way := range ways(s) {
		var keys []string
		if err := store.Keys(patient(t), way, "k/", func(kvs []store.KV) {
			for _, kv := range kvs {
				if len(kv.Value) > 0 || kv.Mod == 0 {
					t.Fatalf("streamed %+v", kv)
				}
				keys = append(keys, kv.Key)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if len(keys) != n || !slices.IsSorted(keys) || keys[0] != "k/00000" {
			t.Errorf("%T: %d keys, the first %q", way, len(keys), keys[0])
		}
	}
}

func testRangeSkips(t *testing.T, s Subject) {
	fill(t, s, "p/a/", 3)
	fill(t, s, "p/events/", 5)
	fill(t, s, "p/z/", 1)
	rev := fill(t, s, "q/", 2)
	for _, c := range []struct {
		skip []string
		want int
	}{
		{nil, 9},
		{[]string{"p/events/"}, 4},
		{[]string{"p/z/", "p/a/"}, 5},
		{[]string{"p/events/", "p/events/0", "other/"}, 4},
		{[]string{"p/"}, 0},
	} {
		for _, way := range ways(s) {
			kvs, at, err := store.Range(patient(t), way, "p/", c.skip...)
			sorted := slices.IsSortedFunc(kvs, func(a, b store.KV) int { return strings.Compare(a.Key, b.Key) })
			if err != nil || len(kvs) != c.want || at != rev || !sorted {
				t.Errorf("%T without %q: %d keys at %d, sorted %v, %v; want %d at %d", way, c.skip, len(kvs), at, sorted, err,
					c.want, rev)
			}
		}
	}
}

// concurrentWriter runs a function before one of the pages is read.
type concurrentWriter struct {
	store.Store
	page, at int
	do       func()
}

func (i *concurrentWriter) Page(ctx context.Context, req store.PageRequest) (store.Page, error) {
	if i.page++; i.page == i.at {
		i.do()
	}
	return i.Store.Page(ctx, req)
}

func testRangeCompacted(t *testing.T, s Subject) {
	fill(t, s, "p/", 3500) // three pages
	var compacted int64
	i := &concurrentWriter{Store: s, at: 3, do: func() {
		compacted = must(t, s, put("p/last", "v"))
		s.Compact(t, compacted)
	}}
	kvs, rev, err := store.Range(patient(t), i, "p/")
	if err != nil || len(kvs) != 3501 || rev != compacted {
		t.Fatalf("%d keys at %d, %v; want 3501 at %d", len(kvs), rev, err, compacted)
	}
	i.page, i.do = 0, func() { must(t, s, put("p/later", "v")) }
	if kvs, rev, err = store.Range(patient(t), i, "p/"); err != nil || len(kvs) != 3501 || rev != compacted {
		t.Fatalf("a write between pages: %d keys at %d, %v; want 3501 at %d", len(kvs), rev, err, compacted)
	}
}

// testStreams tests stores that support streams.
func testStreams(t *testing.T, s Subject) {
	stream, can := s.Store.(store.Streamer)
	if !can {
		t.Skip("the store has no streams")
	}
	must(t, s, put("a", "1"), put("b", "1"), put("c", "1"), put("d", "1"))
	rev := must(t, s, store.Delete("b"))
	late := must(t, s, put("c", "2"), put("bb", "late"))
	read := func(revision int64) (got string, at int64, err error) {
		at, err = stream.Stream(patient(t), store.PageRequest{From: "a", To: "d", Revision: revision}, func(part []store.KV) {
			for _, kv := range part {
				got += fmt.Sprintf("%s=%s ", kv.Key, kv.Value)
			}
		})
		return got, at, err
	}
	if got, at, err := read(rev); err != nil || at != rev || got != "a=1 c=1 " {
		t.Errorf("at %d: %q at %d, %v", rev, got, at, err)
	}
	if got, at, err := read(0); err != nil || at != late || got != "a=1 bb=late c=2 " {
		t.Errorf("latest: %q at %d, %v; want %d", got, at, err, late)
	}
	if _, _, err := read(late + 100); !errors.Is(err, store.ErrFutureRevision) {
		t.Errorf("future: %v", err)
	}
	s.Compact(t, late)
	if _, _, err := read(rev); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("compacted: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stream.Stream(ctx, store.PageRequest{From: "a", To: "d"}, func([]store.KV) {}); !errors.Is(err,
		store.ErrAmbiguous) {
		t.Errorf("cancelled: %v", err)
	}
}
