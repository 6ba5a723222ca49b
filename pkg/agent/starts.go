package agent

import (
	"runtime"
	"slices"
	"time"
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
	// settled is closed when the result is known. err is the failure of the start, unless
	// the agent reported the failure as an end.
	settled chan struct{}
	err     error
}

// enqueue queues a start, or returns an error. a.mu must be locked.
func (a *Agent) enqueue(spec Spec) error {
	if c, ok := a.cfg.Driver.(Checker); ok {
		if err := c.Check(spec); err != nil {
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
	a.startNext()
	return nil
}

// startNext begins queued starts in order while freeStarts is positive. a.mu must be
// locked.
func (a *Agent) startNext() {
	for a.freeStarts > 0 && len(a.startQueue) > 0 {
		s := a.startQueue[0]
		a.startQueue = slices.Delete(a.startQueue, 0, 1)
		a.freeStarts--
		a.requests.Go(func() { a.start(s) })
	}
}

// start calls the driver to start a worker. If that takes longer than StartTimeout, it
// continues, and the next queued start begins.
func (a *Agent) start(s *start) {
	id := s.spec.identity()
	late := time.AfterFunc(a.cfg.StartTimeout, func() {
		a.log.Warn("a start takes too long: beginning the next queued start", "worker", id.Worker, "epoch", id.Epoch)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.freeStarts++
		a.startNext()
	})
	handle, err := a.cfg.Driver.Start(s.spec, func(x Exit) { a.ended(id, x) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if late.Stop() {
		a.freeStarts++
	}
	if err != nil {
		a.counts.failedStarts++
		a.log.Warn("worker not started", "worker", id.Worker, "epoch", id.Epoch, "error", err)
	} else {
		a.counts.starts++
		if a.ledger.entries[id] == nil {
			handle.Forget() // The agent has reported the worker's end, and the control plane has acknowledged it.
		} else {
			a.workers[id] = &worker{handle, s.spec.Grace}
		}
		a.ledger.running(id, s.awaited > 0, a.cfg.now())
		a.log.Info("worker started", "worker", id.Worker, "epoch", id.Epoch)
	}
	a.settle(s, err)
	a.startNext()
}

// settle sets the result of a start. a.mu must be locked.
func (a *Agent) settle(s *start, err error) {
	id := s.spec.identity()
	delete(a.starting, id)
	switch {
	case err != nil && s.acknowledged:
		a.conclude(id, Exit{Problem: err.Error(), Stopped: s.withdrawn})
	case err != nil:
		s.err = err
		a.ledger.startFailed(id)
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
