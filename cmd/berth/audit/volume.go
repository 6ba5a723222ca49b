package audit

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// seat is a worker index of a stage. The stage has no name.
type seat struct {
	stage model.Key
	index int32
}

func seatOf(key model.Key, index int32) seat {
	return seat{model.Key{Job: key.Job, Stage: key.Stage}, index}
}

func compareSeats(x, y seat) int {
	return cmp.Or(x.stage.Compare(y.stage), cmp.Compare(x.index, y.index))
}

// leasedWorker is a leased worker on a volume.
type leasedWorker struct {
	holder
	ordinal uint32
}

// volumeChange is the change of one volume; prev or next may be nil.
type volumeChange struct {
	stage      model.Key
	prev, next *model.Volume
}

func (a *Auditor) takeSeat(v *version, chunk *model.LeaseChunk, p model.Placement) {
	if chunk.OnVolumes {
		s := seatOf(chunk.Key, p.Worker.Index)
		a.leasedOn[s] = append(a.leasedOn[s], leasedWorker{holder{v, p.Worker}, p.Ordinal})
		a.step.seats[s] = true
	}
}

func (a *Auditor) leaveSeat(v *version, chunk *model.LeaseChunk, p model.Placement) {
	if chunk.OnVolumes {
		s := seatOf(chunk.Key, p.Worker.Index)
		a.leasedOn[s] = slices.DeleteFunc(a.leasedOn[s], func(w leasedWorker) bool {
			return w == leasedWorker{holder{v, p.Worker}, p.Ordinal}
		})
		if len(a.leasedOn[s]) == 0 {
			delete(a.leasedOn, s)
		}
	}
}

// setVolumes applies the change of a chunk of volumes.
func (a *Auditor) setVolumes(ref model.Ref, next *model.VolumeChunk) {
	prev := a.volumes[ref]
	if next == nil {
		delete(a.volumes, ref)
	} else {
		a.volumes[ref] = next
	}
	before, after := byID(prev), byID(next)
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if after[id] == nil {
			a.changeVolume(volumeChange{ref.Key, before[id], nil})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if before[id] == nil || !before[id].Equal(after[id]) {
			a.changeVolume(volumeChange{ref.Key, before[id], after[id]})
		}
	}
}

func byID(chunk *model.VolumeChunk) map[string]*model.Volume {
	volumes := map[string]*model.Volume{}
	if chunk != nil {
		for i := range chunk.Volumes {
			volumes[chunk.Volumes[i].ID] = &chunk.Volumes[i]
		}
	}
	return volumes
}

// changeVolume moves what a volume holds. The size of a volume is imposed on its executor if
// its disk came there, or may have come there before a snapshot. Everything else that the
// volume holds was granted.
func (a *Auditor) changeVolume(c volumeChange) {
	a.step.changed = append(a.step.changed, c)
	if v := c.prev; v != nil {
		a.add(v.Ordinal, -1, v.Role, v.Holds())
		a.step.seats[seatOf(c.stage, v.Index)] = true
	}
	v := c.next
	if v == nil {
		return
	}
	a.add(v.Ordinal, 1, v.Role, v.Holds())
	a.step.seats[seatOf(c.stage, v.Index)] = true
	came := a.step.jump && c.prev == nil
	if c.prev != nil {
		came = c.prev.Ordinal != v.Ordinal || c.prev.State == model.VolumeLost && v.State != model.VolumeLost
	}
	if came {
		a.step.imposed[v.Ordinal] = a.step.imposed[v.Ordinal].Plus(1, resource.Vector{v.Resource: v.Amount()})
	}
}

// current returns the volume of a worker index; nil if it has none.
func (a *Auditor) current(s seat) *model.Volume {
	chunk := a.volumes[model.VolumeChunkRef(s.stage, s.index)]
	if chunk == nil {
		return nil
	}
	for i := range chunk.Volumes {
		if v := &chunk.Volumes[i]; v.Index == s.index && v.State.Current() {
			return v
		}
	}
	return nil
}

