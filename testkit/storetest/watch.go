package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"berth.dev/pkg/store"
)

func testWatchOrder(t *testing.T, s Subject) {
	rev := must(t, s, put("p/z", "0"))
	w := s.Watch("p/", rev+1)
	defer w.Close()
	must(t, s, put("p/c", "1"), put("q/x", "1"), store.Delete("p/z"), put("p/a", "1"))
	must(t, s, put("q/x", "2"))
	must(t, s, put("p/b", "2"))
	got, revisions := "", []int64(nil)
	for len(got) < len("p/c=1 -p/z p/a=1;p/b=2;") {
		b, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range b.Changes {
			if i > 0 && c.Mod != b.Changes[i-1].Mod {
				got += ";"
			} else if i > 0 {
				got += " "
			}
			got += describe([]store.Change{c})
			revisions = append(revisions, c.Mod)
		}
		got += ";"
	}
	if got != "p/c=1 -p/z p/a=1;p/b=2;" {
		t.Errorf("delivered %q", got)
	}
	if fmt.Sprint(revisions) != fmt.Sprint([]int64{rev + 1, rev + 1, rev + 1, rev + 3}) {
		t.Errorf("revisions %v after %d", revisions, rev)
	}
}

func testWatchFromPast(t *testing.T, s Subject) {
	first := must(t, s, put("a", "1"))
	must(t, s, put("a", "2"))
	w := s.Watch("a", first)
	defer w.Close()
	var told []store.Change
	for len(told) < 2 {
		b, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, b.Changes...)
	}
	if describe(told) != "a=1 a=2" || told[1].Create != first {
		t.Errorf("delivered %q, %+v", describe(told), told)
	}
	ctx, cancel := cancelledContext(t)
	defer cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with an expired context: %v", err)
	}
}

// A watch that is far behind receives the history in several answers. The header of each
// answer contains the current revision. If the watch reported this revision as delivered,
// the changes in later answers would be lost.
func testWatchFarBehind(t *testing.T, s Subject) {
	const writers, each = 8, 150 // etcd sends at most 1,000 revisions at a time
	first := must(t, s, put("a", ""), put("b", ""))
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				if _, err := s.Txn(patient(t), store.Txn{Then: []store.Op{put("a", ""), put("b", "")}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	last := first + writers*each
	w := s.Watch("", first)
	defer w.Close()
	for next := first; next <= last; {
		b, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Changes)%2 != 0 {
			t.Fatal("a revision was split into two batches")
		}
		for i := 0; i < len(b.Changes); i += 2 {
			if b.Changes[i].Mod != next || b.Changes[i+1].Mod != next {
				t.Fatalf("delivered revision %d, want %d", b.Changes[i].Mod, next)
			}
			next++
		}
		if b.Revision != next-1 {
			t.Fatalf("reports revision %d, delivered up to %d", b.Revision, next-1)
		}
	}
}

func testWatchCompacted(t *testing.T, s Subject) {
	first := must(t, s, put("a", "1"))
	must(t, s, put("a", "2"))
	last := must(t, s, put("a", "3"))
	s.Compact(t, last)
	w := s.Watch("a", first)
	defer w.Close()
	if b, err := w.Next(patient(t)); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("delivered %q, %v; want ErrCompacted", describe(b.Changes), err)
	}
	kept := s.Watch("a", last+1)
	defer kept.Close()
	must(t, s, put("a", "4"))
	if b, err := kept.Next(patient(t)); err != nil || describe(b.Changes) != "a=4" {
		t.Errorf("a watch from after the compaction delivered %q, %v", describe(b.Changes), err)
	}
}

func testWatchProgress(t *testing.T, s Subject) {
	rev := must(t, s, put("p/a", "1"))
	w := s.Watch("p/", rev+1)
	defer w.Close()
	reaches(t, w, must(t, s, put("q/a", "1")))
}

// A watch that starts after the last change reports progress before the next one. Otherwise nobody could
// know whether it lives.
func testWatchProgressOfAQuietStore(t *testing.T, s Subject) {
	rev := must(t, s, put("p/a", "1"))
	for range 2 {
		w := s.Watch("p/", rev+1)
		defer w.Close()
		reaches(t, w, rev)
	}
	w := s.Watch("p/", rev+1)
	defer w.Close()
	last := must(t, s, put("p/b", "2"))
	if b, err := w.Next(patient(t)); err != nil || describe(b.Changes) != "p/b=2" || b.Revision != last {
		t.Errorf("delivered %q at %d, %v, want the change of revision %d only", describe(b.Changes), b.Revision, err, last)
	}
}

// reaches requests progress until the watch reports a revision.
func reaches(t *testing.T, w store.Watch, revision int64) {
	t.Helper()
	for all := patient(t); ; {
		ctx, cancel := context.WithTimeout(all, watchPause)
		b, err := w.Next(ctx)
		cancel()
		if err == nil {
			if len(b.Changes) != 0 || b.Revision != revision {
				t.Fatalf("progress delivered %q at %d, want nothing at %d", describe(b.Changes), b.Revision, revision)
			}
			return
		}
		if all.Err() != nil {
			t.Fatal("no progress was reported")
		}
		w.RequestProgress()
	}
}

func testWatchTryNext(t *testing.T, s Subject) {
	w := s.Watch("a", 0)
	defer w.Close()
	if b, ok, err := w.TryNext(); ok || err != nil {
		t.Fatalf("delivered %+v, %v of an empty store", b, err)
	}
	rev := must(t, s, put("a", "1"))
	again := s.Watch("a", rev)
	defer again.Close()
	for all := patient(t); all.Err() == nil; {
		b, ok, err := again.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if describe(b.Changes) != "a=1" || b.Revision != rev {
				t.Errorf("delivered %q at %d", describe(b.Changes), b.Revision)
			}
			return
		}
	}
	t.Error("no batch was delivered")
}

// lateWatch is a watch that opens at the first call of Next.
type lateWatch struct {
	store.Watch
	open func() store.Watch
}

func (w *lateWatch) Next(ctx context.Context) (store.Batch, error) {
	if w.Watch == nil {
		w.Watch = w.open()
	}
	return w.Watch.Next(ctx)
}

func (w *lateWatch) RequestProgress() {
	if w.Watch != nil {
		w.Watch.RequestProgress()
	}
}

func (w *lateWatch) Close() {
	if w.Watch != nil {
		w.Watch.Close()
	}
}
