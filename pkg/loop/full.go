package loop

import (
	"errors"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// fullPause is how long a driver waits, after the store was full, before it retries
// writes that no request caused.
const fullPause = 250 * time.Millisecond

// isFull reports whether the store was full and the write definitely did not happen. Only
// an operator can make space, so the driver does not let callers wait.
func isFull(err error) bool {
	return errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrAmbiguous)
}

// postpone answers the pending requests of a round with the error that the store is full,
// and defers the other events to a later round. It does not defer requests. A request
// must not be applied long after its caller has left, because the registry remembers
// request IDs only for a limited time. An undecided request may have been applied, and
// its answer says so. The core repeats by itself the decisions that no request caused.
func (d *Driver[C]) postpone(r *round) {
	for _, event := range withoutChanges(r.pending) {
		input, ok := event.(model.Input)
		if !ok {
			d.deferred = append(d.deferred, event)
			continue
		}
		outcome := "this call changed nothing"
		if r.undecided[input.Token] {
			outcome = outcomeUnknown
		}
		r.unproved = append(r.unproved, model.Reply{Token: input.Token, Err: errFull(outcome)})
	}
	d.retry = d.now().Add(fullPause)
}

// NextDeadline returns the time at which Round must be called with a nil event: the time
// of the next retry after the store was full, or else the core's deadline.
func (d *Driver[C]) NextDeadline() time.Time {
	if !d.retry.IsZero() {
		return d.retry
	}
	return d.Core.NextDeadline()
}

// fullSignal is raised while the loop retries a write because its outcome is unknown and
// the store is full. While the signal is raised, callers that wait for a write get an
// error at once.
type fullSignal struct {
	mu sync.Mutex
	up bool
	ch chan struct{} // closed while the signal is up
}

func newFullSignal() *fullSignal { return &fullSignal{ch: make(chan struct{})} }

// attempted records the outcome of an attempt to write.
func (f *fullSignal) attempted(err error) { f.set(errors.Is(err, store.ErrFull)) }

func (f *fullSignal) set(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if up == f.up {
		return
	}
	f.up = up
	if up {
		close(f.ch)
	} else {
		f.ch = make(chan struct{})
	}
}

// raised returns a channel that is closed while the store is full.
func (f *fullSignal) raised() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ch
}

// errFull returns the error of a write to a full store. The error states the outcome of
// the write.
func errFull(outcome string) error {
	return fault.New(fault.Unavailable, fault.ReasonStoreFull,
		"etcd has reached its quota and takes no writes until an operator makes space; %s", outcome)
}
