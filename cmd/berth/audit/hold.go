package audit

import (
	"cmp"
	"time"

	"berth.dev/pkg/model"
)

// checkBind checks a change of a reservation that binds it: once, with its lease, and before
// the end of its hold.
func (a *Auditor) checkBind(v *version, prev, next *model.Reservation) {
	switch {
	case a.step.jump, prev == nil, prev.BoundAt.Equal(next.BoundAt):
	case !prev.Holds():
		a.violate(RuleHold, "%s was bound a second time, or was never held", v)
	case prev.State != model.Queued || v.leased == 0:
		a.violate(RuleHold, "%s was bound while %s and without a lease", v, prev.State)
	case isOver(prev.ExpiresAt(), next.BoundAt) && isOver(next.ExpiresAt(), next.BoundAt),
		isOver(v.heldUntil(), next.BoundAt):
		a.violate(RuleHold, "%s was bound at %v, after its hold had ended", v, next.BoundAt)
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

// heldUntil returns when the hold of a version ends; zero for never.
func (v *version) heldUntil() time.Time {
	for _, chunk := range v.lease {
		if limit := v.r.Spec.HoldLimit(); limit > 0 {
			return chunk.GrantedAt.Add(limit)
		}
	}
	return time.Time{}
}
