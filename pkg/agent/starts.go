package agent

import (
	"context"
	"runtime"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

const (
	// startWait is how long a start request waits until the worker runs. After that the
	// answer shows STARTING. It is well below the assigner's deadline.
	startWait = time.Second
	// defaultStartTimeout is the default of Config.StartTimeout.
	defaultStartTimeout = 30 * time.Second
)

// defaultStarts is the default of Config.Starts.
func defaultStarts() int { return max(4, 2*runtime.NumCPU()) }

// Checker is an optional interface of a Driver. Check returns the error with which Start
// would refuse the worker, so that the agent does not queue a start that must fail.
type Checker interface {
	Check(spec Spec) error
}

// start is an accepted start whose result may not be known yet. Agent.mu guards it.
type start struct {
	spec Spec
	// acknowledged is set once an answer showed the worker as STARTING. From then on the
	// agent reports a failure of the start as an end of the worker, not as an error of the
	// request.
	acknowledged bool
	// awaited is the number of requests that wait for the result.
	awaited int
	// withdrawn is set if the start was removed from the queue before it began.
	withdrawn bool
	// settled is closed when the result of the driver is known. err is the failure of the
	// start, unless the agent reported the failure as an end.
	settled chan struct{}
	err     error

	// interrupt closes Spec.Interrupted. It is nil as long as the start is queued.
	interrupt context.CancelFunc

	// permitted is set while the start counts as one in progress: with readiness REPORTED
	// until the worker is ready, otherwise until the driver has started it.
	permitted bool
	// ready is set if the worker reported that it is ready before the driver's result was
	// known. late is set if the worker was not RUNNING in time; then it never will be. The
	// first of both excludes the other.
	ready, late bool
	// limit calls expire after Spec.StartLimit, and is nil without a limit. finished is set
	// once the worker runs, is being stopped or has ended: then expire has no effect.
	limit    *time.Timer
	finished bool

	// gang is nil if the worker does not need the members of its gang. While the start waits
	// for them, members is the timer that ends the wait. cursor identifies the members with
	// which the start began.
	gang    *gang
	members *time.Timer
	cursor  string
}

// enqueue queues a start, or returns an error. a.mu must be locked.
func (a *Agent) enqueue(spec Spec) error {
	if c, ok := a.cfg.Driver.(Checker); ok {
		if err := c.Check(spec); err != nil {
			return err
		}
	}
	if v := spec.Volume; v.ID != "" {
		if err := a.ledger.occupy(spec.identity(), v.ID, v.create); err != nil {
			return err
		}
	}
	// The agent does not start a worker if a full disk could prevent it from writing the
	// worker's end to the journal.
	if err := a.journal.reserve(a.ledger.live(), a.ledger.tombstones); err != nil {
		a.log.Error("worker refused: its end could not be made durable", "error", err)
		return startFailed("the executor's disk: %v", err)
	}
	s := &start{spec: spec, settled: make(chan struct{})}
	a.starting[spec.identity()] = s
	a.startQueue = append(a.startQueue, s)
	a.awaitMembers(s)
	a.startNext()
	return nil
}

// startNext begins queued starts in order while freeStarts is positive. It skips those that
// wait for the members of their gang. a.mu must be locked.
func (a *Agent) startNext() {
	for a.freeStarts > 0 {
		at := slices.IndexFunc(a.startQueue, func(s *start) bool { return s.gang.admits(s) })
		if at < 0 {
			return
		}
		s := a.startQueue[at]
		a.startQueue = slices.Delete(a.startQueue, at, at+1)
		a.setMembers(s)
		s.spec.Begun = a.cfg.now()
		id := s.spec.identity()
		a.ledger.begun(id, s.spec.Begun)
		s.spec.ready = func() { a.loaded(id) } // without a.mu it must not read s.spec
		var life context.Context
		life, s.interrupt = context.WithCancel(a.life)
		s.spec.interrupted = life.Done()
		a.take(s)
		a.limitStart(s, s.spec.StartLimit)
		a.requests.Go(func() { a.start(s) })
	}
}

// take makes a start count as one in progress. a.mu must be locked.
func (a *Agent) take(s *start) {
	s.permitted = true
	a.freeStarts--
}

// release lets the next queued start begin. a.mu must be locked.
func (a *Agent) release(s *start) {
	if s.permitted {
		s.permitted = false
		a.freeStarts++
		a.startNext()
	}
}

// start opens the worker's volume and calls the driver to start the worker. If that takes
// longer than StartTimeout, it continues, and the next queued start begins. With readiness
// REPORTED only the start limit of the task applies, because a load may take long.
func (a *Agent) start(s *start) {
	id := s.spec.identity()
	if !s.spec.loads() {
		slow := time.AfterFunc(a.cfg.StartTimeout, func() {
			a.log.Warn("a start takes too long: beginning the next queued start", "worker", id.Worker, "epoch", id.Epoch)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.release(s)
		})
		defer slow.Stop()
	}
	var handle Handle
	err := a.openVolume(s.spec.Volume)
	if err == nil {
		a.launch(id)
		handle, err = a.cfg.Driver.Start(s.spec, func(x Exit) { a.ended(id, x) })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		s.late = s.late || s.limit != nil && !s.limit.Stop() // expire may still wait for a.mu
		a.counts.failedStarts++
		a.log.Warn("worker not started", "worker", id.Worker, "epoch", id.Epoch, "error", err)
	} else {
		a.counts.starts++
		a.log.Info("worker started", "worker", id.Worker, "epoch", id.Epoch)
		a.began(s, handle)
	}
	a.settle(s, err)
	e := a.ledger.entries[id]
	if _, ended := a.pendingEnds[id]; ended || err != nil || e == nil || e.state != model.WorkerStarting {
		a.finish(s)
	}
}

func (a *Agent) launch(id identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.launch(id)
}

// began processes a start that the driver has made. a.mu must be locked.
func (a *Agent) began(s *start, handle Handle) {
	id := s.spec.identity()
	if a.ledger.entries[id] == nil {
		handle.Forget() // The agent has reported the worker's end, and the control plane has acknowledged it.
		return
	}
	a.workers[id] = &worker{handle: handle, grace: s.spec.Grace, start: s, members: s.cursor}
	s.spec.Members = nil // the worker has them
	if g := s.gang; s.cursor != "" && g.members.Cursor != s.cursor && !a.closed {
		a.requests.Go(func() { g.write() }) // The list has changed since the start began.
	}
	switch {
	case s.late:
		a.expireStarted(s)
	case s.ready, !s.spec.loads():
		a.ledger.started(id, model.ReadyStarted, s.awaited > 0, a.cfg.now())
	}
}

// finish ends what a start still holds: its permit and its limit. s may be nil. a.mu must
// be locked.
func (a *Agent) finish(s *start) {
	if s == nil || s.finished {
		return
	}
	s.finished = true
	if s.limit != nil {
		s.limit.Stop()
	}
	a.release(s)
}

// loaded processes the report of a worker that it is ready.
func (a *Agent) loaded(id identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.starting[id]; s != nil {
		s.ready = !s.late
		return
	}
	w := a.workers[id]
	if a.closed || w == nil || w.start == nil || w.start.late || !a.ledger.ready(id, a.cfg.now()) {
		return
	}
	a.log.Info("worker is ready", "worker", id.Worker, "epoch", id.Epoch)
	a.finish(w.start)
	a.notify()
}

// limitStart makes the agent call expire after a time if the start has a limit that the agent
// enforces. a.mu must be locked.
func (a *Agent) limitStart(s *start, after time.Duration) {
	if s.spec.StartLimit > 0 && !s.spec.cell {
		s.limit = time.AfterFunc(after, func() { a.expire(s) })
	}
}

// expire stops a worker that is not RUNNING in time. Its state stays STARTING until it has
// ended. Then it is FAILED.
func (a *Agent) expire(s *start) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || s.finished || s.ready {
		return
	}
	id := s.spec.identity()
	if !s.late {
		s.late = true
		a.log.Warn("worker is not ready in time", "worker", id.Worker, "epoch", id.Epoch, "limit", s.spec.StartLimit)
	}
	a.release(s)
	if a.starting[id] != s { // Otherwise began expires it.
		a.expireStarted(s)
	}
}

