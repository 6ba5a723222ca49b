package sim

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// byEpoch orders reservations as the registries of the simulator do.
var byEpoch = scheduler.New(scheduler.Config{Order: scheduler.OrderByEpoch{}})

// cycleQueues is what the registry knew when it started a cycle: its candidates, and the next
// reservation of each group that is no candidate.
type cycleQueues struct {
	candidates []*model.Reservation
	groups     []string
	next       map[string]*model.Reservation
}

func queuesOf(core *queue.Core, cycle model.Cycle) cycleQueues {
	q := cycleQueues{next: map[string]*model.Reservation{}}
	last := map[string]*model.Reservation{}
	for _, e := range cycle.Candidates {
		if view, ok := core.GetUID(e.UID); ok {
			q.candidates, q.groups = append(q.candidates, view.Reservation), append(q.groups, e.Group)
			last[e.Group] = view.Reservation
		}
	}
	for group, r := range last {
		// The core may have queued or changed reservations after it started the cycle.
		views, _ := core.Queue(group, model.StateUnset, r, 1)
		if len(views) > 0 && views[0].Reservation.Mod > 0 && views[0].Reservation.Mod <= cycle.Cut {
			q.next[group] = views[0].Reservation
		}
	}
	return q
}

// checkGlobalOrder checks that no cycle grants a reservation before an older one of another group
// that fits: where all candidates of a group are granted, its next reservation is not tried. It
// judges only pairs of which the older one would have fitted on what the younger one got.
func (w *World) checkGlobalOrder(q cycleQueues, outcomes []model.Outcome) {
	granted, refused := map[string]bool{}, map[string]bool{}
	for _, o := range outcomes {
		granted[o.UID] = o.Result == model.Granted
	}
	for i, r := range q.candidates {
		refused[q.groups[i]] = refused[q.groups[i]] || !granted[r.UID]
	}
	for i, young := range q.candidates {
		if !granted[young.UID] || young.Spec.Volume != nil || young.Spec.Constraints.Cells {
			continue
		}
		for _, group := range slices.Sorted(maps.Keys(q.next)) {
			if old := q.next[group]; group != q.groups[i] && !refused[group] && fitsInstead(old, young) &&
				old.Origin != model.OriginRequeue && young.Origin != model.OriginRequeue && byEpoch.Compare(old, young) < 0 {
				w.fail("%s (%s) is granted before %s (%s), which is older and fits, although all candidates of its group were granted",
					young.Key, young.UID, old.Key, old.UID)
			}
		}
	}
}

// fitsInstead reports whether a reservation certainly fits on what another one got.
func fitsInstead(old, young *model.Reservation) bool {
	c := old.Spec.Constraints
	return old.Spec.Volume == nil && !c.Cells && c.Spread.Max == 0 && !c.SameShape && len(c.Attributes) == 0 &&
		len(c.Avoid)+len(old.Failed) == 0 && old.Workers.Len() <= young.Workers.Len()
}
