package audit

import (
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// checkSpread checks that a new lease keeps spread and sameShape together with the leases of the
// other versions of its reservation. These may have other constraints and break them, so
// checkSpread considers only where the new lease adds workers. A worker that was given up does not
// count, unless its next worker has to start where its volume is.
func (a *Auditor) checkSpread(v *version) {
	k := &v.r.Spec.Constraints
	if k.Cells || k.Spread.Max <= 0 && !k.SameShape {
		return
	}
	all, added := map[string]int32{}, map[string]model.Placement{}
	shapes, own := map[string]bool{}, map[string]bool{}
	for o := range a.gangs[v.key] {
		adds := a.adds(o)
		for _, p := range o.placements() {
			if o.givenUp[p.Worker] && (o.r == nil || o.r.Spec.Volume == nil) {
				continue
			}
			e := a.executors[p.Ordinal]
			isNew := adds == nil || adds[p.Worker]
			// An executor whose record this revision writes may have been another one at the grant. A
			// later grant of the revision may have other constraints.
			if e == nil || e.record == nil || e.record.Lost || e.record.Cell || e.recorded == a.step.revision ||
				o != v && adds != nil && (!isNew || !sameSpread(o.r, v.r)) {
				continue
			}
			domain := domainOf(e.record, k.Spread)
			all[domain]++
			switch {
			case o == v && isNew:
				added[domain] = p
				own[shapeOf(e.record)] = true
			case o != v && adds == nil:
				shapes[shapeOf(e.record)] = true
			}
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(added)) {
		p := added[domain]
		if k.Spread.Max > 0 && all[domain] > k.Spread.Max {
			a.violate(RuleSpread, "%s: with worker %s on %s, %d workers of the reservation are in one %s, at most %d may be",
				v, p.Worker, a.name(p.Ordinal), all[domain], k.Spread.By, k.Spread.Max)
		}
	}
	for _, shape := range slices.Sorted(maps.Keys(own)) {
		if k.SameShape && (len(own) > 1 || len(shapes) == 1 && !shapes[shape] && !a.keptShapes(v.key)[shape]) {
			a.violate(RuleSpread, "%s: a worker is on another shape than others of the reservation: %s", v, shape)
		}
	}
}

// keptShapes returns the shapes of the executors that have current volumes of a stage. While the next
// worker of an index has to start there, the others may follow its shape.
func (a *Auditor) keptShapes(key model.Key) map[string]bool {
	shapes := map[string]bool{}
	for ref, chunk := range a.volumes {
		if ref.Key.Job != key.Job || ref.Key.Stage != key.Stage {
			continue
		}
		for i := range chunk.Volumes {
			if e := a.executors[chunk.Volumes[i].Ordinal]; chunk.Volumes[i].State.Current() && e != nil && e.record != nil {
				shapes[shapeOf(e.record)] = true
			}
		}
	}
	return shapes
}

// adds returns the workers that a lease of this revision adds to its reservation: not those that
// start again where their volume is. It returns nil if the lease is older.
func (a *Auditor) adds(v *version) map[model.WorkerID]bool {
	if !slices.Contains(a.step.granted, v) {
		return nil
	}
	planned := map[seat]bool{}
	for _, c := range a.step.changed {
		if c.prev == nil {
			planned[seatOf(c.stage, c.next.Index)] = true
		}
	}
	adds := map[model.WorkerID]bool{}
	for _, chunk := range v.lease {
		for _, p := range chunk.Workers {
			adds[p.Worker] = !chunk.OnVolumes || planned[seatOf(chunk.Key, p.Worker.Index)]
		}
	}
	return adds
}

func sameSpread(r, o *model.Reservation) bool {
	return r != nil && r.Spec.Constraints.Spread == o.Spec.Constraints.Spread &&
		r.Spec.Constraints.SameShape == o.Spec.Constraints.SameShape
}

// domainOf returns the domain of an executor: the executor itself, or the value of the attribute
// to spread by.
func domainOf(e *model.Executor, s constraint.Spread) string {
	if s.Single() {
		return e.ID
	}
	return constraint.Fold(e.Match().Attribute(s.By))
}

func shapeOf(e *model.Executor) string {
	shape := []string{constraint.Fold(e.SKU), e.Resources.Canonical()}
	for role, share := range e.Reserved {
		if text := share.Canonical(); text != "" {
			shape = append(shape, constraint.Fold(role)+":"+text)
		}
	}
	slices.Sort(shape[2:])
	return strings.Join(shape, "|")
}
