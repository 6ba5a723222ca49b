package audit

import (
	"slices"

	"berth.dev/pkg/model"
)

// asked is where a version stood from a revision on.
type asked struct {
	mod int64
	rank
}

// group is one strict queue: who waits in it, in order.
type group struct {
	waiting []*version
	// moved are places taken by a version that had another one before, oldest
	// first. Those of versions that wait no longer are swept now and then.
	moved []move
}

type move struct {
	v   *version
	mod int64
}

// ask notes the place that a queued record gives its version.
func (v *version) ask(r *model.Reservation) {
	next := asked{r.Mod, rankOf(r)}
	if n := len(v.asked); n > 0 && v.asked[n-1].rank == next.rank {
		return
	}
	v.asked = append(v.asked, next)
}

// rank is where it stands now.
func (v *version) rank() rank { return v.asked[len(v.asked)-1].rank }

// rankAt is where it stood at a revision; not ok when it was not known then.
func (v *version) rankAt(revision int64) (rank, bool) {
	for _, at := range slices.Backward(v.asked) {
		if at.mod <= revision {
			return at.rank, true
		}
	}
	return rank{}, false
}

func byRank(v *version, at rank) int { return v.rank().compare(at) }

// leaveQueue takes a version out of its queue, if it is in one.
func (a *Auditor) leaveQueue(v *version) {
	g := a.groups[v.group]
	if g == nil || len(v.asked) == 0 {
		return
	}
	at, found := slices.BinarySearchFunc(g.waiting, v.rank(), byRank)
	switch {
	case !found:
		return
	case at == 0: // the head, as in most cases: do not move all the rest
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	default:
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	if len(g.waiting) == 0 {
		delete(a.groups, v.group)
	}
}

// enterQueue puts a version into its queue if it waits.
func (a *Auditor) enterQueue(v *version) {
	if !v.waits() {
		return
	}
	g := a.groups[v.group]
	if g == nil {
		g = &group{}
		a.groups[v.group] = g
	}
	at, _ := slices.BinarySearchFunc(g.waiting, v.rank(), byRank)
	g.waiting = slices.Insert(g.waiting, at, v)
	if n := len(v.asked); n > 1 {
		if len(g.moved) > 64+2*len(g.waiting) {
			g.moved = slices.DeleteFunc(g.moved, func(m move) bool { return !m.v.waits() })
		}
		g.moved = append(g.moved, move{v, v.asked[n-1].mod})
	}
}

// checkOrder judges every grant by the queue as it was when the cycle started:
// whoever stood before it then and waits still was passed over.
func (a *Auditor) checkOrder() {
	if !a.step.jump {
		for _, v := range a.step.granted {
			a.checkGrant(v)
		}
	}
	for _, v := range a.step.touched {
		if !v.waits() {
			v.asked = nil
		}
	}
}

func (a *Auditor) checkGrant(v *version) {
	if v.r == nil || len(v.asked) == 0 {
		return // NO_REVIVAL says so
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
	passed := func(o *version) bool {
		theirs, known := o.rankAt(cut)
		return known && o.waits() && theirs.compare(mine) < 0
	}
	for _, o := range g.waiting {
		if o.rank().compare(mine) > 0 {
			break
		}
		if passed(o) {
			a.violate(RuleOrder, "%s was granted by a cycle started at %d, before %s", v, cut, o)
			return
		}
	}
	for _, m := range slices.Backward(g.moved) {
		if m.mod <= cut {
			break
		}
		if passed(m.v) {
			a.violate(RuleOrder, "%s was granted by a cycle started at %d, before %s as it stood then", v, cut, m.v)
			return
		}
	}
}

// cut is the registry's revision that the lease was granted for.
func (v *version) cut() int64 {
	for _, chunk := range v.lease {
		return chunk.Cut
	}
	return 0
}
