package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

const (
	failoverReplicas, failoverGateways, failoverMembers = 3, 2, 3

	// callDeadline is that of every caller: none of them may see an error.
	callDeadline = 10 * time.Second
	// settle is how long the load goes on undisturbed before an outage, as its
	// baseline, and after it.
	settle = 2 * time.Second
	// runFor is how long a worker of the load runs.
	runFor = 100 * time.Millisecond
	// rawTimeout is that of one put to etcd: one that a member passes on to a
	// leader that has just died is lost, and the member keeps it for 7 s.
	rawTimeout = 300 * time.Millisecond
)

// What goes through, or does not.
const (
	writes = "no write"
	grants = "no grant"
	hands  = "no dispatch"
	begins = "no start"
	// puts are straight to etcd, where its own gap is taken off.
	puts = "no put to etcd"
)

// slowest is of all calls, those of probes among them: what hangs while others are
// answered is neither a gap nor an error.
const slowest = "slowest call"

// measuredBy says by what each service is judged. A grant is asked for by the
// registry and made by executor-state.
var measuredBy = map[string][]string{
	model.ServiceRegistry: {writes, grants}, model.ServiceExecutorState: {grants}, model.ServiceAssigner: {hands, begins},
}

// failing is a Berth under a steady load while parts of it fail.
type failing struct {
	o      *failoverOptions
	w      *World
	fleet  *fleet.Fleet
	asking sync.WaitGroup     // probes
	hosts  *wiring.Namespaces // nil unless each process has a host of its own

	passed map[string]*gaps // by what goes through
	waits  waits
	calls  atomic.Int64
	failed atomic.Int64 // calls that ended with an error

	mu     sync.Mutex
	first  error // of those
	probes map[string]*probe
	asked  int64
}

// probe is one upsert and one batch that are asked for at the moment of an outage,
// or of none, so that somebody waits from then on whatever the load does.
type probe struct {
	stage  string // of both
	asked  time.Time
	mu     sync.Mutex
	passed map[string]time.Time
}

func (p *probe) mark(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passed[what].IsZero() {
		p.passed[what] = time.Now()
	}
}

// took is how long something took to go through; false while it has not.
func (p *probe) took(what string) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.passed[what]
	return at.Sub(p.asked), !at.IsZero()
}

// ask sends a probe.
func (f *failing) ask() *probe {
	p := &probe{stage: f.w.run.stage(), asked: time.Now(), passed: map[string]time.Time{}}
	f.mu.Lock()
	f.probes[p.stage] = p
	f.asked++
	order := f.asked
	f.mu.Unlock()
	f.asking.Go(func() {
		if f.upsert(1001, "probe", order) {
			p.mark(writes)
		}
	})
	f.asking.Go(func() {
		f.call(Batch{Job: f.w.Job(1002), Stage: p.stage, Workers: 1, SKU: f.w.SKU("free"), RunFor: runFor}.Request())
	})
	return p
}

// answered waits until what a service is judged by has gone through.
func (f *failing) answered(ctx context.Context, p *probe, service string) {
	for _, what := range measuredBy[service] {
		// Should nothing go through, the figure says so: it ends with the wait.
		_ = until(ctx, "", func(context.Context) bool { _, did := p.took(what); return did })
	}
}

// load has callers call until ctx is over, then waits for the calls under way.
func (f *failing) load(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { f.see(ctx) })
	running.Go(func() {
		f.steadily(ctx, f.o.upserts, func(i int) {
			if f.upsert(1000, fmt.Sprintf("s-%03d", i%200), int64(i+1)) {
				f.passed[writes].mark()
			}
		})
	})
	running.Go(func() {
		f.steadily(ctx, f.o.grants, func(i int) {
			f.call(Batch{Job: f.w.Job(2000 + i%16), Stage: f.w.run.stage(), Workers: 1, SKU: f.w.SKU("free"), RunFor: runFor}.Request())
		})
	})
	if raw := f.passed[puts]; raw != nil {
		running.Go(func() {
			f.steadily(ctx, f.o.upserts, func(i int) {
				ctx, cancel := context.WithTimeout(ctx, rawTimeout)
				defer cancel()
				if _, err := f.w.Etcd.Client().Put(ctx, fmt.Sprintf("%s%d", f.w.rawPrefix(), i%200), "raw"); err == nil {
					raw.mark()
				}
			})
		})
	}
	running.Wait()
}

// steadily begins so many calls a second until ctx is over, whether or not those
// before have been answered, and waits for all.
func (f *failing) steadily(ctx context.Context, rate int, call func(i int)) {
	_ = paced(ctx, math.MaxInt, time.Second/time.Duration(rate), func(_ context.Context, i int, _ time.Time) error {
		call(i)
		return nil
	}) // the error is that of ctx
}

// upsert changes the order of one that waits: it is written each time, and nothing is
// left of it.
func (f *failing) upsert(job int, stage string, order int64) bool {
	request := Batch{Job: f.w.Job(job), Stage: stage, Workers: 8, SKU: f.w.SKU("none")}.Request()
	request.Priority = &berthv1.Priority{Order: proto.Int64(order)}
	return f.call(request)
}

// call asks for a reservation with a caller's deadline, and counts errors. How long it
// took counts whatever it ended with.
func (f *failing) call(request *berthv1.Reservation) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	f.calls.Add(1)
	ended := f.waits.begin()
	_, err := f.w.Client.Reserve(ctx, request)
	ended()
	if err == nil {
		return true
	}
	f.failed.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = err
	}
	return false
}

// see marks grants and starts as etcd tells of them.
func (f *failing) see(ctx context.Context) {
	view := store.OpenView(f.w.Etcd, f.w.Space.Events()+f.w.Prefix)
	defer view.Close()
	for {
		batch, err := view.Next(ctx)
		if err != nil {
			return
		}
		for _, change := range batch.Changes {
			key, ok := f.w.Space.ParseEvent(change.Key)
			var e berthv1.Event
			if change.Deleted || !ok || key.Segment == 0 || proto.Unmarshal(change.Value, &e) != nil {
				continue
			}
			switch e.GetKind() {
			case berthv1.Event_RESERVATION_LEASED:
				f.mark(grants, e.GetStage(), batch.Reset)
			case berthv1.Event_WORKER_ASSIGNED:
				f.mark(hands, e.GetStage(), batch.Reset)
			case berthv1.Event_WORKER_STARTED, berthv1.Event_WORKER_RUNNING:
				f.mark(begins, e.GetStage(), batch.Reset)
			}
		}
	}
}

// mark notes that something went through, of a probe perhaps; again when that may be
// long ago.
func (f *failing) mark(what, stage string, again bool) {
	if !again {
		f.passed[what].mark()
	}
	f.mu.Lock()
	p := f.probes[stage]
	f.mu.Unlock()
	if p != nil {
		p.mark(what)
	}
}

// settled waits until every call has ended that was asked before a moment: one that
// hangs is part of the outage that it was asked in.
func (f *failing) settled(ctx context.Context, asked time.Time) error {
	return until(ctx, "no end of a call", func(context.Context) bool { return f.waits.over(asked) })
}

// flowing waits until everything goes through that was not sent before a moment, and
// nothing hangs that was.
func (f *failing) flowing(ctx context.Context, after time.Time) error {
	for what, g := range f.passed {
		if err := until(ctx, what, func(context.Context) bool { return g.since(after) }); err != nil {
			return err
		}
	}
	return f.settled(ctx, after)
}
