package replay

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/store"
)

// API is the part of Berth that the runner needs. *client.Client implements it.
type API interface {
	Reserve(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error)
	Cancel(ctx context.Context, key client.Key) (int, error)
	Events(ctx context.Context, job, since string) iter.Seq2[*berthv1.Event, error]
	List(ctx context.Context, request *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation, error]
}

// Auditor audits the cluster. *audit.Follower implements it.
type Auditor interface {
	CatchUp(ctx context.Context) error
	Look(fn func(*audit.Auditor))
}

// Options are the options of a run.
type Options struct {
	// Speedup is the number of seconds of the trace per second. If it is 0, the run is as
	// fast as possible.
	Speedup float64
	// Concurrency is the maximum number of concurrent calls.
	Concurrency int
	// Settle is the time without a change after which the run ends, even if batches are
	// pending.
	Settle time.Duration
	// Progress is called regularly.
	Progress func(Progress)
}

// Progress is the progress of a run.
type Progress struct {
	Done, Actions               int
	Granted, Waiting, Cancelled int
	Running, Violations         int
}

// lookEvery is the interval between two calls of Progress, and between two checks whether
// the run has settled.
const lookEvery = 100 * time.Millisecond

// runner is a run in progress.
type runner struct {
	api      API
	auditor  Auditor
	plan     *Plan
	options  Options
	outcomes *outcomes
	begun    time.Time
	done     atomic.Int64 // actions
}

// Run executes a plan and waits until the outcomes no longer change. It returns the error
// of the first call that failed, or of ctx.
func Run(ctx context.Context, api API, auditor Auditor, plan *Plan, options Options) (*Report, error) {
	r := &runner{
		api: api, auditor: auditor, plan: plan, options: options,
		outcomes: newOutcomes(plan), begun: time.Now(),
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
	requested := time.Since(r.begun)
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	return r.report(ctx, requested)
}

// follow records the events of a job.
func (r *runner) follow(ctx context.Context, job string, fail context.CancelCauseFunc) {
	for event, err := range r.api.Events(ctx, job, "") {
		if err != nil {
			fail(err)
			return
		}
		r.outcomes.observe(event)
	}
}

// watch reports the progress.
func (r *runner) watch(ctx context.Context) {
	for ctx.Err() == nil {
		r.options.Progress(r.progress())
		_ = store.Sleep(ctx, lookEvery) // the loop checks ctx
	}
}

func (r *runner) progress() Progress {
	t := r.outcomes.tally()
	p := Progress{
		Done: int(r.done.Load()), Actions: len(r.plan.Actions),
		Granted: t.count[Granted], Waiting: t.count[Waiting], Cancelled: t.cancelled, Running: t.running,
	}
	r.auditor.Look(func(a *audit.Auditor) { p.Violations = a.Count() })
	return p
}

// act begins the actions in their order. The actions of one job run one after another.
// The actions of different jobs run concurrently.
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
		case <-ctx.Done(): // do skips the remaining actions in the lanes
		}
	}
	for _, lane := range lanes {
		close(lane)
	}
	working.Wait()
	return context.Cause(ctx)
}

// due waits until the second of an action.
func (r *runner) due(ctx context.Context, action Action) {
	if r.options.Speedup <= 0 {
		return
	}
	at := r.begun.Add(time.Duration(float64(action.At) / r.options.Speedup * float64(time.Second)))
	_ = store.Sleep(ctx, time.Until(at)) // the caller checks ctx
}

// do executes one action, unless ctx has ended.
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
	r.done.Add(1)
	return nil
}

// about adds the name of the batch to an error.
func about(action Action, err error) error {
	f := *fault.Of(err)
	f.Message = "batch " + action.Batch.Key.String() + ": " + f.Message
	if f.Reason == fault.ReasonWorkerIDUsed {
		f.Message += "; the cluster remembers an earlier replay, choose another --prefix"
	}
	return &f
}

// settle waits until every batch is settled, or until nothing has changed for
// options.Settle.
func (r *runner) settle(ctx context.Context) error {
	var last [4]int
	changed := time.Now()
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
		if store.Sleep(ctx, lookEvery) != nil {
			return context.Cause(ctx)
		}
	}
}
