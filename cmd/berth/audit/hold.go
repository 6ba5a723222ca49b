package audit

import (
	"cmp"
	"time"

	"berth.dev/pkg/model"
)

// checkBind checks a change of a reservation that binds it: once, with its lease or a cell that keeps
// executors for it, and before the end of its hold.
func (a *Auditor) checkBind(v *version, prev, next *model.Reservation) {
	if !a.step.jump {
		a.checkChosen(v, prev, next)
	}
	switch {
	case a.step.jump, prev == nil, prev.BoundAt.Equal(next.BoundAt):
	case !prev.Holds():
		a.violate(RuleHold, "%s was bound a second time, or was never held", v)
	case prev.State != model.Queued || v.leased == 0 && len(v.offer.accepted) == 0:
		a.violate(RuleHold, "%s was bound while %s and without a lease or a cell", v, prev.State)
	case next.Spec.Constraints.Cells && next.Chosen == "":
		a.violate(RuleHold, "%s was bound without a cell", v)
	case isOver(prev.ExpiresAt(), next.BoundAt) && isOver(next.ExpiresAt(), next.BoundAt),
		isOver(v.heldUntil(), next.BoundAt):
		a.violate(RuleHold, "%s was bound at %v, after its hold had ended", v, next.BoundAt)
	}
}

// checkChosen checks that a reservation begins without a chosen cell, and that a bind chooses a cell
// once, which has accepted.
func (a *Auditor) checkChosen(v *version, prev, next *model.Reservation) {
	ordinal, known := a.ordinals[next.Chosen]
	switch {
	case prev == nil && next.Chosen != "":
		a.violate(RuleHold, "%s began with the chosen cell %s", v, next.Chosen)
	case prev == nil, prev.Chosen == next.Chosen:
	case prev.Chosen != "" || !prev.Holds():
		a.violate(RuleHold, "%s chose cell %s after cell %q, or was never held", v, next.Chosen, prev.Chosen)
	case known && !v.offer.accepted[ordinal]:
		a.violate(RuleHold, "%s chose cell %s, which did not accept its offer", v, next.Chosen)
	}
}

// checkBound checks that an accepted reservation is bound if, and only if, it derives from a
// bound version: its parent, or a version in whose place it is.
func (a *Auditor) checkBound() {
	for _, v := range a.step.accepted {
		if v.r == nil || a.step.jump {
			continue
		}
		if from := a.origin(v); from != nil && !from.BoundAt.Equal(v.r.BoundAt) {
			a.violate(RuleHold, "%s was bound at %v, and derives from %s, which was bound at %v", v, v.r.BoundAt, from.UID,
				from.BoundAt)
		} else if from == nil && !v.r.BoundAt.IsZero() && v.r.Parent == "" {
			a.violate(RuleHold, "%s began bound, and derives from no version", v)
		}
	}
}

// origin returns the record of the version from which an accepted reservation derives: its
// parent, or the version with its workers that this revision replaced; nil if there is none.
func (a *Auditor) origin(v *version) *model.Reservation {
	if v.r.Parent != "" {
		if parent := a.versions[v.r.Parent]; parent != nil {
			return cmp.Or(parent.r, parent.was)
		}
		return nil
	}
	for _, old := range a.step.touched {
		if old != v && old.key == v.key && old.r != nil && old.was != nil && !old.was.State.Terminal() &&
			old.r.State == model.Replaced && v.r.Workers.SubsetOf(old.r.Workers) {
			return old.r
		}
	}
	return nil
}

// isOver reports whether a time has come; the zero time never does.
func isOver(end, at time.Time) bool { return !end.IsZero() && !at.Before(end) }

// heldUntil returns when the hold of a version ends; zero for never. In cells it begins when the offer
// is decided.
func (v *version) heldUntil() time.Time {
	since := v.grantedAt()
	if v.r.Spec.Constraints.Cells {
		since = time.Time{}
		if v.offer.record != nil {
			since = v.offer.record.DecidedAt
		}
	}
	if limit := v.r.Spec.HoldLimit(); limit > 0 && !since.IsZero() {
		return since.Add(limit)
	}
	return time.Time{}
}
