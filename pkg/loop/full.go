package loop

import (
	"errors"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// fullPause is how long a driver waits before it repeats its own writes after the store
// was full.
const fullPause = 250 * time.Millisecond

// isFull reports whether the store was full and the write certainly did not happen. An
// operator has to make space, so no caller waits for that.
func isFull(err error) bool {
	return errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrAmbiguous)
}

// postpone answers the pending requests of a round that the store is full, and defers the
// other events to a later round. The core may still work on an undecided request, so that
// one may have been applied. No request is deferred: it must not be carried out after its
// caller has left, since the registry remembers its ID for a limited time. Decisions that
// the core makes on its own it makes again.
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

// NextDeadline returns the time by which the driver needs a nil event: the core's
// deadline, or the next retry of a write for which the store was too full.
func (d *Driver[C]) NextDeadline() time.Time {
	if !d.retry.IsZero() {
		return d.retry
	}
	return d.Core.NextDeadline()
}

// fullSignal is raised while the outcome of a write is unknown and the store is full, so
// that the loop has to retry. Callers that wait for a write are answered at once.
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

// errFull is the answer to a write, with its outcome.
func errFull(outcome string) error {
	return fault.New(fault.Unavailable, fault.ReasonStoreFull,
		"etcd has reached its quota and takes no writes until an operator makes space; %s", outcome)
}
