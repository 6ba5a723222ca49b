package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Term is one term of leadership, as Perform sees it.
type Term struct {
	// Number is the term.
	Number int64
	ctx    context.Context
	calls  sync.WaitGroup
	post   func(model.Event)
}

// Go runs a call off the loop. Its context ends with the term.
func (t *Term) Go(call func(ctx context.Context)) {
	t.calls.Go(func() { call(t.ctx) })
}

// Post gives the core an event without an answer, as long as the term lasts. It
// may block while the inbox is full, and never does once the term is over.
func (t *Term) Post(event model.Event) { t.post(event) }

// eventLeases gives job events an etcd lease, a fresh one every few thousand.
type eventLeases struct {
	store   store.Store
	pause   func(ctx context.Context, n int) error
	id      int64
	used    int
	granted time.Time
}

// lease answers an etcd lease with room for a number of events. While etcd grants
// none it goes on asking: only ctx, which is the term's, ends that.
func (e *eventLeases) lease(ctx context.Context, events int) (int64, error) {
	for attempt := 1; e.id == 0 || e.used+events > eventsPerLease || time.Since(e.granted) > eventRotation; attempt++ {
		lease, err := e.store.Grant(ctx, eventRetention+eventRotation)
		if err == nil {
			e.id, e.used, e.granted = lease.ID, 0, time.Now()
			break
		}
		if !errors.Is(err, store.ErrAmbiguous) {
			return 0, err
		}
		if err := e.pause(ctx, attempt); err != nil {
			return 0, err
		}
	}
	e.used += events
	return e.id, nil
}
