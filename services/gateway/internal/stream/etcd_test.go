package stream_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/gateway/internal/stream"
	"berth.dev/services/gateway/internal/stream/streamtest"
)

var keys = keyspace.New("test")

// history is a model of the source. It makes services write events and stores the events of
// job "a".
type history struct {
	streamtest.TB
	store   *store.Fake
	writers []*streamtest.Writer
	told    []string // cursor and UID of every event of job "a"
	// at is the position of each event in told.
	at []place
}

type place struct {
	writer *streamtest.Writer
	number int64
}

func newHistory(t streamtest.TB, config store.FakeConfig, services ...string) *history {
	h := &history{TB: t, store: store.NewFake(config)}
	for _, service := range services {
		h.writers = append(h.writers, &streamtest.Writer{TB: t, Store: h.store, Keys: keys, Service: service})
	}
	return h
}

func (h *history) write(w *streamtest.Writer, job string, count int) {
	h.Helper()
	told := w.Write(job, count)
	if job != "a" {
		return
	}
	h.told = append(h.told, told...)
	for range told {
		h.at = append(h.at, place{w, int64(len(w.Segments))})
	}
}

// kept returns the events of the model that are still in etcd.
func (h *history) kept() (kept []string) {
	h.Helper()
	kvs, _, err := store.Range(context.Background(), h.store, keys.Events())
	if err != nil {
		h.Fatal(err)
	}
	there := map[string]bool{}
	for _, kv := range kvs {
		if e, ok := keys.ParseEvent(kv.Key); ok && e.Job == "a" && e.Segment != 0 {
			there[fmt.Sprintf("%d-%d %s-%d", kv.Mod, e.Number, e.Service, e.Number)] = true
		}
	}
	for _, told := range h.told {
		if there[told] {
			kept = append(kept, told)
		}
	}
	return kept
}

func cursorOf(t streamtest.TB, told string) stream.Cursor {
	t.Helper()
	text, _, _ := strings.Cut(told, " ")
	c, err := stream.ParseCursor(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// after returns the events in told that follow cursor c.
func (h *history) after(told []string, c stream.Cursor) []string {
	h.Helper()
	return slices.DeleteFunc(slices.Clone(told), func(one string) bool { return cursorOf(h, one).Compare(c) <= 0 })
}

func (h *history) open(since stream.Cursor) (stream.Reader, error) {
	return stream.NewEtcd(h.store, keys).Open(context.Background(), "a", since, false)
}

// read reads n events of job "a".
func (h *history) read(r stream.Reader, n int) []string {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []string
	for len(got) < n {
		events, err := r.Next(ctx)
		if err != nil {
			h.Fatal(fmt.Sprintf("after %d of %d events: %v", len(got), n, err))
		}
		for _, e := range events {
			got = append(got, e.GetCursor()+" "+e.GetUid())
			if c := stream.CursorOf(e); c.Revision != e.GetRevision() {
				h.Fatal(fmt.Sprintf("%s has revision %d", e.GetCursor(), e.GetRevision()))
			}
		}
	}
	return got
}

// readStored reads the stored events after a cursor with a reader that ends after them.
func (h *history) readStored(since stream.Cursor) (got []string) {
	h.Helper()
	r, err := stream.NewEtcd(h.store, keys).Open(context.Background(), "a", since, true)
	if err != nil {
		h.Fatal(err)
	}
	defer r.Close()
	for {
		events, err := r.Next(context.Background())
		if err == io.EOF {
			return got
		}
		if err != nil {
			h.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.GetCursor()+" "+e.GetUid())
		}
	}
}

// While the events cannot be read, no reader opens, and an open reader ends within a minute: its
// watch would be silent.
func TestUnreadableEventsAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry)
		h.write(h.writers[0], "a", 1)
		var unreadable error
		e := stream.NewEtcd(h.store, keys)
		e.Readable = func(context.Context) error { return unreadable }
		r, err := e.Open(t.Context(), "a", stream.Cursor{}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		h.read(r, 1)
		unreadable = fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer")
		began := time.Now()
		if _, err := r.Next(t.Context()); err != unreadable || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := e.Open(t.Context(), "a", stream.Cursor{}, true); err != unreadable {
			t.Errorf("open: %v", err)
		}
		if err := e.Stored(t.Context(), "a", func(*berthv1.Event) { t.Error("an event") }); err != unreadable {
			t.Errorf("stored: %v", err)
		}
	})
}

