package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// refusesLeader reports whether an executor refuses this service and not one order:
// its agent does not take the nonce of its registration, or has seen a higher term.
// Nothing that is sent to it leads anywhere until it registers again.
func refusesLeader(r Refused) bool {
	return r.Reason == fault.ReasonPermissionDenied || r.Reason == fault.ReasonLowerTerm
}

// heard takes in that an executor has answered. One that refuses this service for
// RefusalWait is recorded: what is placed on it and was not taken is given up, and
// executor-state gives it nothing more. A single refusal says less: the agent may have
// registered again, and the view has yet to show it.
func (c *Core) heard(f *flight, outcome any) {
	h := c.hosts[f.key.ordinal]
	if h == nil || h.record == nil || f.incarnation != h.record.Incarnation {
		return
	}
	switch r := outcome.(type) {
	case Unknown, NotSent:
	case Refused:
		switch {
		case r.Incarnation != 0 && r.Incarnation != h.record.Incarnation:
		case r.Reason == fault.ReasonOtherIncarnation:
		case !refusesLeader(r):
			h.refusing = time.Time{}
		case c.refuses(h):
		case h.refusing.IsZero():
			h.refusing = c.now
		case c.now.Sub(h.refusing) >= c.cfg.RefusalWait:
			c.decide(model.Effect{Puts: []model.Record{&model.Refusal{
				Executor: h.record.ID, Incarnation: f.incarnation, Since: h.refusing, Reason: r.Reason, Message: clip(r.Message),
			}}})
		}
	default:
		h.refusing = time.Time{}
	}
}

// refuses reports whether the incarnation that an executor has refuses this service.
func (c *Core) refuses(h *host) bool {
	if len(c.refusals) == 0 || h.record == nil {
		return false
	}
	m := c.refusals[h.record.ID]
	return m != nil && m.Incarnation == h.record.Incarnation
}

func (c *Core) setRefusal(id string, m *model.Refusal) {
	if m == nil {
		delete(c.refusals, id)
	} else {
		c.refusals[id] = m
	}
	c.markRefusal(id)
	if ordinal, known := c.ordinals[id]; known {
		c.markHost(ordinal)
		c.wake(c.hosts[ordinal])
	}
}

// markRefusal asks for a look at whether the refusal of an executor is over.
func (c *Core) markRefusal(id string) {
	if c.leading && c.refusals[id] != nil {
		c.dirtyRefusals[id] = struct{}{}
	}
}

// reviewRefusals deletes the records of executors that have registered again, or are
// not there any more.
func (c *Core) reviewRefusals() {
	for _, id := range slices.Sorted(maps.Keys(c.dirtyRefusals)) {
		delete(c.dirtyRefusals, id)
		m := c.refusals[id]
		ordinal, known := c.ordinals[id]
		switch {
		case m == nil, known && c.refuses(c.hosts[ordinal]):
		case !known && (!c.ready || c.aside.hosts): // its record may be yet to come
		default:
			c.decide(model.Effect{Deletes: []model.Ref{m.Ref()}})
		}
	}
}

// abandon gives up a worker that its executor has not taken and will not take. No
// attempt is counted. An order under way is waited for: its answer may be another.
func (c *Core) abandon(t *task, at slot) {
	w := c.read(t, at)
	o := c.orders[orderKey{w.Ordinal, t.uid, w.ID}]
	if w.State != model.WorkerAssigned || o != nil && c.flights[o.flightKey()] != nil {
		return
	}
	m := c.refusals[c.executorID(w.Ordinal)]
	w.LastError = clip(string(m.Reason) + ": " + m.Message)
	w.Reason = fault.ReasonExecutorRefuses
	if o == nil || o.doubt {
		w.State = model.WorkerEvict
	} else {
		w.State = model.WorkerFailed
		c.giveUp(t, &w)
	}
	c.write(t, at, w)
}

// refusalFindings finds the executors that refuse this service.
func (c *Core) refusalFindings() (all []Finding) {
	for id, m := range c.refusals {
		all = append(all, Finding{
			Kind: FindingRefusesLeader, Object: id, Since: m.Since,
			Message: fmt.Sprintf("incarnation %d refuses the assigner's leader: %s: %s", m.Incarnation, m.Reason, m.Message),
			Action:  actionRefused,
		})
	}
	return all
}
