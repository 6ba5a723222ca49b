package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/gateway/internal/stream"
)

var keys = keyspace.New("test")

// history writes job events as the services do, and keeps what a reader should
// see of one job: the obvious twin of the source.
type history struct {
	t interface {
		Helper()
		Fatal(args ...any)
	}
	store *store.Fake
	n     int64
	told  []string // cursor and uid of every event of job "a"
}

// write puts count events of a job into one transaction, on an etcd lease or
// on none. Their keys are in the reverse of their order.
func (h *history) write(job string, count int, lease int64) {
	h.t.Helper()
	var ops []store.Op
	first := h.n
	for i := range int64(count) {
		h.n++
		uid := fmt.Sprintf("u%d", h.n)
		value, err := wire.EncodeEvent(model.JobEvent{Kind: model.EventWorkerRunning, Key: model.Key{Job: job}, UID: uid}, first+i)
		if err != nil {
			h.t.Fatal(err)
		}
		op := store.Put(keys.Event(job, model.ServiceRegistry, 1, 1<<20-h.n), value)
		op.Lease = lease
		ops = append(ops, op)
	}
	result, err := h.store.Txn(context.Background(), store.Txn{Then: ops})
	if err != nil {
		h.t.Fatal(err)
	}
	if job == "a" {
		for i := range int64(count) {
			h.told = append(h.told, fmt.Sprintf("%d-%d u%d", result.Revision, first+i, first+i+1))
		}
	}
}

// read reads n events of job "a".
func (h *history) read(r stream.Reader, n int) []string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var got []string
	for len(got) < n {
		events, err := r.Next(ctx)
		if err != nil {
			h.t.Fatal(fmt.Sprintf("after %d of %d events: %v", len(got), n, err))
		}
		for _, e := range events {
			got = append(got, e.GetCursor()+" "+e.GetUid())
			if c := stream.CursorOf(e); c.Revision != e.GetRevision() {
				h.t.Fatal(fmt.Sprintf("%s has revision %d", e.GetCursor(), e.GetRevision()))
			}
		}
	}
	return got
}

// Whatever cursor a reader resumes at, it sees each later event once and in
// order: those that were there, those whose keys have run out since, and those
// written while it reads.
func TestNothingIsMissedOrRepeated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, store: store.NewFake(store.FakeConfig{WatchRevisions: rapid.IntRange(1, 5).Draw(t, "batch")})}
		some := func(what string) {
			for range rapid.IntRange(0, 6).Draw(t, what) {
				job := rapid.SampledFrom([]string{"a", "ab"}).Draw(t, "job")
				h.write(job, rapid.IntRange(1, 12).Draw(t, "events"), 0)
			}
		}
		some("before")
		lease, err := h.store.Grant(context.Background(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		h.write("a", 3, lease.ID)
		seen := rapid.IntRange(0, len(h.told)).Draw(t, "seen")
		var since stream.Cursor
		if seen > 0 {
			var cursor string
			fmt.Sscan(h.told[seen-1], &cursor)
			if since, err = stream.ParseCursor(cursor); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "ran out") {
				h.store.Expire(lease.ID)
			}
		}
		some("between")
		r, err := stream.NewEtcd(h.store, keys).Open(context.Background(), "a", since)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		h.store.BreakWatches()
		some("after")
		h.write("a", 1, 0)
		if diff := cmp.Diff(h.told[seen:], h.read(r, len(h.told)-seen)); diff != "" {
			t.Fatalf("after %v -want +got:\n%s", since, diff)
		}
	})
}

func TestACursorThatIsNoLongerKeptSaysWhereToStartAgain(t *testing.T) {
	h := &history{t: t, store: store.NewFake(store.FakeConfig{})}
	h.write("a", 2, 0)
	old := stream.Cursor{Revision: h.store.Revision()}
	h.write("a", 1, 0)
	h.store.Compact(h.store.Revision())
	source := stream.NewEtcd(h.store, keys)
	_, err := source.Open(t.Context(), "a", old)
	f := fault.Of(err)
	if err == nil || f.Kind != fault.OutOfRange || f.Reason != fault.ReasonEventsCompacted {
		t.Fatalf("got %v", err)
	}
	again, err := stream.ParseCursor(f.Meta["cursor"])
	if err != nil {
		t.Fatal(err)
	}
	r, err := source.Open(t.Context(), "a", again)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(h.told, h.read(r, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatTheStoreSaysIsTold(t *testing.T) {
	h := &history{t: t, store: store.NewFake(store.FakeConfig{})}
	h.write("a", 1, 0)
	source := stream.NewEtcd(h.store, keys)
	if _, err := source.Open(t.Context(), "a", stream.Cursor{Revision: 1000}); fault.Of(err).Kind != fault.Invalid {
		t.Errorf("a cursor of the future: %v", err)
	}
	h.store.SetHook(func(context.Context, store.Call) store.Outcome { return store.Drop() })
	for _, since := range []stream.Cursor{{}, {Revision: 1}} {
		if _, err := source.Open(t.Context(), "a", since); fault.Of(err).Kind != fault.Unavailable {
			t.Errorf("etcd that does not answer: %v", err)
		}
	}
	h.store.SetHook(nil)
	if _, err := h.store.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(keys.JobEvents("a")+"x", []byte("junk"))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Open(t.Context(), "a", stream.Cursor{}); fault.Of(err).Kind != fault.Internal {
		t.Errorf("a value that is no event: %v", err)
	}
}
