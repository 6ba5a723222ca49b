package audit

import (
	"fmt"
	"slices"

	"berth.dev/pkg/model"
)

// removal is a worker that was removed from its lease.
type removal struct {
	v        *version
	workerID model.WorkerID
}

// setLease applies the change of one chunk of a lease.
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
	a.moveGang(v)
}

// moveGang records whether a version of a reservation has a lease.
func (a *Auditor) moveGang(v *version) {
	gang := a.gangs[v.key]
	switch {
	case len(v.lease) == 0:
		if delete(gang, v); len(gang) == 0 {
			delete(a.gangs, v.key)
		}
	case gang == nil:
		a.gangs[v.key] = map[*version]bool{v: true}
	default:
		gang[v] = true
	}
}

// grant records a new chunk. It adds a violation unless one revision created all chunks of
// the lease: a uid gets only one lease.
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
		a.violate(RuleNoRevival, "%s was leased at revision %d and got chunk %d of a lease later", v, v.leased, chunk.Chunk)
	}
}

// moveUse subtracts the use of the old chunk and adds the use of the new chunk. A rewritten
// chunk must have the same workers in the same order, without the released workers.
func (a *Auditor) moveUse(v *version, prev, next *model.LeaseChunk) {
	var before, after model.LeaseChunk
	if prev != nil {
		before = *prev
	}
	if next != nil {
		after = *next
	}
	if prev != nil && next != nil && (!prev.Each.Equal(next.Each) || prev.Role != next.Role ||
		prev.OnVolumes != next.OnVolumes) {
		a.violate(RuleImmutable, "%s: chunk %d of its lease changed what its workers use", v, next.Chunk)
		a.useAll(v, &before, -1)
		a.useAll(v, &after, 1)
		return
	}
	kept := 0
	for _, p := range before.Workers {
		if kept < len(after.Workers) && after.Workers[kept] == p {
			kept++
			continue
		}
		a.use(p.Ordinal, -1, &before)
		a.leaveSeat(v, &before, p)
		a.step.removed = append(a.step.removed, removal{v, p.Worker})
	}
	for _, p := range after.Workers[kept:] {
		a.use(p.Ordinal, 1, &after)
		a.takeSeat(v, &after, p)
		if prev != nil {
			a.violate(RulePlacement, "%s: worker %s was added to its lease, on %s, after the grant", v, p.Worker,
				a.name(p.Ordinal))
		}
	}
}

func (a *Auditor) useAll(v *version, chunk *model.LeaseChunk, n int64) {
	for _, p := range chunk.Workers {
		a.use(p.Ordinal, n, chunk)
		if n > 0 {
			a.takeSeat(v, chunk, p)
		} else {
			a.leaveSeat(v, chunk, p)
		}
	}
}

// checkLeases checks the grants of this revision.
func (a *Auditor) checkLeases() {
	for _, v := range a.step.granted {
		if v.r == nil || v.r.State != model.Queued || v.header != nil {
			a.violate(RuleNoRevival, "%s was leased while %s", v, v.state())
			continue
		}
		if why := v.leaseFlaw(); why != "" {
			a.violate(RuleAllOrNone, "%s: %s", v, why)
		}
		a.checkAvoid(v)
		a.checkSpread(v)
		a.checkCell(v)
	}
}

// checkAvoid checks that a new lease has no executor that the reservation avoids. Berth
// itself also avoids executors on which workers failed. That is only a preference, which
// checkAvoid ignores.
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
		return "without a reservation"
	case v.header != nil:
		return v.r.State.String() + " with a task"
	}
	return v.r.State.String()
}

// leaseFlaw describes how a new lease differs from the request. It returns an empty string
// if the lease matches.
func (v *version) leaseFlaw() string {
	placements := v.placements()
	if len(placements) != v.r.Workers.Len() {
		return fmt.Sprintf("%d of %d workers leased", len(placements), v.r.Workers.Len())
	}
	uses, role := v.r.Spec.Constraints.Resources, v.r.Spec.Constraints.Role
	if v.r.Spec.Constraints.Cells {
		uses, role = nil, "" // the cell counts what its workers use
	}
	at := 0
	for workerID := range v.r.Workers.All() {
		if placements[at].Worker != workerID {
			return fmt.Sprintf("worker %s leased instead of %s", placements[at].Worker, workerID)
		}
		at++
	}
	for n, chunk := range v.lease {
		switch {
		case int(chunk.Chunks) != len(v.lease) || int(chunk.Total) != len(placements):
			return fmt.Sprintf("chunk %d has %d chunks and %d workers in total, but the lease has %d and %d",
				n, chunk.Chunks, chunk.Total, len(v.lease), len(placements))
		case chunk.Key != v.r.Key || chunk.Epoch != v.r.Epoch:
			return fmt.Sprintf("chunk %d is for %s at epoch %d, not %d", n, chunk.Key, chunk.Epoch, v.r.Epoch)
		case !chunk.Each.Equal(uses):
			return fmt.Sprintf("a worker uses %s instead of %s", chunk.Each.Canonical(), uses.Canonical())
		case chunk.Role != role:
			return fmt.Sprintf("a worker has role %q instead of %q", chunk.Role, role)
		}
	}
	return ""
}

// checkReleases checks every worker that was removed from its lease. The worker must have
// ended according to its task. If the lease has no task, the reservation must have
// ended or been deleted.
func (a *Auditor) checkReleases() {
	for _, r := range a.step.removed {
		v := r.v
		if v.header == nil && len(v.tasks) == 0 {
			if v.unfinished() {
				a.violate(RuleRelease, "%s: worker %s was released while %s", v, r.workerID, v.r.State)
			}
			continue
		}
		if w, found := v.assignment(r.workerID); !found || w.Occupies() {
			a.violate(RuleRelease, "%s: worker %s was released while %s", v, r.workerID, stateOf(&w))
		}
	}
}

// stateOf describes the state of a worker, which is the zero worker if its task does not have it.
func stateOf(w *model.TaskWorker) string {
	switch {
	case w.State == model.WorkerUnset:
		return "absent from its task"
	case w.Unconfirmed:
		return w.State.String() + " and not confirmed"
	}
	return w.State.String()
}
