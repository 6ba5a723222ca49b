package replay

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/keyspace"
)

// fake is a simplified Berth with capacity for some workers. It records all calls in
// order, and each call takes some time.
type fake struct {
	free  int32
	takes func(client.Key) time.Duration
	fails func(client.Key) error

	mu      sync.Mutex
	calls   []string
	running int // calls
	most    int
	events  []*berthv1.Event
	added   chan struct{} // closed and replaced with every event
	queued  []*berthv1.Reservation
	live    map[client.Key]*berthv1.Reservation
}

func newFake(free int32) *fake {
	return &fake{
		free: free, added: make(chan struct{}), live: map[client.Key]*berthv1.Reservation{},
		takes: func(client.Key) time.Duration { return time.Millisecond },
		fails: func(client.Key) error { return nil },
	}
}

func (f *fake) call(ctx context.Context, verb string, key client.Key, do func()) error {
	f.mu.Lock()
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	select {
	case <-time.After(f.takes(key)):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	f.calls = append(f.calls, verb+" "+key.String())
	if err := f.fails(key); err != nil {
		return err
	}
	do()
	return nil
}

func (f *fake) Reserve(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error) {
	answer := &berthv1.Reservation{Job: r.Job, Stage: r.Stage, Name: r.Name, Uid: "uid-" + client.KeyOf(r).String()}
	err := f.call(ctx, "ask", client.KeyOf(r), func() {
		answer.Count = int32(len(r.Workers))
		f.queued = append(f.queued, answer)
		f.emit(answer, berthv1.Event_RESERVATION_QUEUED)
		f.grant()
	})
	return answer, err
}

func (f *fake) Cancel(ctx context.Context, key client.Key) (int, error) {
	return 1, f.call(ctx, "cancel", key, func() {
		if r := f.live[key]; r != nil {
			f.free += r.Count
			delete(f.live, key)
			f.emit(r, berthv1.Event_RESERVATION_CANCELLED)
		}
		for i, r := range f.queued {
			if client.KeyOf(r) == key {
				f.queued = append(f.queued[:i], f.queued[i+1:]...)
				f.emit(r, berthv1.Event_RESERVATION_CANCELLED)
				break
			}
		}
		f.grant()
	})
}

// grant starts the reservations at the head of the queue as long as they fit.
func (f *fake) grant() {
	for len(f.queued) > 0 && f.queued[0].Count <= f.free {
		r := f.queued[0]
		f.queued = f.queued[1:]
		f.free -= r.Count
		f.live[client.KeyOf(r)] = r
		f.emit(r, berthv1.Event_RESERVATION_LEASED)
		f.emit(r, berthv1.Event_WORKER_RUNNING)
	}
}

func (f *fake) emit(r *berthv1.Reservation, kind berthv1.Event_Kind) {
	f.events = append(f.events, &berthv1.Event{
		Cursor: fmt.Sprint(len(f.events)), Kind: kind, Job: r.Job, Stage: r.Stage, Reservation: r.Name, Uid: r.Uid,
		Count: r.Count,
	})
	close(f.added)
	f.added = make(chan struct{})
}

func (f *fake) Events(ctx context.Context, job, _ string) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		for at := 0; ; {
			f.mu.Lock()
			events, added := f.events[at:], f.added
			f.mu.Unlock()
			at += len(events)
			for _, e := range events {
				if e.Job == job && !yield(e, nil) {
					return
				}
			}
			select {
			case <-added:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *fake) List(context.Context, *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation, error] {
	return func(yield func(*berthv1.Reservation, error) bool) {
		for i, r := range f.queued {
			reason := "BEHIND_HEAD"
			if i == 0 {
				reason = "INSUFFICIENT_CAPACITY"
			}
			if !yield(&berthv1.Reservation{Job: r.Job, Stage: r.Stage, Name: r.Name, Reason: &reason}, nil) {
				return
			}
		}
	}
}

// emptyAudit is an auditor of an empty history.
type emptyAudit struct{ *audit.Auditor }

func newEmptyAudit() emptyAudit { return emptyAudit{audit.New(keyspace.New("test"))} }

func (emptyAudit) CatchUp(context.Context) error    { return nil }
func (c emptyAudit) Look(fn func(a *audit.Auditor)) { fn(c.Auditor) }

func options() Options {
	return Options{Concurrency: 4, Settle: 10 * time.Second, Progress: func(Progress) {}}
}

func TestRunKeepsOrderOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var instances []Instance
		for i := range int64(60) {
			instances = append(instances, instance(fmt.Sprint("job", i%7), 1, i, i+2))
		}
		p := NewPlan(instances, "", 0)
		f := newFake(1000)
		f.takes = func(k client.Key) time.Duration {
			return time.Duration(len(k.Name)*int(k.Job[3]-'0')) * time.Millisecond
		}
		r, err := Run(t.Context(), f, newEmptyAudit(), p, options())
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string][]string{}, map[string][]string{}
		for _, a := range p.Actions {
			verb := "ask"
			if a.Cancel {
				verb = "cancel"
			}
			want[a.Batch.Key.Job] = append(want[a.Batch.Key.Job], verb+" "+a.Batch.Key.String())
		}
		for _, call := range f.calls {
			_, key, _ := strings.Cut(call, " ")
			job, _, _ := strings.Cut(key, "/")
			got[job] = append(got[job], call)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if f.most < 2 || f.most > 4 {
			t.Errorf("%d concurrent calls, want 2 to 4", f.most)
		}
		if r.Batches != 60 || r.Granted != 60 || r.Cancelled != 60 || r.Waiting+r.Withdrawn+r.Ended != 0 {
			t.Errorf("report %+v", r)
		}
	})
}

