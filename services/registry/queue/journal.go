package queue

import (
	"berth.dev/pkg/model"
)

// pending is one effect that is not durable: how to take it back, and what is
// counted and answered once it holds.
type pending struct {
	puts    []model.Ref
	undo    []undo
	events  []model.EventKind
	answers []func()
}

// undo is a record as it was before an effect.
type undo struct {
	ref    model.Ref
	before model.Record
}

// decide makes an effect: memory moves at once, the store follows.
func (c *Core) decide(effect model.Effect) {
	var p pending
	for _, record := range effect.Puts {
		p.puts = append(p.puts, record.Ref())
		c.move(&p, record.Ref(), record)
	}
	for _, ref := range effect.Deletes {
		c.move(&p, ref, nil)
	}
	for _, event := range effect.Events {
		p.events = append(p.events, event.Kind)
	}
	c.pending = append(c.pending, p)
	c.out = append(c.out, effect)
}

func (c *Core) move(p *pending, ref model.Ref, record model.Record) {
	p.undo = append(p.undo, undo{ref, c.record(ref)})
	c.pendingOf[ref]++
	c.set(ref, record)
}

// record gives what the core writes itself.
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

// once runs answer as soon as everything decided so far is durable. An effect
// that is abandoned takes its answers with it: the input is given again.
func (c *Core) once(answer func()) {
	if n := len(c.pending); n > 0 {
		c.pending[n-1].answers = append(c.pending[n-1].answers, answer)
		return
	}
	answer()
}

func (c *Core) committed(e model.Committed) {
	durable := c.pending[:e.Effects]
	c.pending = c.pending[e.Effects:]
	c.revision = max(c.revision, e.Revision)
	for _, p := range durable {
		for _, u := range p.undo {
			if c.pendingOf[u.ref]--; c.pendingOf[u.ref] == 0 {
				delete(c.pendingOf, u.ref)
			}
		}
	}
	for _, p := range durable {
		for _, ref := range p.puts {
			c.stamp(ref, e.Revision)
		}
		c.counts.countEvents(p.events)
		for _, answer := range p.answers {
			answer()
		}
	}
}

// stamp gives a record that became durable its revisions: where it stands now,
// or where the next effect that touches it remembers it as what came before.
// What later effects made of it has its epoch already.
func (c *Core) stamp(ref model.Ref, revision int64) {
	newest := true
	restamp := func(record model.Record) model.Record {
		r, ok := record.(*model.Reservation)
		if !ok {
			return record
		}
		stamped := *r
		if stamped.Epoch == 0 {
			stamped.Epoch = revision
		}
		if newest {
			stamped.Mod = revision
			newest = false
		}
		return &stamped
	}
	if c.pendingOf[ref] > 0 {
		for _, p := range c.pending {
			for i := range p.undo {
				if p.undo[i].ref == ref {
					p.undo[i].before = restamp(p.undo[i].before)
				}
			}
		}
	}
	if record := c.record(ref); record != nil {
		c.set(ref, restamp(record))
	}
}

// durableReservation gives a version as it is stored, whatever later effects
// are under way.
func (c *Core) durableReservation(ref model.Ref) *model.Reservation {
	record := c.record(ref)
	if c.pendingOf[ref] > 0 {
	search:
		for _, p := range c.pending {
			for _, u := range p.undo {
				if u.ref == ref {
					record = u.before
					break search
				}
			}
		}
	}
	r, _ := record.(*model.Reservation)
	return r
}

func (c *Core) abandoned() {
	for i := len(c.pending) - 1; i >= 0; i-- {
		undo := c.pending[i].undo
		for j := len(undo) - 1; j >= 0; j-- {
			c.set(undo[j].ref, undo[j].before)
		}
	}
	c.pending = nil
	clear(c.pendingOf)
}

// reply answers an input once everything decided so far is durable.
func (c *Core) reply(token uint64, value func() any) {
	c.once(func() { c.out = append(c.out, model.Reply{Token: token, Value: value()}) })
}

func (c *Core) refuse(token uint64, err error) {
	c.once(func() { c.out = append(c.out, model.Reply{Token: token, Err: err}) })
}
