package replay

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
)

// API is what the runner asks of Berth; *client.Client is one.
type API interface {
	Reserve(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error)
	Cancel(ctx context.Context, key client.Key) (int, error)
	Events(ctx context.Context, job, since string) iter.Seq2[*berthv1.Event, error]
	List(ctx context.Context, request *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation, error]
}

// Auditor is who judges; *audit.Follower is one.
type Auditor interface {
	CatchUp(ctx context.Context) error
	Look(fn func(*audit.Auditor))
}

// Options of a run.
type Options struct {
	// Speedup is how many seconds of the trace pass in one; 0 is as fast as it
	// goes.
	Speedup float64
	// Concurrency bounds the calls under way: no action begins before all but
	// so many of those before it are done.
	Concurrency int
	// Settle is how long nothing must change, once everything was asked for,
	// until what waits is taken to wait.
	Settle time.Duration
	// Progress is told of how far the run has come, from time to time.
	Progress func(Progress)
}

// Progress is how far a run has come.
type Progress struct {
	Done, Actions               int
	Granted, Waiting, Cancelled int
	Running, Violations         int
}

// lookEvery is how often the runner looks at what it knows.
const lookEvery = 100 * time.Millisecond

// runner is one run under way.
type runner struct {
	api      API
	auditor  Auditor
	plan     *Plan
	options  Options
	outcomes *outcomes
	begun    time.Time

	mu   sync.Mutex
	done int
}

// Run carries a plan out and waits until nothing changes any more. The error is
// that of the first call that failed for good, or of ctx.
func Run(ctx context.Context, api API, auditor Auditor, plan *Plan, options Options) (*Report, error) {
	r := &runner{
		api: api, auditor: auditor, plan: plan, options: options,
		outcomes: newOutcomes(plan, time.Now), begun: time.Now(),
	}
	ctx, fail := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer fail(nil)
	for _, job := range plan.Jobs() {
		following.Go(func() { r.follow(ctx, job, fail) })
	}
	following.Go(func() { r.watch(ctx) })

	if err := r.act(ctx, fail); err != nil {
		return nil, err
	}
	asked := time.Since(r.begun)
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	return r.report(ctx, asked)
}

// follow learns what becomes of a job's batches.
func (r *runner) follow(ctx context.Context, job string, fail context.CancelCauseFunc) {
	for event, err := range r.api.Events(ctx, job, "") {
		if err != nil {
			fail(err)
			return
		}
		r.outcomes.observe(event)
	}
}

// watch tells of the progress.
func (r *runner) watch(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		r.options.Progress(r.progress())
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) progress() Progress {
	t := r.outcomes.tally()
	p := Progress{
		Actions: len(r.plan.Actions),
		Granted: t.count[Granted], Waiting: t.count[Waiting], Cancelled: t.cancelled, Running: t.running,
	}
	r.auditor.Look(func(a *audit.Auditor) { p.Violations = a.Count() })
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Done = r.done
	return p
}

// act begins every action in its turn. Those of one job are done one after the
// other.
func (r *runner) act(ctx context.Context, fail context.CancelCauseFunc) error {
	jobs := map[string]int{}
	for _, action := range r.plan.Actions {
		jobs[action.Batch.Key.Job]++
	}
	slots := make(chan struct{}, max(1, r.options.Concurrency))
	lanes := map[string]chan Action{}
	var working sync.WaitGroup
	for job, n := range jobs {
		lane := make(chan Action, n)
		lanes[job] = lane
		working.Go(func() {
			for action := range lane {
				if err := r.do(ctx, action); err != nil {
					fail(err)
				}
				<-slots
			}
		})
	}
	for _, action := range r.plan.Actions {
		r.due(ctx, action)
		select {
		case slots <- struct{}{}:
			lanes[action.Batch.Key.Job] <- action
		case <-ctx.Done(): // the lanes do no more either
		}
	}
	for _, lane := range lanes {
		close(lane)
	}
	working.Wait()
	return context.Cause(ctx)
}

// due waits for an action's second.
func (r *runner) due(ctx context.Context, action Action) {
	if r.options.Speedup <= 0 {
		return
	}
	at := r.begun.Add(time.Duration(float64(action.At) / r.options.Speedup * float64(time.Second)))
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// do carries one action out, unless the run is over.
func (r *runner) do(ctx context.Context, action Action) error {
	if ctx.Err() != nil {
		return nil
	}
	if action.Cancel {
		if _, err := r.api.Cancel(ctx, action.Batch.Key); err != nil {
			return about(action, err)
		}
		r.outcomes.cancelled(action.Batch)
	} else {
		accepted, err := r.api.Reserve(ctx, action.Batch.Request())
		if err != nil {
			return about(action, err)
		}
		r.outcomes.acked(action.Batch, accepted.GetUid())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	return nil
}

// about says which batch an error is about.
func about(action Action, err error) error {
	f := *fault.Of(err)
	f.Message = "batch " + action.Batch.Key.String() + ": " + f.Message
	if f.Reason == fault.ReasonWorkerIDUsed {
		f.Message += "; the cluster remembers an earlier replay: choose another --prefix"
	}
	return &f
}

// settle waits until every batch has come to rest, or nothing has changed for
// as long as the options say.
func (r *runner) settle(ctx context.Context) error {
	var last [4]int
	changed := time.Now()
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		if err := r.auditor.CatchUp(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		t := r.outcomes.tally()
		now := [4]int{t.count[Granted], t.running, t.unsettled, 0}
		clean := false
		r.auditor.Look(func(a *audit.Auditor) {
			if t.unsettled == t.count[Waiting] {
				left := len(a.Quiesced())
				now[3], clean = left, left == 0
			}
		})
		switch {
		case clean && t.unsettled == 0:
			return nil
		case now != last:
			last, changed = now, time.Now()
		case time.Since(changed) >= r.options.Settle:
			return nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
