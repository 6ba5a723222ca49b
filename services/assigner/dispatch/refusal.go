package dispatch

import (
	"fmt"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// refusesLeader reports whether a refusal is about this service and not about the single
// request: the agent does not accept the nonce of the registration, or has seen a higher
// term. Such an agent refuses every request until it registers again.
func refusesLeader(r Refused) bool {
	return r.Reason == fault.ReasonPermissionDenied || r.Reason == fault.ReasonLowerTerm
}

// trackRefusal records a refusal when an executor has refused this service for refusalWait.
// The core then gives up the workers that the executor has not started, and executor-state
// places no workers on the executor. One refusal is not enough: the agent may have
// registered again, and the view may not show the new registration yet.
func (c *Core) trackRefusal(f *call, outcome any) {
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
		case c.now.Sub(h.refusing) >= refusalWait:
			c.decide(model.Effect{Puts: []model.Record{&model.Refusal{
				Executor: h.record.ID, Incarnation: f.incarnation, Since: h.refusing, Reason: r.Reason, Message: clip(r.Message),
			}}})
		}
	default:
		h.refusing = time.Time{}
	}
}

// refuses reports whether the executor's current incarnation is recorded as refusing
// this service.
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

// reviewRefusal deletes the refusal of an executor that has registered again or was
// deleted.
func (c *Core) reviewRefusal(id string) {
	m := c.refusals[id]
	ordinal, known := c.ordinals[id]
	switch {
	case m == nil, known && c.refuses(c.hosts[ordinal]):
	case !known && c.maybeUnknown():
	default:
		c.decide(model.Effect{Deletes: []model.Ref{m.Ref()}})
	}
}

// refusalFindings returns a finding for each executor that refuses this service.
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