// A reader can resume at any cursor. It receives each later event once and in order,
// including events that are written while it reads. If an event after its cursor was
// deleted, the reader gets an error with a cursor at which it can resume. Otherwise it gets
// no error.
func TestNothingIsMissedOrRepeated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, store.FakeConfig{WatchRevisions: rapid.IntRange(1, 5).Draw(t, "batch")}, model.ServiceRegistry,
			model.ServiceAssigner)
		dropped := map[*streamtest.Writer]int64{}
		lost := false
		some := func(what string, letGo bool) {
			for range rapid.IntRange(0, 12).Draw(t, what) {
				w := rapid.SampledFrom(h.writers).Draw(t, "writer")
				newest := int64(len(w.Segments))
				switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
				case what < 6:
					h.write(w, rapid.SampledFrom([]string{"a", "ab"}).Draw(t, "job"), rapid.IntRange(1, 7).Draw(t, "events"))
				case what < 8:
					if newest == 0 || w.Segments[newest-1].Created != 0 {
						w.Rotate()
					}
				case !letGo:
				case what == 8 && newest > 0 && dropped[w] < newest && w.Segments[newest-1].Created != 0:
					dropped[w]++
					w.Drop(dropped[w])
					lost = true
				case what == 9 && newest > 1 && dropped[w] < newest && w.Segments[newest-1].Created != 0:
					w.Cut("a", rapid.Int64Range(1, newest-1).Draw(t, "cut"))
					lost = true
				}
			}
		}
		some("before", true)
		h.write(h.writers[0], "a", 3)
		some("between", true)
		if rapid.Bool().Draw(t, "compacted") {
			h.store.Compact(h.store.Revision())
		}
		var since stream.Cursor
		if seen := rapid.IntRange(0, len(h.told)).Draw(t, "seen"); seen > 0 {
			since = cursorOf(h, h.told[seen-1])
		}
		r, err := h.open(since)
		if err != nil {
			f := fault.Of(err)
			if f.Kind != fault.OutOfRange || f.Reason != fault.ReasonEventsCompacted || !lost || since == (stream.Cursor{}) {
				t.Fatalf("since %v: %v", since, err)
			}
			from, err := stream.ParseCursor(f.Meta["cursor"])
			if err != nil || from.Compare(since) <= 0 {
				t.Fatalf("reader at %v must continue at %v, %v", since, from, err)
			}
			since = from
			if r, err = h.open(since); err != nil {
				t.Fatalf("the returned cursor %v was rejected: %v", since, err)
			}
		}
		defer r.Close()
		var stored []string
		if err := stream.NewEtcd(h.store, keys).Stored(t.Context(), "a", func(e *berthv1.Event) {
			stored = append(stored, e.GetCursor()+" "+e.GetUid())
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h.kept(), stored); diff != "" {
			t.Fatalf("stored -want +got:\n%s", diff)
		}
		want := h.after(h.told, since)
		if since == (stream.Cursor{}) {
			want = h.kept()
		}
		if diff := cmp.Diff(want, h.readStored(since), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("only the stored events: -want +got:\n%s", diff)
		}
		behind := len(h.told)
		h.store.BreakWatches()
		some("after", false)
		h.write(h.writers[0], "a", 1)
		want = append(want, h.told[behind:]...)
		taker := r
		if !lost {
			// If the newest segment of a service has expired and the service has not started another
			// one, a reader that starts again gets an error. The reader therefore pauses only if no
			// event was lost.
			taker = pausing{r, t}
		}
		if diff := cmp.Diff(want, h.read(taker, len(want))); diff != "" {
			t.Fatalf("after %v -want +got:\n%s", since, diff)
		}
	})
}

