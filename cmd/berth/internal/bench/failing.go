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
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/model"
)

const (
	// callDeadline is the deadline of every call. The target is that no call returns an
	// error.
	callDeadline = 10 * time.Second
	// settle is how long the load runs undisturbed before and after an outage. The time
	// before the outage is the baseline.
	settle = 2 * time.Second
	// runFor is how long a worker of the load runs.
	runFor = 100 * time.Millisecond
	// rawTimeout bounds one put to etcd. It must be short, because a member waits 7 s for
	// the result of a put that it has forwarded to a dead leader.
	rawTimeout = 300 * time.Millisecond
)

// Names of figures. Each figure is a time in which one kind of operation does not succeed.
const (
	noWrite    = "no write"
	noGrant    = "no grant"
	noDispatch = "no dispatch"
	noStart    = "no start"
	// noPut is the figure of puts directly to etcd. It is subtracted from the other figures.
	noPut = "no put to etcd"
)

// slowest is the name of the figure for the longest duration of all calls, including the
// calls of probes. The other figures do not show a call that hangs while other calls
// succeed.
const slowest = "slowest call"

// measuredBy maps each service to its figures. A grant depends on two services: the registry
// sends the candidate and executor-state grants it.
var measuredBy = map[string][]string{
	model.ServiceRegistry: {noWrite, noGrant}, model.ServiceExecutorState: {noGrant},
	model.ServiceAssigner: {noDispatch, noStart},
}

// failing measures one kind of outage in a Berth cluster under a steady load.
type failing struct {
	outage outage
	rounds int
	// size multiplies the numbers of executors and queued reservations.
	size   int
	grants int // per second
	// figures are the results. small, if not nil, has the results of the same outage with
	// fewer executors and reservations, for comparison.
	figures []Figure
	small   *failing

	w       *World
	hosts   *wiring.Namespaces // nil unless the outage needs them
	running sync.WaitGroup     // the load and the probes

	passed map[string]*gaps // by figure
	waits  waits
	calls  atomic.Int64
	failed atomic.Int64 // calls that ended with an error

	mu     sync.Mutex
	first  error             // the first error of a call
	probes map[string]*probe // by stage
}

// probe is one upsert and one batch that are requested at the moment of an outage. A probe
// measures the outage from that moment on. Unlike the gaps of the load, its result does not
// depend on the intervals of the load.
type probe struct {
	sent   time.Time
	passed map[string]time.Time // by figure; the mutex of failing protects it
}

// took returns how long a probe took, or the time limit and false if the probe has not
// succeeded.
func (f *failing) took(p *probe, what string) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, passed := p.passed[what]; passed {
		return at.Sub(p.sent), true
	}
	return recoverWithin, false
}

// sendProbe sends a probe without waiting for its result.
func (f *failing) sendProbe() *probe {
	p, stage := &probe{sent: time.Now(), passed: map[string]time.Time{}}, f.w.stage()
	f.mu.Lock()
	f.probes[stage] = p
	f.mu.Unlock()
	f.running.Go(func() {
		if f.upsert(1001, "probe", f.w.next()) {
			f.markProbe(noWrite, stage)
		}
	})
	f.running.Go(func() { f.start(1002, stage) })
	return p
}

// markProbe records a success of the probe that uses a stage. It ignores the stages of the
// load.
func (f *failing) markProbe(what, stage string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.probes[stage]; p != nil && p.passed[what].IsZero() {
		p.passed[what] = time.Now()
	}
}

// load starts the callers, which send calls until ctx ends. Use running to wait for the
// callers.
func (f *failing) load(ctx context.Context) {
	f.running.Go(func() {
		steadily(ctx, upsertsPerSecond, func(i int) {
			if f.upsert(1000, fmt.Sprintf("s-%03d", i%200), int64(i+1)) {
				f.passed[noWrite].mark()
			}
		})
	})
	f.running.Go(func() {
		steadily(ctx, f.grants, func(i int) { f.start(2000+i%16, f.w.stage()) })
	})
	if raw := f.passed[noPut]; raw != nil {
		f.running.Go(func() {
			steadily(ctx, upsertsPerSecond, func(i int) {
				ctx, cancel := context.WithTimeout(ctx, rawTimeout)
				defer cancel()
				if f.w.put(ctx, 0, i) == nil {
					raw.mark()
				}
			})
		})
	}
}

// steadily begins rate calls per second until ctx ends, even if earlier calls have not
// returned. It returns after all calls have returned.
func steadily(ctx context.Context, rate int, call func(i int)) {
	_ = paced(ctx, math.MaxInt, time.Second/time.Duration(rate), func(_ context.Context, i int, _ time.Time) error {
		call(i)
		return nil
	}) // the error is that of ctx
}

// upsert changes the order of a queued reservation, so that the registry must write its
// record.
func (f *failing) upsert(job int, stage string, order int64) bool {
	request := Batch{Job: f.w.Job(job), Stage: stage, Workers: 8, SKU: f.w.SKU("none")}.Request()
	request.Priority = &berthv1.Priority{Order: proto.Int64(order)}
	return f.call(request)
}

// start requests a batch for which there is free capacity, so that Berth starts it.
func (f *failing) start(job int, stage string) {
	f.call(Batch{Job: f.w.Job(job), Stage: stage, Workers: 1, SKU: f.w.SKU("free"), RunFor: runFor}.Request())
}

// call requests a reservation with a deadline and counts errors. The duration of a failed
// call counts for the slowest call too.
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

// eventFigures maps a kind of event to the figure for which the event is a success.
var eventFigures = map[berthv1.Event_Kind]string{
	berthv1.Event_RESERVATION_LEASED: noGrant, berthv1.Event_WORKER_ASSIGNED: noDispatch,
	berthv1.Event_WORKER_STARTED: noStart, berthv1.Event_WORKER_RUNNING: noStart,
}

// observe marks grants, dispatches and starts.
func (f *failing) observe(e *berthv1.Event, _ time.Time) {
	if what, counts := eventFigures[e.GetKind()]; counts {
		f.passed[what].mark()
		f.markProbe(what, e.GetStage())
	}
}

// settled waits until all calls that were sent before a time have ended. A call that hangs
// belongs to the outage during which it was sent.
func (f *failing) settled(ctx context.Context, sent time.Time) error {
	return until(ctx, recoverWithin, "a call has not ended", func(context.Context) bool { return f.waits.over(sent) })
}

// flowing waits until each figure has a success after a time, and until all calls that were
// sent before that time have ended.
func (f *failing) flowing(ctx context.Context, after time.Time) error {
	for what, g := range f.passed {
		if err := until(ctx, recoverWithin, what, func(context.Context) bool { return g.since(after) }); err != nil {
			return err
		}
	}
	return f.settled(ctx, after)
}
