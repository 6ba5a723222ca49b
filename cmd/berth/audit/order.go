package audit

import (
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// position is the rank that a version has from a revision on.
type position struct {
	mod int64
	rank
}

// group is the queue of a group.
type group struct {
	queued []*version // by rank
	// moved has the changes of rank, oldest first. enterQueue occasionally deletes the
	// changes of versions that have left the queue.
	moved []move
}

type move struct {
	v   *version
	mod int64
}

// setPosition records the rank of a queued reservation.
func (v *version) setPosition(r *model.Reservation) {
	next := position{r.Mod, rankOf(r)}
	if n := len(v.positions); n > 0 && v.positions[n-1].rank == next.rank {
		return
	}
	v.positions = append(v.positions, next)
}

// rank returns the current rank.
func (v *version) rank() rank { return v.positions[len(v.positions)-1].rank }

// rankAt returns the rank at a revision, or false if the version was not queued by then.
func (v *version) rankAt(revision int64) (rank, bool) {
	for _, at := range slices.Backward(v.positions) {
		if at.mod <= revision {
			return at.rank, true
		}
	}
	return rank{}, false
}

func byRank(v *version, at rank) int { return v.rank().compare(at) }

// leaveQueue removes a version from its queue. It does nothing if the version is not queued.
func (a *Auditor) leaveQueue(v *version) {
	g := a.groups[v.group]
	if g == nil || len(v.positions) == 0 {
		return
	}
	at, found := slices.BinarySearchFunc(g.queued, v.rank(), byRank)
	switch {
	case !found:
		return
	case at == 0: // the usual case: avoid that slices.Delete moves all other elements
		g.queued[0] = nil
		g.queued = g.queued[1:]
	default:
		g.queued = slices.Delete(g.queued, at, at+1)
	}
	if len(g.queued) == 0 {
		delete(a.groups, v.group)
	}
}

// enterQueue adds a version to its queue if it is queued.
func (a *Auditor) enterQueue(v *version) {
	if !v.queued() {
		return
	}
	g := a.groups[v.group]
	if g == nil {
		g = &group{}
		a.groups[v.group] = g
	}
	at, _ := slices.BinarySearchFunc(g.queued, v.rank(), byRank)
	g.queued = slices.Insert(g.queued, at, v)
	if n := len(v.positions); n > 1 {
		if len(g.moved) > 64+2*len(g.queued) {
			g.moved = slices.DeleteFunc(g.moved, func(m move) bool { return !m.v.queued() })
		}
		g.moved = append(g.moved, move{v, v.positions[n-1].mod})
	}
}

// checkOrder compares every grant with the queue at the start of its cycle. A grant must not
// overtake: every version that was before the granted version at that time must have left
// the queue.
func (a *Auditor) checkOrder() {
	for _, v := range a.step.granted {
		a.checkGrant(v)
	}
}

func (a *Auditor) checkGrant(v *version) {
	if v.r == nil || len(v.positions) == 0 {
		return // a violation of NO_REVIVAL
	}
	cut := v.cut()
	if cut < a.cut {
		a.violate(RuleCycle, "%s was granted by a cycle started at %d, after one started at %d", v, cut, a.cut)
	}
	a.cut = max(a.cut, cut)
	mine, known := v.rankAt(cut)
	if !known {
		a.violate(RuleOrder, "%s was granted by a cycle started at %d, before it was accepted", v, cut)
		return
	}
	g := a.groups[v.group]
	if g == nil {
		return
	}
	granted := v.grantedAt()
	overtaken := func(o *version) bool {
		theirs, known := o.rankAt(cut)
		return known && o.queued() && theirs.compare(mine) < 0 &&
			(o.r.NotBefore.IsZero() || o.r.NotBefore.Add(maxCycle).Before(granted))
	}
	for _, o := range g.queued {
		if o.rank().compare(mine) > 0 {
			break
		}
		if overtaken(o) {
			a.violate(RuleOrder, "%s was granted by a cycle started at %d, before %s", v, cut, o)
			return
		}
	}
	for _, m := range slices.Backward(g.moved) {
		if m.mod <= cut {
			break
		}
		if overtaken(m.v) {
			a.violate(RuleOrder, "%s was granted by a cycle started at %d, before %s with its rank of then", v, cut, m.v)
			return
		}
	}
}

// maxCycle is more than the time between the start of a cycle and its grants. A version that
// enters its queue later than that before a grant may not have been in the cycle.
const maxCycle = time.Minute

// grantedAt returns when the lease was granted.
func (v *version) grantedAt() time.Time {
	for _, chunk := range v.lease {
		return chunk.GrantedAt
	}
	return time.Time{}
}

// cut returns the revision at which the registry started the cycle of the lease.
func (v *version) cut() int64 {
	for _, chunk := range v.lease {
		return chunk.Cut
	}
	return 0
}