// pausing is a reader whose caller sometimes falls behind.
type pausing struct {
	stream.Reader
	t *rapid.T
}

func (p pausing) Next(ctx context.Context) ([]*berthv1.Event, error) {
	if rapid.Bool().Draw(p.t, "pause") {
		p.Pause()
	}
	return p.Reader.Next(ctx)
}

// counting is a store that counts its open watches.
type counting struct {
	store.Store
	watches int
}

func (c *counting) Watch(prefix string, from int64) store.Watch {
	c.watches++
	return &countedWatch{c.Store.Watch(prefix, from), c}
}

type countedWatch struct {
	store.Watch
	c *counting
}

func (w *countedWatch) Close() {
	w.c.watches--
	w.Watch.Close()
}

// A reader that falls behind buffers no events. Its watch is closed, and it reads the
// missing events from the store later.
func TestAPausedReaderBuffersNothing(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry)
	h.write(h.writers[0], "a", 3)
	counted := &counting{Store: h.store}
	r, err := stream.NewEtcd(counted, keys).Open(t.Context(), "a", stream.Cursor{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h.read(r, 3)
	h.write(h.writers[0], "a", 1)
	h.read(r, 1)
	if counted.watches != 1 {
		t.Errorf("%d watches", counted.watches)
	}
	r.Pause()
	if counted.watches != 0 {
		t.Errorf("%d watches for a paused reader", counted.watches)
	}
	h.write(h.writers[0], "a", 2)
	if diff := cmp.Diff(h.told[4:], h.read(r, 2)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A stream can resume between the events of one transaction.
func TestResumeWithinATransaction(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry)
	h.write(h.writers[0], "a", 5)
	h.store.Compact(h.store.Revision())
	for i, told := range h.told[:4] {
		r, err := h.open(cursorOf(t, told))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h.told[i+1:], h.read(r, 4-i)); diff != "" {
			t.Errorf("after %s -want +got:\n%s", told, diff)
		}
		r.Close()
	}
}

// A reader can resume at a compacted revision if all later events are stored. If some have
// expired, the reader gets an error. The error has the position from which on the events of
// all services are stored.
func TestResumeDependsOnStoredEvents(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry, model.ServiceAssigner)
	registry, assigner := h.writers[0], h.writers[1]
	h.write(registry, "a", 2)
	h.write(assigner, "a", 2)
	registry.Rotate()
	h.write(registry, "a", 1)
	h.store.Compact(h.store.Revision())
	since := cursorOf(t, h.told[0])
	r, err := h.open(since)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.told[1:], h.read(r, 4)); diff != "" {
		t.Error(diff)
	}
	r.Close()

	registry.Drop(1)
	_, err = h.open(since)
	f := fault.Of(err)
	if f == nil || f.Reason != fault.ReasonEventsCompacted ||
		f.Meta["cursor"] != (stream.Cursor{Revision: registry.Segments[1].Created}).String() {
		t.Fatalf("got %+v", f)
	}
	// A reader that has seen every expired event gets the error, too, because it cannot know
	// that it has missed nothing.
	if _, err = h.open(cursorOf(t, h.told[1])); fault.Of(err).Reason != fault.ReasonEventsCompacted {
		t.Errorf("got %v", err)
	}
	if r, err = h.open(cursorOf(t, h.told[4])); err != nil {
		t.Fatal(err)
	}
	r.Close()
	// A reader can always start at the oldest event that is stored.
	if r, err = h.open(stream.Cursor{}); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(h.told[2:], h.read(r, 3)); diff != "" {
		t.Error(diff)
	}
}