// expireStarted stops a late worker. No request repeats this stop, so it retries a
// failure. a.mu must be locked.
func (a *Agent) expireStarted(s *start) {
	id := s.spec.identity()
	w := a.workers[id]
	if w == nil || w.start != s || a.closed {
		return
	}
	a.requests.Go(func() {
		err := w.handle.Stop(w.grace, true)
		if err == nil {
			return
		}
		a.log.Error("worker not signalled to stop", "worker", id.Worker, "epoch", id.Epoch, "error", err)
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.closed && !s.finished {
			s.limit.Reset(retryEndsAfter)
		}
	})
}

// settle sets the result of a start. a.mu must be locked.
func (a *Agent) settle(s *start, err error) {
	id := s.spec.identity()
	delete(a.starting, id)
	if s.members != nil {
		s.members.Stop()
	}
	if s.interrupt != nil {
		s.interrupt()
	}
	switch {
	case err != nil && s.acknowledged:
		x := Exit{Problem: err.Error(), Stopped: s.withdrawn, Late: s.late, BadTask: isBadTask(err)}
		if s.spec.cell && !s.withdrawn {
			x.Reason = fault.ReasonCellWorkerLost // the cell accepted the worker, so onWorkerLoss applies
		}
		a.conclude(id, x)
	case err != nil:
		s.err = err
		a.ledger.startFailed(id)
		a.leaveGang(id)
	}
	close(s.settled)
	a.notify()
}

// withdraw removes a start from the queue, so that the start never begins. It reports
// whether the start was still queued. a.mu must be locked.
func (a *Agent) withdraw(s *start, why error) bool {
	at := slices.Index(a.startQueue, s)
	if at < 0 {
		return false
	}
	a.startQueue = slices.Delete(a.startQueue, at, at+1)
	s.withdrawn = true
	a.settle(s, why)
	return true
}

// clearStartQueue withdraws all queued starts. a.mu must be locked.
func (a *Agent) clearStartQueue() {
	for len(a.startQueue) > 0 {
		a.withdraw(a.startQueue[0], a.errEnding())
	}
}
