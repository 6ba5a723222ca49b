package loop

import (
	"context"
	"sync"

	"berth.dev/pkg/model"
)

// Term is one term of leadership. Config.Perform receives it.
type Term struct {
	// Number is the term.
	Number int64
	ctx    context.Context
	calls  sync.WaitGroup
	post   func(model.Event)
	guard  func(peer string, fn func()) bool
	after  []func()
}

// Go runs a call to a peer in a new goroutine. The context of the call ends with the
// term. If the call panics, the core receives dropped instead of an answer, and a finding
// about the peer reports the panic.
func (t *Term) Go(peer string, dropped model.Event, call func(ctx context.Context)) {
	t.calls.Go(func() {
		if !t.guard(peer, func() { call(t.ctx) }) {
			t.Post(dropped)
		}
	})
}

// Post passes an event without an answer to the core. It blocks while the inbox is full.
// Once the term is over, it drops the event and does not block.
func (t *Term) Post(event model.Event) { t.post(event) }

// After makes the loop call fn on its goroutine once Perform has handled every action of
// the round. So Perform can combine related calls into one message.
func (t *Term) After(fn func()) { t.after = append(t.after, fn) }

// performed runs the functions passed to After.
func (t *Term) performed() {
	for _, fn := range t.after {
		fn()
	}
	t.after = t.after[:0]
}
