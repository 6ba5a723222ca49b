package inventory

import (
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// massLoss describes executors of one pool that lost their presence together and are not
// declared LOST.
type massLoss struct {
	// pool is the name of the pool as executors spell it; empty for executors without a
	// pool.
	pool      string
	executors int
	since     time.Time
}

// loseAbsent declares executors LOST that have been without presence for too long, except
// in a mass loss. The clock of each executor starts when this core saw its presence end,
// but not before the election. So a new leader waits longer rather than shorter.
func (c *Core) loseAbsent() {
	if !c.absentChanged && (c.lostAt.IsZero() || c.now.Before(c.lostAt)) {
		return
	}
	c.lostAt = time.Time{}
	absent := slices.AppendSeq(make([]*host, 0, c.absent.Len()), c.absent.All())
	heldBack := c.findMassLosses(absent)
	lost := 0
	for _, h := range absent {
		if c.heldBack[h] && !heldBack[h] && !c.requests.Leaving(&h.Executor) {
			h.term.releasedAt = c.now
		}
		due := c.due(h)
		c.subject = h.Record.Ref()
		switch {
		case c.quarantined.executors[h.ID], c.quarantined.presences[h.ID], c.pools.Quarantined(h.Class().Host()):
		case due.After(c.now), lost == c.cfg.StepLimit && !heldBack[h]:
			c.lostAt = earliest(c.lostAt, due)
		case heldBack[h]:
		case h.live != nil && h.live.mod == 0:
			// The delete of its presence is not durable, so the compare in lose would
			// fail. Committed evaluates it again.
		default:
			lost++
			c.lose(h)
		}
	}
	c.subject = model.Ref{}
	c.heldBack = heldBack
	// Executors that became LOST leave their mass loss, so the mass losses are evaluated
	// again.
	c.absentChanged = lost > 0
}

// findMassLosses returns the absent executors that are part of a mass loss: so many
// executors of one pool lost their presence within one window that the network or etcd
// has failed, not the hosts. absent must be in order of absence. Executors without a pool
// count as one pool. findMassLosses also records the mass losses for the findings. When
// enough executors have returned, the clocks of the others restart.
//
// Executors that are drained or claimed for scale-down are expected to disappear and are
// not part of a mass loss. Neither are cells, because each of them is a cluster with hosts of
// its own.
func (c *Core) findMassLosses(absent []*host) map[*host]bool {
	c.mass = map[string]massLoss{}
	if len(absent) < c.cfg.HoldBackFrom {
		return nil
	}
	byPool := map[*match.Pool][]*host{}
	for _, h := range absent {
		if h.Record.Cell || c.requests.Leaving(&h.Executor) {
			continue
		}
		for _, pool := range h.Class().Pools() {
			byPool[pool] = append(byPool[pool], h)
		}
	}
	window := c.window(len(absent))
	heldBack := map[*host]bool{}
	for pool, absent := range byPool {
		least := max(c.cfg.HoldBackFrom, int(c.cfg.HoldBackShare*float64(pool.Living))+1)
		for _, h := range lostTogether(absent, least, window) {
			heldBack[h] = true
			// An executor that has registered and is not due yet is not part of the finding.
			if h.state == model.ExecutorUnreachable || !c.due(h).After(c.now) {
				c.mass[pool.Name] = c.mass[pool.Name].with(h, pool.Name)
			}
		}
	}
	return heldBack
}

// expiriesPerSecond is how many leases etcd expires in a second at most.
const expiriesPerSecond = 1000

// window returns the time within which the presences of executors end that fail at the
// same moment. It is one PresenceTTL, because each etcd lease was renewed at another
// time. It is longer if there are so many executors that etcd cannot expire all leases in
// that time.
func (c *Core) window(absent int) time.Duration {
	return c.cfg.PresenceTTL + time.Duration(absent)*time.Second/expiriesPerSecond
}

// lostTogether returns the executors that became absent within one window, if the window
// has least executors or more. absent must be in order of absence.
func lostTogether(absent []*host, least int, window time.Duration) []*host {
	var list []*host
	first, next := 0, 0 // next is the first executor that is not in the list yet
	for last, h := range absent {
		for h.AbsentSince.Sub(absent[first].AbsentSince) > window {
			first++
		}
		if last-first+1 >= least {
			next = max(next, first)
			list = append(list, absent[next:last+1]...)
			next = last + 1
		}
	}
	return list
}

// with returns the mass loss with one more executor. folded is the folded name of the
// pool.
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

// due returns when an absent executor becomes LOST.
func (c *Core) due(h *host) time.Time {
	from := h.AbsentSince
	for _, later := range []time.Time{c.electedAt, h.term.releasedAt} {
		if from.Before(later) {
			from = later
		}
	}
	return from.Add(c.lostAfter(h))
}

// lose declares an executor LOST, provided that it has not returned since. The assigner
// then writes its workers LOST, which frees their capacity.
func (c *Core) lose(h *host) {
	lost := *h.Record
	lost.Lost, lost.Silent, lost.Returning, lost.Since = true, false, false, c.now
	c.decide(model.Effect{
		Puts:   []model.Record{&lost},
		Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindLive, ID: h.ID}, Absent: true}},
	})
}
