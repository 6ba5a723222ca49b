package loop

import (
	"errors"
	"sync"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/store"
)

// full says whether the store takes no writes, because it has reached its quota.
// Whoever waits for a write is told at once: it takes a person to make room.
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

// errFull is the answer to a request to write. What was on its way when the store
// became full may be applied.
func errFull() error {
	return fault.New(fault.Unavailable, fault.ReasonStoreFull, "etcd has reached its quota and takes no writes until somebody makes room; perhaps applied")
}
