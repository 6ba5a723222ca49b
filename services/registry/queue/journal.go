package queue

import (
	"cmp"
	"slices"

	"berth.dev/pkg/model"
)

// journal holds the effects that are not durable.
type journal struct {
	pending   []pending                // oldest first
	tentative map[model.Ref]*tentative // the records that pending effects touch
}

// pending is one effect that is not durable, and the replies that wait for it.
type pending struct {
	effect  model.Effect
	answers []func()
}

// tentative is a record that differs from the stored one.
type tentative struct {
	durable model.Record // the stored record; nil if there is none
	effects int          // number of pending effects that touch the record
}

// decide applies an effect to memory at once and emits it, so that the driver stores it.
func (c *Core) decide(effect model.Effect) {
	for _, record := range effect.Puts {
		c.change(record.Ref(), record)
	}
	for _, ref := range effect.Deletes {
		c.change(ref, nil)
	}
	c.pending = append(c.pending, pending{effect: effect})
	c.out = append(c.out, effect)
}

// change sets a record and remembers the stored record.
func (c *Core) change(ref model.Ref, record model.Record) {
	t := c.tentative[ref]
	if t == nil {
		t = &tentative{durable: c.record(ref)}
		c.tentative[ref] = t
	}
	t.effects++
	c.set(ref, record)
}

// record returns a record of a kind that the core writes; nil if there is none.
func (c *Core) record(ref model.Ref) model.Record {
	switch ref.Kind {
	case model.KindReservation:
		if v := c.versions[ref.ID]; v != nil && v.r != nil {
			return v.r
		}
	case model.KindStage:
		if stage := c.stages[ref.Key]; stage != nil {
			return stage
		}
	case model.KindReady:
		if c.ready != nil {
			return c.ready
		}
	}
	return nil
}

// once calls answer as soon as every decision so far is durable. If an effect is
// abandoned, its answers are dropped: the driver repeats their inputs.
func (c *Core) once(answer func()) {
	if n := len(c.pending); n > 0 {
		c.pending[n-1].answers = append(c.pending[n-1].answers, answer)
		return
	}
	answer()
}

// reply answers an input once every decision so far is durable.
func (c *Core) reply(token uint64, value func() any) {
	c.once(func() { c.out = append(c.out, model.Reply{Token: token, Value: value()}) })
}

func (c *Core) committed(e model.Committed) {
	durable := c.pending[:e.Effects]
	c.pending = c.pending[e.Effects:]
	c.revision = max(c.revision, e.Revision)
	for _, p := range durable {
		for _, record := range p.effect.Puts {
			c.commit(record.Ref(), record, e.Revision)
		}
		for _, ref := range p.effect.Deletes {
			c.commit(ref, nil, e.Revision)
		}
	}
	for _, p := range durable {
		c.counts.count(p.effect)
		for _, answer := range p.answers {
			answer()
		}
	}
}

// commit records that a pending record became durable. A reservation gets its revisions.
// If later effects changed the reservation, the changed record gets its epoch.
func (c *Core) commit(ref model.Ref, record model.Record, revision int64) {
	t := c.tentative[ref]
	if r, ok := record.(*model.Reservation); ok {
		stored := *r
		stored.Epoch, stored.Mod = cmp.Or(r.Epoch, epochIn(t.durable), revision), revision
		record = &stored
	}
	t.durable = record
	if t.effects--; t.effects == 0 {
		delete(c.tentative, ref)
		c.set(ref, record)
	} else if v := c.versions[ref.ID]; ref.Kind == model.KindReservation && v != nil && v.r != nil && v.r.Epoch == 0 {
		later := *v.r
		later.Epoch = epochIn(record)
		c.set(ref, &later)
	}
}

// epochIn returns the epoch of a stored reservation, 0 without one.
func epochIn(record model.Record) int64 {
	if r, ok := record.(*model.Reservation); ok {
		return r.Epoch
	}
	return 0
}

// abandoned takes back all pending effects, the newest first.
func (c *Core) abandoned() {
	for _, p := range slices.Backward(c.pending) {
		for _, ref := range slices.Backward(p.effect.Deletes) {
			c.restore(ref)
		}
		for _, record := range slices.Backward(p.effect.Puts) {
			c.restore(record.Ref())
		}
	}
	c.pending = nil
}

// restore sets a record to the stored one.
func (c *Core) restore(ref model.Ref) {
	if t := c.tentative[ref]; t != nil {
		delete(c.tentative, ref)
		c.set(ref, t.durable)
	}
}
