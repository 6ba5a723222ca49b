package agent

import (
	"runtime"
	"slices"
	"time"
)

const (
	// startWait is how long a start request waits until the worker runs, before its answer
	// shows STARTING: well within the assigner's deadline.
	startWait = time.Second
	// defaultStartTimeout is the default of Config.StartTimeout.
	defaultStartTimeout = 30 * time.Second
)

// defaultStarts is the default of Config.Starts.
func defaultStarts() int { return max(4, 2*runtime.NumCPU()) }

// Checker is an optional interface of a Driver. Check refuses at once what Start would
// refuse, so that a start that must fail is not queued.
type Checker interface {
	Check(spec Spec) error
}

// start is an accepted start until its result is known. The agent's lock guards it.
type start struct {
	spec Spec
	// acknowledged is set once an answer showed the worker as STARTING. A failure is then
	// reported as an end, instead of being an error of the request.
	acknowledged bool
	// awaited is the number of requests that wait for the result.
	awaited int
	// withdrawn is set if the start was removed from the queue before it began.
	withdrawn bool
	// settled is closed when the result is known; err is the failure, unless an end
	// reports it.
	settled chan struct{}
	err     error
}

// enqueue queues a start, or refuses it. a.mu must be locked.
func (a *Agent) enqueue(spec Spec) error {
	if c, ok := a.cfg.Driver.(Checker); ok {
		if err := c.Check(spec); err != nil {
			return err
		}
	}
	// A worker whose end could not be written to the journal is not started.
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

// startNext begins as many queued starts as may begin, in order. a.mu must be locked.
func (a *Agent) startNext() {
	for a.freeStarts > 0 && len(a.startQueue) > 0 {
		s := a.startQueue[0]
		a.startQueue = slices.Delete(a.startQueue, 0, 1)
		a.freeStarts--
		a.requests.Go(func() { a.start(s) })
	}
}

// start has the driver start a worker. A start that takes too long continues, and lets
// the next one in the queue begin.
func (a *Agent) start(s *start) {
	id := s.spec.identity()
	late := time.AfterFunc(a.cfg.StartTimeout, func() {
		a.log.Warn("a start takes long: beginning the next one", "worker", id.Worker, "epoch", id.Epoch)
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
		a.log.Warn("worker not started", "worker", id.Worker, "epoch", id.Epoch, "error", err)
	} else {
		if a.ledger.entries[id] == nil {
			handle.Forget() // Its end was already reported and acknowledged.
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

// withdraw removes a start from the queue, so that it never begins. It reports whether
// the start was still queued. a.mu must be locked.
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
