package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// split is a reservation that asks for other workers than before.
type split struct {
	v      *version
	before model.WorkerSet
}

// checkSplits demands that workers leave a reservation only to go ahead as a
// part of it, in the same revision, before anything of it was leased. A cancel of
// single workers in that revision replaces the part by a smaller one, which is no
// second part.
func (a *Auditor) checkSplits() {
	for _, s := range a.step.split {
		if a.step.jump || s.v.r == nil {
			continue
		}
		all := s.v.r.Workers.List()
		for _, part := range a.step.born {
			if part.r != nil && part.r.Origin == model.OriginPart && part.r.Parent == s.v.uid && !a.continues(part, s.v) {
				all = append(all, part.r.Workers.List()...)
			}
		}
		slices.SortFunc(all, model.WorkerID.Compare)
		if s.v.leased != 0 || !slices.Equal(all, s.before.List()) {
			a.violate(RuleImmutable, "%s asks for other workers than before: %d, not %d", s.v, s.v.r.Workers.Len(), s.before.Len())
		}
	}
}

// checkOrigins judges what came of another reservation by what that was before
// this revision.
func (a *Auditor) checkOrigins() {
	if a.step.jump {
		return
	}
	for _, v := range a.step.born {
		if v.r == nil || v.r.State != model.Queued || v.r.Parent == "" {
			continue
		}
		parent := a.versions[v.r.Parent]
		switch {
		case parent == nil || parent.r == nil || parent.key != v.key:
			a.violate(RuleOrigin, "%s came of %s, which is none of its versions", v, v.r.Parent)
		case a.continues(v, parent):
			// The same workers once more: they were judged when they came.
		case v.r.Origin == model.OriginRequeue:
			a.checkRequeue(v, parent)
		case v.r.Origin == model.OriginPart && v.r.Round == parent.r.Round:
			if v.r.Place != parent.r.Place || rankOf(v.r).order != rankOf(parent.r).order {
				a.violate(RuleOrigin, "%s does not stand where %s does, which it is a part of", v, parent)
			}
		default:
			a.checkRound(v, parent)
		}
	}
}

// continues says whether a version takes the place of one that had the same
// parent and ended in this revision, with the same workers or fewer.
func (a *Auditor) continues(v, parent *version) bool {
	return slices.ContainsFunc(a.step.touched, func(old *version) bool {
		return old != v && old.r != nil && old.r.State == model.Replaced && old.r.Parent == parent.uid &&
			old.r.Round == v.r.Round && contains(old.r.Workers, v.r.Workers)
	})
}

// checkRequeue demands that every worker of a requeue was given up by its
// living parent, and is queued again once.
func (a *Auditor) checkRequeue(v, parent *version) {
	was := parent.before()
	if was == nil || was.State.Terminal() || was.State == model.Cancelling || v.r.Round != was.Round+1 {
		a.violate(RuleOrigin, "%s, of round %d, requeues workers of %s, which is %s", v, v.r.Round, parent, parent.state())
		return
	}
	for workerID := range v.r.Workers.All() {
		failed := model.WorkerID{Index: workerID.Index, Number: workerID.Number - 1}
		w, found := parent.assignment(failed)
		at := a.index(v, workerID.Index)
		switch {
		case !found || !w.Requeue || w.State != model.WorkerFailed && w.State != model.WorkerLost || was.Unwanted.Has(failed):
			a.violate(RuleOrigin, "%s requeues worker %s of %s, which was not given up to be: %s", v, failed, parent, orAbsent(w.State))
		case at.requeued >= workerID.Number:
			a.violate(RuleOrigin, "%s requeues worker %s of %s, which was before", v, failed, parent)
		}
		at.requeued = max(at.requeued, workerID.Number)
	}
}

// checkRound demands that a batch is queued once more only when every worker
// of it has ended and nothing is leased to it.
func (a *Auditor) checkRound(v, parent *version) {
	was := parent.before()
	ended := was != nil && !was.State.Terminal() && parent.r.State == model.Replaced &&
		parent.header != nil && parent.header.Withdrawn && len(parent.lease) == 0
	for _, n := range slices.Sorted(maps.Keys(parent.tasks)) {
		for _, w := range parent.tasks[n].Workers {
			ended = ended && w.State.Terminal()
		}
	}
	raised := v.r.Round == parent.r.Round+1
	for workerID := range v.r.Workers.All() {
		before, asked := parent.r.Workers.Number(workerID.Index)
		raised = raised && asked && workerID.Number > before
	}
	if !ended || !raised || v.r.Place != parent.r.Place {
		a.violate(RuleOrigin, "%s is another round of %s, which is %s", v, parent, parent.state())
	}
}

// contains says whether every worker of part is in all.
func contains(all, part model.WorkerSet) bool { return part.SubsetOf(all) }
