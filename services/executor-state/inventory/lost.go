package inventory

import (
	"time"

	"berth.dev/pkg/model"
)

// massLoss tells of executors that are held back from LOST.
type massLoss struct {
	executors int
	since     time.Time
}

func (m *massLoss) add(goneAt time.Time) {
	if m.executors == 0 {
		m.since = goneAt
	}
	m.executors++
}

// loseAbsent gives up executors that have been without presence for too long,
// unless they went with too many others. The clock of each runs from when this
// core saw it go, and from the election at the earliest: a new leader waits
// longer rather than shorter.
func (c *Core) loseAbsent() {
	if !c.absentChanged && (c.lostAt.IsZero() || c.now.Before(c.lostAt)) {
		return
	}
	c.lostAt, c.mass = time.Time{}, massLoss{}
	gone := make([]*host, 0, c.absent.len())
	for h := range c.absent.all() {
		gone = append(gone, h)
	}
	crowd := c.crowd()
	first, end, lost := 0, 0, 0
	for _, h := range gone {
		for gone[first].goneAt.Before(h.goneAt.Add(-c.cfg.PresenceTTL)) {
			first++
		}
		for end < len(gone) && !gone[end].goneAt.After(h.goneAt.Add(c.cfg.PresenceTTL)) {
			end++
		}
		due := c.due(h)
		if end-first >= crowd {
			// Executors that are only just registering are no news yet.
			if h.state == model.ExecutorUnreachable || !due.After(c.now) {
				c.mass.add(h.goneAt)
			}
			if c.lostAt.IsZero() && due.After(c.now) {
				c.lostAt = due
			}
			continue
		}
		if due.After(c.now) || lost == c.cfg.StepLimit {
			if c.lostAt.IsZero() {
				c.lostAt = due
			}
			continue
		}
		if h.live != nil && h.live.mod == 0 {
			// Its presence is being deleted: the compare below would
			// fail. Committed has this looked at again.
			continue
		}
		lost++
		c.lose(h)
	}
	// Those given up leave the crowd: whether it is one is asked again.
	c.absentChanged = lost > 0
}

// due is when an absent executor has been away for too long.
func (c *Core) due(h *host) time.Time {
	from := h.goneAt
	if from.Before(c.electedAt) {
		from = c.electedAt
	}
	return from.Add(c.cfg.LostAfter)
}

// crowd is how many executors that go at once make a mass loss.
func (c *Core) crowd() int {
	living := c.byID.len() - c.states[model.ExecutorLost]
	return max(c.cfg.HoldBackFrom, int(c.cfg.HoldBackShare*float64(living))+1)
}

// lose commits that the executor's workers are given up, provided that it has
// not come back meanwhile. The assigner writes its workers LOST by that, and
// its capacity is freed by the assigner's word.
func (c *Core) lose(h *host) {
	lost := *h.executor
	lost.Lost, lost.Since = true, c.now
	c.decide(model.Effect{
		Puts:   []model.Record{&lost},
		Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindLive, ID: h.id}, Absent: true}},
	})
}