// checkSeats checks the leased workers of the worker indexes whose lease or volume this
// revision changed.
func (a *Auditor) checkSeats() {
	for _, s := range slices.SortedFunc(maps.Keys(a.step.seats), compareSeats) {
		workers, volume := a.leasedOn[s], a.current(s)
		if len(workers) > 1 {
			a.violate(RuleVolumeOne, "worker %s of %s and worker %s of %s are on one volume", workers[0].workerID,
				workers[0].v, workers[1].workerID, workers[1].v)
		}
		for _, w := range workers {
			switch {
			case volume == nil:
				a.violate(RuleVolumeHome, "worker %s of %s is leased on a volume, and its index has none", w.workerID, w.v)
			case volume.Ordinal != w.ordinal:
				a.violate(RuleVolumeHome, "worker %s of %s is on %s, and volume %s on %s", w.workerID, w.v, a.name(w.ordinal),
					volume.ID, a.name(volume.Ordinal))
			case !volume.Whole || volume.State == model.VolumeLost:
				a.violate(RuleVolumeHome, "volume %s is %s and does not hold what worker %s of %s uses", volume.ID, volume.State,
					w.workerID, w.v)
			}
		}
	}
}

// checkVolumes checks the changes of volumes of this revision.
func (a *Auditor) checkVolumes() {
	for _, c := range a.step.changed {
		switch prev, next := c.prev, c.next; {
		case prev == nil:
			a.checkID(c)
		case next == nil:
			if prev.State != model.VolumeDestroying && prev.State != model.VolumeLost {
				a.violate(RuleVolumeKept, "volume %s was deleted while %s", prev.ID, prev.State)
			}
		default:
			if prev.Ordinal != next.Ordinal && !a.wasLost(prev.Ordinal) {
				a.violate(RuleVolumeHome, "volume %s moved from %s, which is not LOST", prev.ID, a.name(prev.Ordinal))
			}
			if next.State == model.VolumeDestroying && prev.State != next.State {
				a.checkDestroyed(c)
			}
		}
	}
}

// wasLost reports whether an executor is LOST or has no record, or was LOST until this revision:
// one transaction may have decisions from before and after the return of an executor.
func (a *Auditor) wasLost(ordinal uint32) bool {
	e := a.executor(ordinal)
	return e.record == nil || e.record.Lost || a.step.returned[ordinal]
}

// checkID checks that no other volume has the ID of a new one.
func (a *Auditor) checkID(c volumeChange) {
	for ref, chunk := range a.volumes {
		for i := range chunk.Volumes {
			if v := &chunk.Volumes[i]; v.ID == c.next.ID && (ref.Key != c.stage || v.Index != c.next.Index) {
				a.violate(RuleVolumeHome, "two volumes have the ID %s", v.ID)
			}
		}
	}
}

// checkDestroyed checks that a volume that becomes DESTROYING may be destroyed.
func (a *Auditor) checkDestroyed(c volumeChange) {
	prev, next := c.prev, c.next
	s := seatOf(c.stage, next.Index)
	// A later worker of the index may be leased on a new volume in the same revision.
	if prev.State.Current() && a.current(s) == nil && slices.ContainsFunc(a.leasedOn[s], func(w leasedWorker) bool {
		return w.ordinal == next.Ordinal
	}) {
		a.violate(RuleVolumeKept, "volume %s is to be destroyed while a worker on it is leased", next.ID)
	}
	over := next.KeepFor != nil && !next.UnwantedSince.IsZero() &&
		!next.Since.Before(next.UnwantedSince.Add(*next.KeepFor))
	if !next.Delete && !over && (prev.State != model.VolumePlanned || prev.Used || !a.neverRan(s, prev.Ordinal)) {
		a.violate(RuleVolumeKept, "volume %s, which was %s, is to be destroyed without a reason", next.ID, prev.State)
	}
}

// neverRan reports whether this revision released a worker of an index that certainly never
// ran on an executor.
func (a *Auditor) neverRan(s seat, ordinal uint32) bool {
	return slices.ContainsFunc(a.step.removed, func(r removal) bool {
		if seatOf(r.v.key, r.workerID.Index) != s {
			return false
		}
		w, found := r.v.assignment(r.workerID)
		return !found || w.Ordinal == ordinal && w.Incarnation == 0 && w.Sequence == 0 &&
			(w.State != model.WorkerLost || w.NeverStarted) && w.Cleared == model.Interned{}
	})
}
