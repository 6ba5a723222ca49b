package loop

import (
	"context"
	"time"

	"berth.dev/pkg/model"
)

// Durable is the job events of one effect, after they became durable.
type Durable struct {
	// Cause is the context of the request that caused the effect. It is nil if the core
	// acted without a request or on the answer to a call that it made.
	Cause context.Context
	// Term is the leader's term, Began the time of its win.
	Term     int64
	Began    time.Time
	Revision int64
	Events   []model.JobEvent
}

// pendingEffect is an effect that is not durable, with the token of the request that
// caused it; 0 for none.
type pendingEffect struct {
	model.Effect
	token uint64
}

// attribute assigns effects of one step without a known cause to the request that the
// same step answers: it was pending until then.
func attribute(effects []pendingEffect, token uint64) {
	for i := range effects {
		if effects[i].token == 0 {
			effects[i].token = token
		}
	}
}

// emit reports the job events of effects that became durable.
func (d *Driver[C]) emit(effects []pendingEffect, revision int64) {
	for _, e := range effects {
		if d.Durable != nil && len(e.Events) > 0 {
			d.Durable(e.token, revision, e.Events)
		}
	}
}

// durable implements Leading.
func (t *tenure[C]) durable(token uint64, revision int64, events []model.JobEvent) {
	if receive := t.l.cfg.Durable; receive != nil {
		receive(Durable{
			Cause: t.waiting[token].ctx, Term: t.term.Number, Began: t.leadership.Since(), Revision: revision, Events: events,
		})
	}
}
