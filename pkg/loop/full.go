package loop

import (
	"errors"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// fullPause is how long a driver leaves alone what it has to write by itself while
// the store is full.
const fullPause = 250 * time.Millisecond

// isFull says that the store takes no writes, and that nothing of this one was
// written. It takes a person to make room, so nobody is to wait for that.
func isFull(err error) bool {
	return errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrAmbiguous)
}

// putOff answers the requests that the store is full, and keeps for later what else
// the core has not had. The core may go on with an undecided request, so that one is
// perhaps applied. None is kept: a request must not be carried out after its caller
// has stopped waiting, since the registry remembers its ID for a limited time. What
// the core decides by itself it decides again by then.
func (d *Driver[C]) putOff(events []model.Event, undecided map[uint64]bool) (answers []model.Action) {
	for _, event := range notTold(events) {
		input, ok := event.(model.Input)
		if !ok {
			d.later = append(d.later, event)
			continue
		}
		outcome := "this call changed nothing"
		if undecided[input.Token] {
			outcome = "perhaps applied"
		}
		answers = append(answers, model.Reply{Token: input.Token, Err: errFull(outcome)})
	}
	d.retry = d.now().Add(fullPause)
	return answers
}

// NextDeadline is when the driver is to be given nil at the latest: the core's
// deadline, or when to try again what the store was too full for.
func (d *Driver[C]) NextDeadline() time.Time {
	if !d.retry.IsZero() {
		return d.retry
	}
	return d.Core.NextDeadline()
}

// full says whether the store takes no writes while the outcome of one is open, so
// that the loop has to go on trying. Whoever waits for a write is told at once.
type full struct {
	mu sync.Mutex
	up bool
	// raised is closed while it is up.
	raised chan struct{}
}

func newFull() *full { return &full{raised: make(chan struct{})} }

// attempted takes what came of an attempt to write.
func (f *full) attempted(err error) { f.set(errors.Is(err, store.ErrFull)) }

func (f *full) set(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if up == f.up {
		return
	}
	f.up = up
	if up {
		close(f.raised)
	} else {
		f.raised = make(chan struct{})
	}
}

// now is closed while the store is full.
func (f *full) now() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.raised
}

// errFull is the answer to a request to write, with what became of it.
func errFull(outcome string) error {
	return fault.New(fault.Unavailable, fault.ReasonStoreFull, "etcd has reached its quota and takes no writes until somebody makes room; %s", outcome)
}
