package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// eventRig has the leading drivers of several services. They write job events to one fake
// store, with limits that the test sets.
type eventRig struct {
	t       *testing.T
	fake    *store.Fake
	limits  loop.EventLimits
	now     time.Time
	drivers map[string]*writer
	revoke  func() error // called instead of revoking if set
}

type writer struct {
	*eventRig
	service string
	view    *store.View
	driver  *loop.Driver[*toy]
	made    int
}

func newShore(t *testing.T, limits loop.EventLimits, services ...string) *eventRig {
	s := &eventRig{t: t, limits: limits, now: time.Unix(1e9, 0), drivers: map[string]*writer{}}
	s.fake = store.NewFake(store.FakeConfig{Clock: func() time.Time { return s.now }})
	for _, service := range services {
		s.lead(service)
	}
	return s
}

// lead starts a term of a service. An earlier term of the service ends.
func (s *eventRig) lead(service string) *writer {
	s.t.Helper()
	leader, err := wire.Encode(&model.Leader{Service: service, Replica: "a"})
	if err != nil {
		s.t.Fatal(err)
	}
	key := space.Key(model.LeaderRef(service))
	s.write(store.Delete(key))
	term := s.write(store.Put(key, leader))
	w := &writer{eventRig: s, service: service, view: store.OpenView(s.fake, space.Prefix(), space.Events())}
	s.t.Cleanup(w.view.Close)
	w.driver = loop.NewDriver(newToy(), service, space, s.limits, func() time.Time { return s.now })
	w.follow()
	if err := w.driver.EventIndex().Count(s.t.Context(), s.fake); err != nil {
		s.t.Fatal(err)
	}
	_, err = w.driver.Lead(s.t.Context(), loop.Leading{
		Term: term, Source: w, Confirm: func(context.Context) error { return nil },
		Log: store.NewCommitter(s.fake, store.CommitterConfig{
			LeaderKey: key, Term: term,
			ChainKey: space.Key(model.Ref{Kind: model.KindChain, ID: service}), Chain: w.driver.Chain(),
		}),
		Grant: func(ctx context.Context, ttl time.Duration) (int64, error) {
			lease, err := s.fake.Grant(ctx, ttl)
			return lease.ID, err
		},
		Revoke: func(ctx context.Context, lease int64) error {
			if s.revoke != nil {
				return s.revoke()
			}
			return s.fake.Revoke(ctx, lease)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.drivers[service] = w
	return w
}

func (s *eventRig) write(ops ...store.Op) int64 {
	s.t.Helper()
	res, err := s.fake.Txn(context.Background(), store.Txn{Then: ops})
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Revision
}

// CatchUp implements loop.Source.
func (w *writer) CatchUp(context.Context, int64) ([]store.Batch, error) {
	b, _ := w.view.TryNext()
	return []store.Batch{b}, nil
}

// follow sends the changes of the view to the driver.
func (w *writer) follow() {
	w.t.Helper()
	for {
		w.view.Want(w.fake.Revision())
		b, ok := w.view.TryNext()
		if !ok {
			return
		}
		events, err := w.driver.Events(b)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, event := range events {
			w.driver.Core.Step(w.now, event)
		}
	}
}

// writeEvents writes an effect that has the given number of events of a job.
func (w *writer) writeEvents(job string, events int) {
	w.t.Helper()
	w.made++
	id := fmt.Sprintf("%s-%d", w.service, w.made)
	w.round(model.Input{Token: 1, Request: put{record: executor(id), job: job, events: events}})
}

// round follows the view and then runs a round of the loop.
func (w *writer) round(events ...model.Event) {
	w.t.Helper()
	w.follow()
	if _, err := w.driver.Round(w.t.Context(), events); err != nil {
		w.t.Fatal(err)
	}
}

// settle runs rounds of every service until no service has more events to delete.
func (s *eventRig) settle() {
	s.t.Helper()
	for before := int64(0); before != s.fake.Revision(); {
		before = s.fake.Revision()
		for _, service := range three {
			if w := s.drivers[service]; w != nil {
				w.round()
			}
		}
	}
}

// kept returns what etcd has: the number of events by job and service, their size, and the
// numbers of the marked segments.
func (s *eventRig) kept() (events map[string]int, bytes int, segments []string) {
	s.t.Helper()
	kvs, _, err := store.Range(s.t.Context(), s.fake, space.Prefix())
	if err != nil {
		s.t.Fatal(err)
	}
	events = map[string]int{}
	for _, kv := range kvs {
		if e, ok := space.ParseEvent(kv.Key); ok && e.Segment != 0 {
			events[e.Job]++
			bytes += len(kv.Key) + len(kv.Value)
			if e.Size != len(kv.Value) {
				s.t.Errorf("%s holds %d bytes", kv.Key, len(kv.Value))
			}
		}
		if service, number, ok := space.ParseSegment(kv.Key); ok && number != 0 {
			segments = append(segments, fmt.Sprintf("%s %d", service, number))
		}
	}
	return events, bytes, segments
}

// matches checks that the counts of each service equal the stored events.
func (s *eventRig) matches() {
	s.t.Helper()
	events, bytes, _ := s.kept()
	total := 0
	for _, n := range events {
		total += n
	}
	for service, w := range s.drivers {
		w.follow()
		if n, b, counted := w.driver.EventIndex().Total(); n != total || b != bytes || !counted {
			s.t.Errorf("%s counts %d events of %d bytes (complete: %v), the store has %d of %d bytes", service, n, b, counted,
				total, bytes)
		}
	}
}

var three = []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner}

// The mark of a segment is written with the segment's first event and deleted with the
// segment. Segment numbers continue in the next term. One key names the newest segment.
func TestSegmentsAreMarked(t *testing.T) {
	s := newShore(t, loop.DefaultEventLimits(), model.ServiceRegistry)
	w := s.drivers[model.ServiceRegistry]
	if _, found, _ := s.fake.Get(t.Context(), space.NewestSegment(w.service)); found {
		t.Error("a service without events has a segment")
	}
	w.writeEvents("j", 2)
	first := s.fake.Revision()
	w.writeEvents("j", 1)
	w = s.lead(w.service)
	w.writeEvents("j", 1)
	s.now = s.now.Add(11 * time.Minute)
	w.writeEvents("j", 1)
	if _, _, segments := s.kept(); !slices.Equal(segments, []string{"registry 1", "registry 2", "registry 3"}) {
		t.Errorf("segments are %v", segments)
	}
	mark, _, err := s.fake.Get(t.Context(), space.Segment(w.service, 1))
	if err != nil || mark.Create != first {
		t.Errorf("mark %+v, want revision %d, %v", mark, first, err)
	}
	var newest recordv1.EventSegment
	kv, _, _ := s.fake.Get(t.Context(), space.NewestSegment(w.service))
	if err := proto.Unmarshal(kv.Value, &newest); err != nil || newest.GetNumber() != 3 || kv.Lease != 0 {
		t.Errorf("the newest is %+v, %v", kv, err)
	}
	s.matches()
	s.now = s.now.Add(time.Hour)
	s.fake.Tick()
	if events, _, segments := s.kept(); events["j"] != 1 || !slices.Equal(segments, []string{"registry 3"}) {
		t.Errorf("after the retention: %v in %v", events, segments)
	}
	s.matches()
}

// If the decision with a segment's first event is abandoned, the mark is not written
// either. The next segment that becomes durable gets the number.
func TestMarkIsWrittenWithTheFirstEvent(t *testing.T) {
	s := newShore(t, loop.DefaultEventLimits(), model.ServiceExecutorState)
	w := s.drivers[model.ServiceExecutorState]
	shut, err := wire.Encode(&model.TaskHeader{UID: "g"})
	if err != nil {
		t.Fatal(err)
	}
	s.write(store.Put(space.Key(gate("g")), shut)) // the view does not show this record yet
	if _, err := w.driver.Round(t.Context(), []model.Event{model.Input{Token: 1,
		Request: put{record: executor("x"), gate: "g", events: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, segments := s.kept(); len(segments) != 0 {
		t.Errorf("segments are %v", segments)
	}
	w.writeEvents("j", 1)
	if _, _, segments := s.kept(); !slices.Equal(segments, []string{"executor-state 1"}) {
		t.Errorf("segments are %v", segments)
	}
}

// The newest segment is marked even if it has no events. Otherwise a reader could not know
// since when there have been no events.
func TestTheNewestSegmentIsAlwaysMarked(t *testing.T) {
	s := newShore(t, loop.DefaultEventLimits(), model.ServiceRegistry)
	s.drivers[model.ServiceRegistry].writeEvents("j", 1)
	for want := 2; want < 4; want++ {
		s.now = s.now.Add(2 * time.Hour)
		s.fake.Tick()
		ranOut := s.fake.Revision()
		s.write(store.Put(space.Key(gate("g")), nil)) // other services continue to write
		s.settle()
		if _, _, segments := s.kept(); !slices.Equal(segments, []string{fmt.Sprintf("registry %d", want)}) {
			t.Errorf("segments are %v, want %d", segments, want)
		}
		var mark recordv1.EventSegment
		kv, _, _ := s.fake.Get(t.Context(), space.Segment(model.ServiceRegistry, int64(want)))
		if err := proto.Unmarshal(kv.Value, &mark); err != nil || mark.GetKeptFrom() != ranOut {
			t.Errorf("the mark is %v, the one before ran out at %d, %v", &mark, ranOut, err)
		}
	}
	s.now = s.now.Add(2 * time.Hour)
	s.fake.Tick()
	s.lead(model.ServiceRegistry)
	s.settle()
	if _, _, segments := s.kept(); !slices.Equal(segments, []string{"registry 4"}) {
		t.Errorf("under the next leader segments are %v", segments)
	}
}

// small has limits that are low enough to reach in a test.
var small = loop.EventLimits{Retention: time.Hour, PerJob: 80, Bytes: 1 << 30}

// If a job has too many events, it loses its oldest. The service that wrote them deletes
// them with one delete and a floor. Other jobs keep their events.
func TestAJobKeepsItsNewestEvents(t *testing.T) {
	s := newShore(t, small, three...)
	for i := range 100 {
		w := s.drivers[three[i%3]]
		w.writeEvents("big", 4)
		w.writeEvents(fmt.Sprintf("other-%d", i%5), 1)
		if i%20 == 19 {
			s.settle()
			s.matches()
		}
	}
	events, _, _ := s.kept()
	if n := events["big"]; n > 80 || n < 80-15 {
		t.Errorf("%d events of 400 are kept, the limit is 80", n)
	}
	for i := range 5 {
		if job := fmt.Sprintf("other-%d", i); events[job] != 20 {
			t.Errorf("%s has %d events, want 20", job, events[job])
		}
	}
	// Each floor is the first revision whose events are kept. Its key has an etcd lease.
	floors := 0
	for _, service := range three {
		kv, found, err := s.fake.Get(t.Context(), space.EventFloor("big", service))
		if err != nil || !found {
			t.Fatalf("%s has no floor of the job: %v", service, err)
		}
		var floor recordv1.EventFloor
		if err := proto.Unmarshal(kv.Value, &floor); err != nil {
			t.Fatal(err)
		}
		mark, found, err := s.fake.Get(t.Context(), space.Segment(service, floor.GetSegment()+1))
		if err != nil || !found || mark.Create != floor.GetRevision() || kv.Lease == 0 {
			t.Errorf("%s: floor %v, segment after it %+v, %v", service, &floor, mark, err)
		}
		floors++
	}
	deletes := 0
	for _, r := range s.fake.History() {
		for _, c := range r.Changes {
			if e, ok := space.ParseEvent(c.Key); ok && e.Segment == 0 && !c.Deleted {
				deletes++
			}
		}
	}
	if deletes > 60 || deletes < floors {
		t.Errorf("320 events were deleted in %d transactions", deletes)
	}
}

// bySize returns limits under which the store keeps some hundred events.
func bySize(bytes int) loop.EventLimits {
	return loop.EventLimits{Retention: time.Hour, PerJob: 1_000_000, Bytes: bytes}
}

// If the events exceed the limit of bytes, the oldest segment of all services is deleted
// first.
func TestOldestSegmentIsDeletedFirst(t *testing.T) {
	const most = 64 << 10
	s := newShore(t, bySize(most), three...)
	for i := range 400 {
		s.drivers[three[i%3]].writeEvents(fmt.Sprintf("job-%d", i%7), 3)
		if i%10 == 9 {
			s.settle()
			if _, bytes, _ := s.kept(); bytes > most {
				t.Fatalf("%d bytes are kept", bytes)
			}
			s.matches()
		}
	}
	_, bytes, _ := s.kept()
	if bytes < most*9/10 {
		t.Errorf("only %d bytes are kept of %d", bytes, most)
	}
	// Every event that is kept is newer than all deleted events.
	var gone, oldest int64
	for _, r := range s.fake.History() {
		for _, c := range r.Changes {
			if _, number, ok := space.ParseSegment(c.Key); !ok || number == 0 || c.Deleted {
				continue
			}
			if _, found, _ := s.fake.Get(t.Context(), c.Key); !found {
				gone = max(gone, c.Mod)
			} else if oldest == 0 {
				oldest = c.Mod
			}
		}
	}
	if gone == 0 || gone > oldest {
		t.Errorf("a segment of revision %d was deleted, an older one of %d was kept", gone, oldest)
	}
}

// While a service has no leader, its events remain. The other services delete their own
// events instead.
func TestEventsStayBoundedWithoutALeader(t *testing.T) {
	const most = 64 << 10
	s := newShore(t, bySize(most), three...)
	for range 60 {
		s.drivers[model.ServiceRegistry].writeEvents("j", 3)
	}
	s.settle()
	delete(s.drivers, model.ServiceRegistry)
	before, _, _ := s.kept()
	for i := range 300 {
		s.drivers[three[1+i%2]].writeEvents("k", 3)
		if i%10 == 9 {
			s.settle()
		}
		if _, bytes, _ := s.kept(); i%10 == 9 && bytes > most*9/8 {
			t.Fatalf("%d bytes are kept, the limit is %d", bytes, most)
		}
	}
	if after, _, _ := s.kept(); after["j"] != before["j"] || after["k"] == 0 {
		t.Errorf("kept %v, want %v", after, before)
	}
	// When the service has a leader again, its oldest events are deleted first.
	s.lead(model.ServiceRegistry)
	s.settle()
	if after, bytes, _ := s.kept(); after["j"] >= before["j"] || bytes > most {
		t.Errorf("kept are %v of %d bytes", after, bytes)
	}
}

// If an etcd lease cannot be revoked, the revoke is retried later. The loop continues in
// the meantime.
func TestFailedRevokeIsRetried(t *testing.T) {
	const most = 8 << 10
	s := newShore(t, bySize(most), model.ServiceRegistry)
	attempts := 0
	s.revoke = func() error { attempts++; return store.ErrAmbiguous }
	w := s.drivers[model.ServiceRegistry]
	for range 60 {
		w.writeEvents("j", 3)
	}
	if _, bytes, _ := s.kept(); attempts != 1 || bytes <= most {
		t.Errorf("%d attempts within one moment, %d bytes", attempts, bytes)
	}
	s.revoke = nil
	s.now = s.now.Add(time.Second)
	s.settle()
	if _, bytes, _ := s.kept(); bytes > most {
		t.Errorf("%d bytes are kept", bytes)
	}
}

// When a replica starts while events are written and deleted, it counts the stored events
// correctly.
func TestEventIndexCountsConcurrentChanges(t *testing.T) {
	s := newShore(t, small, model.ServiceRegistry)
	w := s.drivers[model.ServiceRegistry]
	for range 30 {
		w.writeEvents("j", 2)
	}
	w.writeEvents("last", 3)
	late := &writer{eventRig: s, service: model.ServiceAssigner,
		view: store.OpenView(s.fake, space.Prefix(), space.Events())}
	t.Cleanup(late.view.Close)
	late.driver = loop.NewDriver(newToy(), late.service, space, small, func() time.Time { return s.now })
	late.follow()
	if _, _, counted := late.driver.EventIndex().Total(); counted {
		t.Error("the count is reported as complete before it is")
	}
	for range 30 {
		w.writeEvents("j", 2) // more events than the limit, so the driver writes floors and deletes
		w.round()
	}
	kvs, _, err := store.Range(t.Context(), s.fake, space.Segments())
	if err != nil {
		t.Fatal(err)
	}
	late.follow()
	// If counting fails, the next attempt counts only events from before the snapshot.
	s.fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if call.Method == store.MethodPage && strings.HasPrefix(call.Key, space.Events()) {
			s.fake.SetHook(nil)
			return store.Drop()
		}
		return store.Outcome{}
	})
	if late.driver.EventIndex().Count(t.Context(), s.fake) == nil {
		t.Error("counted without an answer")
	}
	if err := late.driver.EventIndex().Count(t.Context(), stale{s.fake, space.Events(), kvs[0].Mod}); err != nil {
		t.Fatal(err)
	}
	s.drivers[late.service] = late
	s.matches()
}

// stale returns pages with the keys as they were at an earlier revision.
type stale struct {
	store.Store
	prefix   string
	revision int64
}

func (s stale) Page(ctx context.Context, req store.PageRequest) (store.Page, error) {
	if strings.HasPrefix(req.From, s.prefix) {
		req.Revision = s.revision
	}
	return s.Store.Page(ctx, req)
}

// BenchmarkEventIndex measures the cost of one event in the index.
func BenchmarkEventIndex(b *testing.B) {
	driver := loop.NewDriver(newToy(), model.ServiceRegistry, space, loop.DefaultEventLimits(), time.Now)
	mark := store.Change{KV: store.KV{Key: space.Segment(model.ServiceAssigner, 1), Create: 1, Mod: 1, Lease: 7}}
	if _, err := driver.Events(store.Batch{Revision: 1, Changes: []store.Change{mark}}); err != nil {
		b.Fatal(err)
	}
	batch := store.Batch{Revision: 2}
	for i := range int64(1000) {
		key := space.Event(keyspace.EventKey{Job: fmt.Sprintf("job-%d", i%50), Service: model.ServiceAssigner, Segment: 1,
			Number: i, Size: 250})
		batch.Skipped = append(batch.Skipped, store.Change{KV: store.KV{Key: key, Mod: 2, Lease: 7}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := driver.Events(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/event")
}