// If the newest segment of a service has expired, older events may be missing. Until the
// service's leader starts another segment, readers can start only at the current revision.
func TestAServiceWithoutASegment(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry, model.ServiceAssigner)
	h.write(h.writers[0], "a", 1)
	h.write(h.writers[1], "a", 1)
	h.writers[0].Drop(1)
	_, err := h.open(cursorOf(t, h.told[1]))
	f := fault.Of(err)
	if f == nil || f.Meta["cursor"] != (stream.Cursor{Revision: h.store.Revision()}).String() {
		t.Fatalf("got %v", err)
	}
	h.writers[0].Rotate()
	h.write(h.writers[0], "a", 1)
	if _, err := h.open(cursorOf(t, h.told[1])); fault.Of(err).Reason != fault.ReasonEventsCompacted {
		t.Errorf("got %v", err)
	}
	// The cursor in the error stays valid.
	r, err := h.open(cursorOf(t, f.Meta["cursor"]))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(h.told[2:], h.read(r, 1)); diff != "" {
		t.Error(diff)
	}
}

// Compaction does not affect an open stream, even if its job has no new events.
func TestAnOpenStreamOutlivesCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry)
		w := h.writers[0]
		h.write(w, "a", 1)
		r, err := h.open(cursorOf(t, h.told[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		got := make(chan string, 1)
		go func() {
			events, err := r.Next(ctx)
			if err != nil {
				t.Error(err)
				close(got)
				return
			}
			got <- events[0].GetUid()
		}()
		// Other jobs write events. The segment with the last event that the reader saw expires.
		for range 10 {
			w.Rotate()
			h.write(w, "b", 1)
			time.Sleep(2 * progressInterval)
		}
		for number := int64(1); number <= 8; number++ {
			w.Drop(number)
		}
		h.store.Compact(h.store.Revision())
		h.store.BreakWatches()
		h.write(w, "a", 1)
		if uid := <-got; !strings.HasSuffix(h.told[1], " "+uid) {
			t.Errorf("got %s, want %s", uid, h.told[1])
		}
	})
}

// progressInterval is the interval at which a quiet stream requests progress.
const progressInterval = time.Minute

// A reader reads all pages of a job and merges the events of all services in order.
func TestManyStoredEvents(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry, model.ServiceAssigner)
	for i := range 300 {
		w := h.writers[i%2]
		if i%50 < 2 {
			w.Rotate()
		}
		h.write(w, "a", 7)
	}
	r, err := h.open(stream.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := h.read(r, 1)
	// The revision of the first page has been compacted, so the reader reads the remaining
	// pages at a later revision.
	h.write(h.writers[0], "a", 1)
	h.store.Compact(h.store.Revision())
	if diff := cmp.Diff(h.told, append(first, h.read(r, len(h.told)-len(first))...)); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsOfTheStore(t *testing.T) {
	h := newHistory(t, store.FakeConfig{}, model.ServiceRegistry)
	h.write(h.writers[0], "a", 1)
	if _, err := h.open(stream.Cursor{Revision: 1000}); fault.Of(err).Kind != fault.Invalid {
		t.Errorf("a cursor of the future: %v", err)
	}
	h.store.SetHook(func(context.Context, store.Call) store.Outcome { return store.Drop() })
	for _, since := range []stream.Cursor{{}, {Revision: 1}} {
		if _, err := h.open(since); fault.Of(err).Kind != fault.Unavailable {
			t.Errorf("etcd that does not answer: %v", err)
		}
	}
	h.store.SetHook(nil)
	junk := keys.Event(keyspace.EventKey{Job: "a", Service: model.ServiceRegistry, Segment: 1, Number: 9})
	if _, err := h.store.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(junk, []byte("junk"))}}); err != nil {
		t.Fatal(err)
	}
	r, err := h.open(stream.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context()); fault.Of(err).Kind != fault.Internal {
		t.Errorf("a value that is no event: %v", err)
	}
}
