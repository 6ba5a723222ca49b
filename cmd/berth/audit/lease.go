package audit

import (
	"fmt"
	"slices"

	"berth.dev/pkg/model"
)

// removal is a worker that was taken out of its lease.
type removal struct {
	v        *version
	workerID model.WorkerID
}

// setLease moves one chunk of a lease, and what it uses.
func (a *Auditor) setLease(ref model.Ref, next *model.LeaseChunk) {
	v := a.touch(ref.ID)
	prev := v.lease[ref.Chunk]
	switch {
	case next == nil:
		delete(v.lease, ref.Chunk)
	case prev == nil:
		a.leaveQueue(v)
		if v.key == (model.Key{}) {
			v.key = next.Key
		}
		v.lease[ref.Chunk] = next
		a.grant(v, next)
	default:
		v.lease[ref.Chunk] = next
	}
	a.moveUse(v, prev, next)
}

// grant takes a chunk that was not there. All chunks of a lease are created by
// one revision, the only grant its uid ever gets.
func (a *Auditor) grant(v *version, chunk *model.LeaseChunk) {
	first := v.leased == 0
	if first {
		v.leased = chunk.Create
	}
	switch {
	case a.step.jump && !first:
	case first:
		a.step.granted = append(a.step.granted, v)
		a.stats.LeasesGranted++
		a.stats.WorkersLeased += int(chunk.Total)
	case v.leased != chunk.Create:
		a.violate(RuleNoRevival, "%s was leased at %d and got chunk %d of a lease since", v, v.leased, chunk.Chunk)
	}
}

// moveUse takes away what prev uses and adds what next does. A chunk that is
// rewritten holds the same workers in the same order, but for those taken out.
func (a *Auditor) moveUse(v *version, prev, next *model.LeaseChunk) {
	var before, after model.LeaseChunk
	if prev != nil {
		before = *prev
	}
	if next != nil {
		after = *next
	}
	if prev != nil && next != nil && (!prev.Each.Equal(next.Each) || prev.Role != next.Role) {
		a.violate(RuleImmutable, "%s: chunk %d of its lease has another size of worker or another role", v, next.Chunk)
		a.useAll(&before, -1)
		a.useAll(&after, 1)
		return
	}
	kept := 0
	for _, p := range before.Workers {
		if kept < len(after.Workers) && after.Workers[kept] == p {
			kept++
			continue
		}
		a.use(p.Ordinal, -1, &before)
		a.step.removed = append(a.step.removed, removal{v, p.Worker})
	}
	for _, p := range after.Workers[kept:] {
		a.use(p.Ordinal, 1, &after)
		if prev != nil {
			a.violate(RulePlacement, "%s: worker %s came into its lease, on %s, after the grant", v, p.Worker, a.name(p.Ordinal))
		}
	}
}

func (a *Auditor) useAll(chunk *model.LeaseChunk, n int64) {
	for _, p := range chunk.Workers {
		a.use(p.Ordinal, n, chunk)
	}
}

// checkLeases judges the grants of this revision.
func (a *Auditor) checkLeases() {
	if a.step.jump {
		return
	}
	for _, v := range a.step.granted {
		if v.r == nil || v.r.State != model.Queued || v.header != nil {
			a.violate(RuleNoRevival, "%s was leased while %s", v, v.state())
			continue
		}
		if why := v.leaseFlaw(); why != "" {
			a.violate(RuleAllOrNone, "%s: %s", v, why)
		}
		a.checkAvoid(v)
	}
}

// checkAvoid demands that a new lease names no executor that the caller avoids. What
// Berth itself avoids, because workers failed there, is a wish.
func (a *Auditor) checkAvoid(v *version) {
	avoid := v.r.Spec.Constraints.Avoid
	if len(avoid) == 0 {
		return
	}
	for _, p := range v.placements() {
		if e := a.executors[p.Ordinal]; e != nil && e.record != nil && slices.Contains(avoid, e.record.ID) {
			a.violate(RuleAvoid, "%s: worker %s is leased %s, which the reservation avoids", v, p.Worker, a.name(p.Ordinal))
		}
	}
}

func (v *version) state() string {
	switch {
	case v.r == nil:
		return "there is no reservation"
	case v.header != nil:
		return v.r.State.String() + " with a task"
	}
	return v.r.State.String()
}

// leaseFlaw says in what a new lease is not all of what was asked for.
func (v *version) leaseFlaw() string {
	placements := v.placements()
	if len(placements) != v.r.Workers.Len() {
		return fmt.Sprintf("%d of %d workers leased", len(placements), v.r.Workers.Len())
	}
	at := 0
	for workerID := range v.r.Workers.All() {
		if placements[at].Worker != workerID {
			return fmt.Sprintf("worker %s leased where %s was asked for", placements[at].Worker, workerID)
		}
		at++
	}
	for n, chunk := range v.lease {
		switch {
		case int(chunk.Chunks) != len(v.lease) || int(chunk.Total) != len(placements):
			return fmt.Sprintf("chunk %d names %d chunks and %d workers, there are %d and %d",
				n, chunk.Chunks, chunk.Total, len(v.lease), len(placements))
		case chunk.Key != v.r.Key || chunk.Epoch != v.r.Epoch:
			return fmt.Sprintf("chunk %d is for %s at epoch %d, not %d", n, chunk.Key, chunk.Epoch, v.r.Epoch)
		case !chunk.Each.Equal(v.r.Spec.Constraints.Resources):
			return fmt.Sprintf("a worker takes %s where %s was asked for", chunk.Each.Canonical(), v.r.Spec.Constraints.Resources.Canonical())
		case chunk.Role != v.r.Spec.Constraints.Role:
			return fmt.Sprintf("a worker has the role %q where %q was asked for", chunk.Role, v.r.Spec.Constraints.Role)
		}
	}
	return ""
}

// checkReleases demands a reason for every worker taken out of its lease: the
// assigner's word that it has ended, or that nobody ever took the lease.
func (a *Auditor) checkReleases() {
	if a.step.jump {
		return
	}
	for _, r := range a.step.removed {
		v := r.v
		if v.header == nil && len(v.tasks) == 0 {
			if v.living() {
				a.violate(RuleRelease, "%s: worker %s was released while %s", v, r.workerID, v.r.State)
			}
			continue
		}
		if w, found := v.assignment(r.workerID); !found || !w.State.Terminal() {
			a.violate(RuleRelease, "%s: worker %s was released while %s", v, r.workerID, orAbsent(w.State))
		}
	}
}

func orAbsent(s model.WorkerState) string {
	if s == model.WorkerUnset {
		return "absent from its task"
	}
	return s.String()
}
