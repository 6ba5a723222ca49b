package loop

import (
	"context"
	"time"

	"berth.dev/pkg/model"
)

// Durable is what one effect told jobs of, once that stands.
type Durable struct {
	// Cause is the context of the request that the effect came of; nil where the
	// core decided by itself, or by what a call that it made has answered.
	Cause context.Context
	// Term is the leader's, Began when it won.
	Term     int64
	Began    time.Time
	Revision int64
	Events   []model.JobEvent
}

// decided is an effect that is not durable, with the token of the request that
// it came of; 0 for none.
type decided struct {
	model.Effect
	token uint64
}

// cameOf says of effects which request they came of, where it is not known: that
// is the one which their step answers, and which had waited until then.
func cameOf(effects []decided, token uint64) {
	for i := range effects {
		if effects[i].token == 0 {
			effects[i].token = token
		}
	}
}

// tell tells of the job events of effects that are durable now.
func (d *Driver[C]) tell(effects []decided, revision int64) {
	if d.Durable == nil {
		return
	}
	for _, e := range effects {
		if len(e.Events) > 0 {
			d.Durable(e.token, revision, e.Events)
		}
	}
}

// durable answers what hears of job events that are durable; nil if nobody does.
func (t *tenure[C]) durable() func(token uint64, revision int64, events []model.JobEvent) {
	told := t.l.cfg.Durable
	if told == nil {
		return nil
	}
	return func(token uint64, revision int64, events []model.JobEvent) {
		told(Durable{
			Cause: t.waiting[token].ctx, Term: t.term.Number, Began: t.leadership.Since(), Revision: revision, Events: events,
		})
	}
}
