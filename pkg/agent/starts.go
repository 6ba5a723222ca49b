package agent

import (
	"context"
	"runtime"
	"slices"
	"time"

	"berth.dev/api/fault"
)

const (
	// promptly is how long an order to start waits for the worker to run before
	// it is answered that it is starting: well within the assigner's patience.
	promptly = time.Second
	// defaultStartTimeout is how long a start keeps others waiting.
	defaultStartTimeout = 30 * time.Second
)

// defaultStarts is how many starts are under way at once, unless it is given.
func defaultStarts() int { return max(4, 2*runtime.NumCPU()) }

// Checker is what a Driver may be beside: Check refuses at once what Start would
// refuse, so that nobody waits in line for a refusal.
type Checker interface {
	Check(spec Spec) error
}

// start is an order to start a worker, from when it is taken until it is known
// what came of it. The agent's lock guards it.
type start struct {
	spec Spec
	// acknowledged: somebody was told that the worker is starting. What comes of
	// it is then told as an end, where it would else be an error of the order.
	acknowledged bool
	// awaited is how many orders wait for it, to be answered.
	awaited int
	// withdrawn: it was taken out of the line before it began.
	withdrawn bool
	// settled is closed when the start is over; err says why it failed, unless an
	// end tells that.
	settled chan struct{}
	err     error
}

// enqueue takes an order to start, or refuses it. The lock is held.
func (a *Agent) enqueue(spec Spec) error {
	if c, ok := a.cfg.Driver.(Checker); ok {
		if err := c.Check(spec); err != nil {
			return err
		}
	}
	// A worker whose end could not be written down is not begun.
	if err := a.journal.reserve(a.ledger.living, a.ledger.buried); err != nil {
		a.log.Error("no worker is started: its end could not be made durable", "error", err)
		return startFailed("the executor's disk: %v", err)
	}
	s := &start{spec: spec, settled: make(chan struct{})}
	a.starting[spec.identity()] = s
	a.line = append(a.line, s)
	a.startNext()
	return nil
}

// startNext begins what is in line, in order, as far as there is room. The lock
// is held.
func (a *Agent) startNext() {
	for a.room > 0 && len(a.line) > 0 {
		s := a.line[0]
		a.line = slices.Delete(a.line, 0, 1)
		a.room--
		a.orders.Go(func() { a.start(s) })
	}
}

// start has the driver start a worker. One that takes too long goes on, and lets
// the next one in line begin.
func (a *Agent) start(s *start) {
	id := s.spec.identity()
	late := time.AfterFunc(a.cfg.StartTimeout, func() {
		a.log.Warn("a start takes long: others go first", "worker", id.Worker, "epoch", id.Epoch)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.room++
		a.startNext()
	})
	handle, err := a.cfg.Driver.Start(s.spec, func(x Exit) { a.ended(id, x) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if late.Stop() {
		a.room++
	}
	if err != nil {
		a.log.Warn("worker not started", "worker", id.Worker, "epoch", id.Epoch, "error", err)
		a.settle(s, err)
	} else {
		if a.ledger.entries[id] == nil {
			handle.Forget() // It ended, and its end was taken, in the meantime.
		} else {
			a.workers[id] = &worker{handle, s.spec.Grace}
		}
		a.ledger.running(id, s.awaited > 0, a.now())
		a.log.Info("worker started", "worker", id.Worker, "epoch", id.Epoch)
		a.settle(s, nil)
	}
	a.startNext()
}

// settle ends a start. The lock is held.
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
	a.tell()
}

// withdraw takes a start out of the line, so that it never begins, and says
// whether it was still there. The lock is held.
func (a *Agent) withdraw(s *start, why error) bool {
	at := slices.Index(a.line, s)
	if at < 0 {
		return false
	}
	a.line = slices.Delete(a.line, at, at+1)
	s.withdrawn = true
	a.settle(s, why)
	return true
}

// clearLine withdraws all that waits. The lock is held.
func (a *Agent) clearLine() {
	for len(a.line) > 0 {
		a.withdraw(a.line[0], a.ends())
	}
}

// awaitStart waits until a start is over, or until it is late: then the worker
// counts as acknowledged. The lock is let go of meanwhile.
func (a *Agent) awaitStart(ctx context.Context, late <-chan struct{}, s *start) error {
	a.mu.Unlock()
	select {
	case <-s.settled:
	case <-late:
	case <-ctx.Done():
	}
	a.mu.Lock()
	s.awaited--
	select {
	case <-s.settled:
		return s.err
	default:
	}
	if ctx.Err() != nil {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the worker is being started").Because(ctx.Err())
	}
	s.acknowledged = true
	return nil
}
