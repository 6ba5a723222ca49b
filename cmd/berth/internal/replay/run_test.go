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

// fake is a Berth with room for some workers. What it is asked is written down
// in order, and takes a while.
type fake struct {
	room  int32
	takes func(client.Key) time.Duration
	fails func(client.Key) error

	mu      sync.Mutex
	calls   []string
	under   int // calls under way
	most    int
	events  []*berthv1.Event
	told    chan struct{} // closed and replaced with every event
	waiting []*berthv1.Reservation
	live    map[client.Key]*berthv1.Reservation
}

func newFake(room int32) *fake {
	return &fake{
		room: room, told: make(chan struct{}), live: map[client.Key]*berthv1.Reservation{},
		takes: func(client.Key) time.Duration { return time.Millisecond },
		fails: func(client.Key) error { return nil },
	}
}

func (f *fake) call(ctx context.Context, verb string, key client.Key, do func()) error {
	f.mu.Lock()
	f.under++
	f.most = max(f.most, f.under)
	f.mu.Unlock()
	select {
	case <-time.After(f.takes(key)):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
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
		f.waiting = append(f.waiting, answer)
		f.tell(answer, berthv1.Event_RESERVATION_QUEUED)
		f.grant()
	})
	return answer, err
}

func (f *fake) Cancel(ctx context.Context, key client.Key) (int, error) {
	return 1, f.call(ctx, "cancel", key, func() {
		if r := f.live[key]; r != nil {
			f.room += r.Count
			delete(f.live, key)
			f.tell(r, berthv1.Event_RESERVATION_CANCELLED)
		}
		for i, r := range f.waiting {
			if client.KeyOf(r) == key {
				f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
				f.tell(r, berthv1.Event_RESERVATION_CANCELLED)
				break
			}
		}
		f.grant()
	})
}

// grant starts what fits, the head first.
func (f *fake) grant() {
	for len(f.waiting) > 0 && f.waiting[0].Count <= f.room {
		r := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.room -= r.Count
		f.live[client.KeyOf(r)] = r
		f.tell(r, berthv1.Event_RESERVATION_LEASED)
		f.tell(r, berthv1.Event_WORKER_RUNNING)
	}
}

func (f *fake) tell(r *berthv1.Reservation, kind berthv1.Event_Kind) {
	f.events = append(f.events, &berthv1.Event{
		Cursor: fmt.Sprint(len(f.events)), Kind: kind, Job: r.Job, Stage: r.Stage, Reservation: r.Name, Uid: r.Uid, Count: r.Count,
	})
	close(f.told)
	f.told = make(chan struct{})
}

func (f *fake) Events(ctx context.Context, job, _ string) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		for at := 0; ; {
			f.mu.Lock()
			events, told := f.events[at:], f.told
			f.mu.Unlock()
			at += len(events)
			for _, e := range events {
				if e.Job == job && !yield(e, nil) {
					return
				}
			}
			select {
			case <-told:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *fake) List(context.Context, *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation, error] {
	return func(yield func(*berthv1.Reservation, error) bool) {
		for i, r := range f.waiting {
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

// calm is an auditor of a cluster in which nothing ever happened.
type calm struct{ *audit.Auditor }

func newCalm() calm { return calm{audit.New(keyspace.New("test"))} }

func (calm) CatchUp(context.Context) error    { return nil }
func (c calm) Look(fn func(a *audit.Auditor)) { fn(c.Auditor) }

func options() Options {
	return Options{Concurrency: 4, Settle: 10 * time.Second, Progress: func(Progress) {}}
}

func TestRunKeepsTheOrderOfEachJob(t *testing.T) {
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
		r, err := Run(t.Context(), f, newCalm(), p, options())
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
			t.Errorf("%d calls at once, want some but 4 at most", f.most)
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
		r, err := Run(t.Context(), f, newCalm(), p, o)
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

func TestRunCompressesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlan([]Instance{instance("a", 1, 0, never), instance("b", 1, 3600, never), instance("c", 1, 7200, never)}, "", 0)
		o := options()
		o.Speedup = 100
		r, err := Run(t.Context(), newFake(10), newCalm(), p, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.AskedSeconds < 72 || r.AskedSeconds > 73 || r.Granted != 3 {
			t.Errorf("asked for in %v s, want 72: %+v", r.AskedSeconds, r)
		}
	})
}

func TestRunEndsWithTheFirstFailure(t *testing.T) {
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
		_, err := Run(t.Context(), f, newCalm(), NewPlan(instances, "", 0), options())
		if got := fault.Of(err); got == nil || got.Kind != fault.Conflict || got.Message != "batch a/CN/7: number 1 was used; the cluster remembers an earlier replay: choose another --prefix" {
			t.Errorf("error %v", err)
		}
		if len(f.calls) != 8 {
			t.Errorf("%d calls, want none after the one that failed", len(f.calls))
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o := options()
		o.Speedup = 1
		p := NewPlan([]Instance{instance("a", 1, 0, never), instance("b", 1, 3600, never)}, "", 0)
		if _, err := Run(ctx, newFake(10), newCalm(), p, o); err == nil {
			t.Error("no error")
		}
	})
}

// TestOutcomes follows one batch over versions: what an earlier run left, and a
// dispatch that was refused.
func TestOutcomes(t *testing.T) {
	p := NewPlan([]Instance{instance("a", 1, 0, never)}, "", 0)
	o := newOutcomes(p, time.Now)
	tell := func(uid string, kind berthv1.Event_Kind) {
		o.observe(&berthv1.Event{Kind: kind, Job: "a", Stage: "CN", Reservation: "0", Uid: uid, Count: 1})
	}
	want := func(s Standing, unsettled int) {
		t.Helper()
		if got := o.tally(); got.count[s] != 1 || got.unsettled != unsettled {
			t.Errorf("tally %+v, want one of %d, %d unsettled", got, s, unsettled)
		}
	}
	tell("old", berthv1.Event_RESERVATION_LEASED)
	tell("old", berthv1.Event_RESERVATION_CANCELLED)
	want(Unsent, 1)
	tell("u1", berthv1.Event_RESERVATION_QUEUED)
	o.acked(p.Batches[0], "u1")
	want(Waiting, 1)
	tell("u1", berthv1.Event_RESERVATION_LEASED)
	want(Granted, 1)
	tell("u1", berthv1.Event_RESERVATION_REPLACED)
	tell("u2", berthv1.Event_RESERVATION_QUEUED)
	want(Waiting, 1)
	tell("u2", berthv1.Event_RESERVATION_LEASED)
	tell("u2", berthv1.Event_WORKER_RUNNING)
	want(Granted, 0)
	o.cancelled(p.Batches[0])
	want(Granted, 1)
	tell("u2", berthv1.Event_RESERVATION_CANCELLED)
	want(Granted, 0)

	o = newOutcomes(p, time.Now)
	o.acked(p.Batches[0], "u1")
	tell("u1", berthv1.Event_RESERVATION_EXPIRED)
	want(Ended, 0)
}
