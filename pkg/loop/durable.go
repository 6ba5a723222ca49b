package loop

import (
	"context"
	"time"

	"berth.dev/pkg/model"
)

// Durable contains the job events of one effect after they became durable.
type Durable struct {
	// Cause is the context of the request that caused the effect. It is nil if no request
	// caused the effect, or if the answer to an outbound call caused it.
	Cause context.Context
	// Term is the leader's term, and Began the time at which the leader won it.
	Term     int64
	Began    time.Time
	Revision int64
	Events   []model.JobEvent
}

// pendingEffect is an effect that is not durable. token is the token of the request that
// caused the effect, or 0.
type pendingEffect struct {
	model.Effect
	token uint64
}

// attribute sets the token of the effects of one step that have no token yet. The step
// answers the request with this token, so the request is their cause.
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
