package loop

import (
	"context"
	"sync"

	"berth.dev/pkg/model"
)

// Term is one term of leadership, for Perform.
type Term struct {
	// Number is the term.
	Number int64
	ctx    context.Context
	calls  sync.WaitGroup
	post   func(model.Event)
	guard  func(peer string, fn func()) bool
	after  []func()
}

// Go runs a call to a peer off the loop. Its context ends with the term. If the call
// panics, the core receives dropped instead of an answer, and the panic becomes a finding
// about the peer.
func (t *Term) Go(peer string, dropped model.Event, call func(ctx context.Context)) {
	t.calls.Go(func() {
		if !t.guard(peer, func() { call(t.ctx) }) {
			t.Post(dropped)
		}
	})
}

// Post gives the core an event without an answer, as long as the term lasts. It may block
// while the inbox is full. It never blocks once the term is over.
func (t *Term) Post(event model.Event) { t.post(event) }

// After calls fn on the loop's goroutine after Perform has handled every action of the
// round, so that related calls go out in one message.
func (t *Term) After(fn func()) { t.after = append(t.after, fn) }

// performed runs the functions passed to After.
func (t *Term) performed() {
	for _, fn := range t.after {
		fn()
	}
	t.after = t.after[:0]
}