func TestRunUnderScarcity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlan([]Instance{
			instance("a", 1, 0, never), instance("a", 1, 0, never),
			instance("b", 1, 1, never), instance("b", 1, 1, never), instance("b", 1, 1, never),
			instance("c", 1, 2, 3),
			instance("d", 1, 4, never),
		}, "", 0)
		f := newFake(4)
		o := options()
		o.Concurrency = 1
		var last Progress
		o.Progress = func(p Progress) { last = p }
		begun := time.Now()
		r, err := Run(t.Context(), f, newEmptyAudit(), p, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Granted != 1 || r.Withdrawn != 1 || r.Waiting != 2 || r.Ended != 0 || r.Cancelled != 1 {
			t.Errorf("report %+v", r)
		}
		want := []WaitingFor{
			{Reason: "INSUFFICIENT_CAPACITY", Batches: 1, Workers: 3, First: "b/CN/1"},
			{Reason: "BEHIND_HEAD", Batches: 1, Workers: 1, First: "d/CN/4"},
		}
		if diff := cmp.Diff(want, r.WaitingFor); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(begun); took < o.Settle || took > o.Settle+time.Second {
			t.Errorf("settled after %v, want %v", took, o.Settle)
		}
		if last.Done != 5 || last.Waiting != 2 || last.Running != 2 {
			t.Errorf("progress %+v", last)
		}
	})
}

func TestRunSpeedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlan([]Instance{instance("a", 1, 0, never), instance("b", 1, 3600, never), instance("c", 1, 7200, never)},
			"", 0)
		o := options()
		o.Speedup = 100
		r, err := Run(t.Context(), newFake(10), newEmptyAudit(), p, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.AskedSeconds < 72 || r.AskedSeconds > 73 || r.Granted != 3 {
			t.Errorf("the requests took %v s, want 72: %+v", r.AskedSeconds, r)
		}
	})
}

func TestRunReturnsFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var instances []Instance
		for i := range int64(100) {
			instances = append(instances, instance("a", 1, i, never))
		}
		f := newFake(1000)
		f.fails = func(k client.Key) error {
			if k.Name == "7" {
				return fault.New(fault.Conflict, fault.ReasonWorkerIDUsed, "number 1 was used")
			}
			return nil
		}
		_, err := Run(t.Context(), f, newEmptyAudit(), NewPlan(instances, "", 0), options())
		if got := fault.Of(err); got == nil || got.Kind != fault.Conflict ||
			got.Message != "batch a/CN/7: number 1 was used; the cluster remembers an earlier replay, choose another --prefix" {
			t.Errorf("error %v", err)
		}
		if len(f.calls) != 8 {
			t.Errorf("%d calls, want none after the one that failed", len(f.calls))
		}
	})
}

func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o := options()
		o.Speedup = 1
		p := NewPlan([]Instance{instance("a", 1, 0, never), instance("b", 1, 3600, never)}, "", 0)
		if _, err := Run(ctx, newFake(10), newEmptyAudit(), p, o); err == nil {
			t.Error("no error")
		}
	})
}

// TestOutcomes follows the versions of one batch, including a version of an earlier run
// and a version after a refused dispatch.
func TestOutcomes(t *testing.T) {
	p := NewPlan([]Instance{instance("a", 1, 0, never)}, "", 0)
	o := newOutcomes(p)
	observe := func(uid string, kind berthv1.Event_Kind) {
		o.observe(&berthv1.Event{Kind: kind, Job: "a", Stage: "CN", Reservation: "0", Uid: uid, Count: 1})
	}
	want := func(s Standing, unsettled int) {
		t.Helper()
		if got := o.tally(); got.count[s] != 1 || got.unsettled != unsettled {
			t.Errorf("tally %+v, want one of %d, %d unsettled", got, s, unsettled)
		}
	}
	observe("old", berthv1.Event_RESERVATION_LEASED)
	observe("old", berthv1.Event_RESERVATION_CANCELLED)
	want(Unsent, 1)
	observe("u1", berthv1.Event_RESERVATION_QUEUED)
	o.acked(p.Batches[0], "u1")
	want(Waiting, 1)
	observe("u1", berthv1.Event_RESERVATION_LEASED)
	want(Granted, 1)
	observe("u1", berthv1.Event_RESERVATION_REPLACED)
	observe("u2", berthv1.Event_RESERVATION_QUEUED)
	want(Waiting, 1)
	observe("u2", berthv1.Event_RESERVATION_LEASED)
	observe("u2", berthv1.Event_WORKER_RUNNING)
	want(Granted, 0)
	o.cancelled(p.Batches[0])
	want(Granted, 1)
	observe("u2", berthv1.Event_RESERVATION_CANCELLED)
	want(Granted, 0)

	o = newOutcomes(p)
	o.acked(p.Batches[0], "u1")
	observe("u1", berthv1.Event_RESERVATION_EXPIRED)
	want(Ended, 0)
}
