package inventory

import (
	"maps"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// massLoss tells of executors of one pool that are held back from LOST.
type massLoss struct {
	// pool is as executors spell it; empty for those of no pool.
	pool      string
	executors int
	since     time.Time
}

// loseAbsent gives up executors that have been without presence for too long,
// unless they went with too many others of a pool. The clock of each runs from
// when this core saw it go, and from the election at the earliest: a new leader
// waits longer rather than shorter.
func (c *Core) loseAbsent() {
	if !c.absentChanged && (c.lostAt.IsZero() || c.now.Before(c.lostAt)) {
		return
	}
	c.lostAt = time.Time{}
	gone := slices.AppendSeq(make([]*host, 0, c.absent.Len()), c.absent.All())
	held := c.findMassLosses(gone)
	lost := 0
	for _, h := range gone {
		if c.heldBack[h] && !held[h] && !c.requests.Leaving(&h.Executor) {
			h.term.releasedAt = c.now
		}
		due := c.due(h)
		c.subject = h.Record.Ref()
		switch {
		case c.quarantined.executors[h.ID], c.quarantined.presences[h.ID], c.pools.Quarantined(h.Class().Host()):
		case due.After(c.now), lost == c.cfg.StepLimit && !held[h]:
			c.lostAt = earliest(c.lostAt, due)
		case held[h]:
		case h.live != nil && h.live.mod == 0:
			// Its presence is being deleted: the compare below would
			// fail. Committed has this looked at again.
		default:
			lost++
			c.lose(h)
		}
	}
	c.subject = model.Ref{}
	c.heldBack = held
	// Those given up leave the crowd: whether it is one is asked again.
	c.absentChanged = lost > 0
}

// heldBack answers those of the gone, who are in the order in which they went,
// that went with a crowd: so many of one pool within one window that it is the
// network or etcd that failed, and not the hosts. Executors of no pool are one
// together. It notes the crowds for the findings. Once enough are back that the
// rest is no crowd, the rest has its whole time again to follow.
//
// Executors that were drained or claimed for scale-down are expected to go, and
// make no crowd.
func (c *Core) findMassLosses(gone []*host) map[*host]bool {
	c.mass = map[string]massLoss{}
	if len(gone) < c.cfg.HoldBackFrom {
		return nil
	}
	pools := map[*match.Pool][]*host{}
	for _, h := range gone {
		if c.requests.Leaving(&h.Executor) {
			continue
		}
		for _, pool := range h.Class().Pools() {
			pools[pool] = append(pools[pool], h)
		}
	}
	window := c.window(len(gone))
	held := map[*host]bool{}
	for pool, gone := range pools {
		crowd := max(c.cfg.HoldBackFrom, int(c.cfg.HoldBackShare*float64(pool.Living))+1)
		for _, h := range crowded(gone, crowd, window) {
			held[h] = true
			// Executors that are only just registering are no news yet.
			if h.state == model.ExecutorUnreachable || !c.due(h).After(c.now) {
				c.mass[pool.Name] = c.mass[pool.Name].with(h, pool.Name)
			}
		}
	}
	return held
}

// expiriesPerSecond is how many etcd leases etcd lets run out in a second at
// most.
const expiriesPerSecond = 1000

// window is within how long executors went together when so many are gone. Those
// that fall silent at once are seen to go within one PresenceTTL, depending on when
// each was renewed last; and very many of them only as etcd comes to it.
func (c *Core) window(gone int) time.Duration {
	return c.cfg.PresenceTTL + time.Duration(gone)*time.Second/expiriesPerSecond
}

// crowded answers those of the gone, who are in the order in which they went, that
// are one of a crowd within some window.
func crowded(gone []*host, crowd int, window time.Duration) []*host {
	var list []*host
	first, next := 0, 0 // next is the first that is not in the list yet
	for last, h := range gone {
		for h.AbsentSince.Sub(gone[first].AbsentSince) > window {
			first++
		}
		if last-first+1 >= crowd {
			next = max(next, first)
			list = append(list, gone[next:last+1]...)
			next = last + 1
		}
	}
	return list
}

// with is the mass loss with one more executor.
func (m massLoss) with(h *host, folded string) massLoss {
	if m.executors == 0 {
		m.since = h.AbsentSince
		for _, name := range h.Class().Host().Pools {
			if constraint.Fold(name) == folded {
				m.pool = name
			}
		}
	}
	m.executors++
	return m
}

// massLosses answers the crowds that are held back, in order of pool.
func (c *Core) massLosses() []massLoss {
	list := make([]massLoss, 0, len(c.mass))
	for _, name := range slices.Sorted(maps.Keys(c.mass)) {
		list = append(list, c.mass[name])
	}
	return list
}

// due is when an absent executor has been away for too long.
func (c *Core) due(h *host) time.Time {
	from := h.AbsentSince
	for _, later := range []time.Time{c.electedAt, h.term.releasedAt} {
		if from.Before(later) {
			from = later
		}
	}
	return from.Add(c.lostAfter(h))
}

// lose commits that the executor's workers are given up, provided that it has
// not come back meanwhile. The assigner writes its workers LOST by that, and
// its capacity is freed by the assigner's word.
func (c *Core) lose(h *host) {
	lost := *h.Record
	lost.Lost, lost.Returning, lost.Since = true, false, c.now
	c.decide(model.Effect{
		Puts:   []model.Record{&lost},
		Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindLive, ID: h.ID}, Absent: true}},
	})
}
