package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// A candidate with volumes is granted for all its workers or for none, like any other. For
// each worker index the first rule that applies decides:
//
//  1. The index has a volume, and the home may be given work: the worker is pinned to the
//     home. The rest of the worker, which the volume does not hold yet, must fit there.
//  2. The home may not be given work, or too little of it is free: VOLUME_AWAY.
//  3. The volume or its home is LOST, and the request says REPLACE: as rule 4. The old
//     volume becomes ABANDONED; a LOST one is deleted.
//  4. The index has no volume: the worker is free, and gets a PLANNED volume where it fits.
//
// Pinned workers come first. The rest of each is added to its home in the index, the free
// workers are placed, and everything is subtracted again. Then one
// effect writes the lease and the volumes, and memory follows from it. If the pinned workers
// leave the free ones no executor that other homes would have left, the candidate does not
// fit: homes cannot be chosen. For spread, sameShape and pack of the free workers, the workers
// of other versions count like pinned ones; see gang.go.

// volumePlan is where the workers of a candidate with volumes start.
type volumePlan struct {
	model.Candidate
	stage model.Key
	// pinned holds the volumes on which workers start, and replaced those that their indexes
	// give up, by index. free counts the workers without a volume.
	pinned, replaced map[int32]*model.Volume
	free             int
	// homes holds the executors of the pinned workers in the order of their indexes, and on
	// the pinned volumes of each.
	homes []*host
	on    map[*host][]*model.Volume
}

// volumeRefusal says why a candidate with volumes does not fit.
type volumeRefusal struct {
	reason  fault.Reason
	message string
}

func refusef(reason fault.Reason, format string, args ...any) *volumeRefusal {
	return &volumeRefusal{reason, fmt.Sprintf(format, args...)}
}

// tryVolumes grants a candidate with volumes if all its workers fit. Its refusal is not
// remembered: it changes with every volume and home, and such candidates are few.
func (r *round) tryVolumes(e model.Candidate) model.Outcome {
	if message := malformedVolume(e); message != "" {
		return model.Outcome{UID: e.UID, Result: model.NoFit, Reason: fault.ReasonInvalid, Message: message}
	}
	for _, chunk := range volumeChunks(e.Workers) {
		r.reviewVolumes(model.Ref{Kind: model.KindVolumeChunk, Key: stageOf(e.Key), Chunk: chunk})
	}
	r.subject = model.Ref{Kind: model.KindReservation, Key: e.Key, ID: e.UID}
	p, picks, outcome := r.fitVolumes(e)
	if outcome.Result == model.Granted {
		r.decide(r.grantVolumes(p, picks))
	}
	return outcome
}

// fitVolumes returns where the workers of a candidate with volumes would start now. The
// index is the same before and after.
func (c *Core) fitVolumes(e model.Candidate) (p *volumePlan, picks []match.Pick, o model.Outcome) {
	r := &round{Core: c}
	refuse := func(refusal *volumeRefusal) (*volumePlan, []match.Pick, model.Outcome) {
		return p, nil, model.Outcome{UID: e.UID, Result: model.NoFit, Reason: refusal.reason, Message: refusal.message}
	}
	p = &volumePlan{Candidate: e, stage: stageOf(e.Key), pinned: map[int32]*model.Volume{},
		replaced: map[int32]*model.Volume{}, on: map[*host][]*model.Volume{}}
	if refusal := r.planVolumes(p); refusal != nil {
		return refuse(refusal)
	}
	homes, others := map[*match.Executor]int{}, c.pinned(e.Key, e.UID, e.Constraints, e.Workers)
	for _, h := range p.homes {
		homes[&h.Executor.Executor] = len(p.on[h])
	}
	// Workers that had executors start where their volumes are, whatever was requested since.
	if conflict := r.index.Conflict(e.Constraints, homes); conflict != "" && c.awaitsFirstGrant(e.UID) {
		return refuse(refusef(fault.ReasonVolumeAway, "the volumes cannot be used together: %s", conflict))
	}
	full := r.reserve(p)
	var refusal *match.Refusal
	if full == nil && p.free > 0 {
		picks, refusal = r.index.Choose(e.Constraints, p.free, match.Together(homes, others))
	}
	r.unreserve(p)
	switch {
	case full != nil:
		return refuse(refusef(fault.ReasonVolumeAway, "worker index %d has a volume on executor %s, which is too full: "+
			"it waits until %s is free there", full.Index, r.allocations[full.Ordinal].host.ID, p.rest(full).Canonical()))
	case refusal != nil:
		return p, nil, model.Outcome{UID: e.UID, Result: model.NoFit, Reason: refusal.Reason,
			Message: c.ifEmpty(refusal.Reason, refusal.Message, e, p.free, homes), Fitting: p.prefix(refusal.Fitting)}
	}
	return p, picks, model.Outcome{UID: e.UID, Result: model.Granted, Fitting: e.Workers.Len()}
}

// awaitsFirstGrant reports whether the workers of a reservation had no executors before, or its record is not
// in the view.
func (c *Core) awaitsFirstGrant(uid string) bool {
	entry := c.reservations[uid]
	return entry == nil || entry.record.(*model.Reservation).AwaitsFirstGrant()
}

// volumeChunks returns the numbers of the chunks that have the indexes of workers, in order.
func volumeChunks(workers model.WorkerSet) (chunks []int32) {
	last := int32(-1)
	for _, run := range workers {
		for chunk := max(last+1, run.First/model.VolumeChunkSize); chunk <= run.Last/model.VolumeChunkSize; chunk++ {
			chunks, last = append(chunks, chunk), chunk
		}
	}
	return chunks
}

// malformedVolume describes a volume that no registry should have requested; empty if there
// is none.
func malformedVolume(e model.Candidate) string {
	if e.Constraints.Resources[e.Volume.Resource] <= 0 {
		return fmt.Sprintf("volume.resource: %q must be one of the requested resources", e.Volume.Resource)
	}
	if chunks := len(volumeChunks(e.Workers)); chunks > model.MaxVolumeChunks {
		return fmt.Sprintf("workers: with volumes, they must be in at most %d ranges of %d indexes, got %d",
			model.MaxVolumeChunks, model.VolumeChunkSize, chunks)
	}
	return ""
}

// planVolumes finds the rule for each worker index.
func (r *round) planVolumes(p *volumePlan) *volumeRefusal {
	added := map[int32]int{}
	for worker := range p.Workers.All() {
		index := worker.Index
		ref := model.VolumeChunkRef(p.stage, index)
		if _, seen := added[ref.Chunk]; !seen {
			if r.quarantined.volumes[ref] {
				return refusef(fault.ReasonPoison, "a record of its volumes is quarantined: see the findings")
			}
			added[ref.Chunk] = 0
		}
		s := r.stages[p.stage]
		if s == nil {
			p.free++
			added[ref.Chunk]++
			continue
		}
		if holders := s.holders[index]; len(holders) > 0 {
			return refusef(fault.ReasonVolumeInUse, "worker index %d: number %d still has the volume, under uid %s", index,
				holders[0].number, holders[0].uid)
		}
		v := s.current(index)
		if v == nil {
			p.free++
			added[ref.Chunk]++
			continue
		}
		replace := p.Volume.OnLoss == model.OnVolumeLossReplace
		switch {
		case v.State == model.VolumeLost && (!replace || !s.mayRemove(v)):
			return refusef(fault.ReasonVolumeLost,
				"worker index %d: volume %s is not on its executor any longer: it waits until the executor lists it or it is abandoned",
				index, v.ID)
		case v.State == model.VolumeLost || replace && r.homeLost(v):
			p.replaced[index] = v
			p.free++
			added[ref.Chunk]++
			continue
		}
		if refusal := r.pin(p, v); refusal != nil {
			return refusal
		}
	}
	if s := r.stages[p.stage]; s != nil {
		for chunk, n := range added {
			if len(volumesOf(s.chunks[chunk]))+n > model.MaxChunkVolumes {
				return refusef(fault.ReasonVolumeAway, "the stage has too many abandoned volumes: delete them")
			}
		}
	}
	return nil
}

// pin pins the worker of an index to the home of its volume.
func (r *round) pin(p *volumePlan, v *model.Volume) *volumeRefusal {
	wants := p.Constraints.Resources[p.Volume.Resource]
	h, why := r.away(v)
	switch {
	case v.Resource != p.Volume.Resource || v.Amount() != wants:
		return refusef(fault.ReasonVolumeAway, "worker index %d: volume %s has %d of %s, %d of %s requested: delete or abandon it",
			v.Index, v.ID, v.Amount(), v.Resource, wants, p.Volume.Resource)
	case why != "":
		return refusef(fault.ReasonVolumeAway, "worker index %d: its volume is %s", v.Index, why)
	case !r.index.Allows(p.Constraints, &h.Executor.Executor):
		return refusef(fault.ReasonVolumeAway,
			"worker index %d: its volume is on executor %s, which the constraints do not allow", v.Index, h.ID)
	}
	p.pinned[v.Index] = v
	if p.on[h] == nil {
		p.homes = append(p.homes, h)
	}
	p.on[h] = append(p.on[h], v)
	return nil
}

// rest returns what a pinned worker uses in addition to what its volume holds.
func (p *volumePlan) rest(v *model.Volume) resource.Vector {
	rest := resource.Vector{}
	for name, amount := range p.Constraints.Resources {
		if more := amount - v.Holds()[name]; more > 0 {
			rest[name] = more
		}
	}
	return rest
}

// grows reports whether a pinned worker uses more than its volume holds, in total or of a
// share.
func (p *volumePlan) grows(v *model.Volume) bool {
	return len(p.rest(v)) > 0 || constraint.Fold(v.Role) != constraint.Fold(p.Constraints.Role)
}

// reserve adds what the pinned workers use to their homes in the index, home by home. It
// returns a volume whose worker does not fit; nil if all fit. unreserve must be called in
// either case. An overcommitted home fits if its workers use no more than their volumes
// hold.
func (r *round) reserve(p *volumePlan) (full *model.Volume) {
	for _, h := range p.homes {
		over := h.Eligibility() == match.Overcommitted
		within := r.exchange(h, func() {
			for _, v := range p.on[h] {
				h.Leased.Hold(-1, v.Holds(), v.Role)
				h.Leased.Hold(1, p.Constraints.Resources, p.Constraints.Role)
			}
		})
		for _, v := range p.on[h] {
			if full == nil && p.grows(v) && (over || !within) {
				full = v
			}
		}
	}
	return full
}

// unreserve undoes reserve.
func (r *round) unreserve(p *volumePlan) {
	for _, h := range p.homes {
		r.exchange(h, func() {
			for _, v := range p.on[h] {
				h.Leased.Hold(-1, p.Constraints.Resources, p.Constraints.Role)
				h.Leased.Hold(1, v.Holds(), v.Role)
			}
		})
	}
}

// exchange changes what an executor's volumes hold, in the index only. It reports whether
// the executor's use is within its capacity.
func (r *round) exchange(h *host, change func()) (within bool) {
	r.index.Unplace(&h.Executor.Executor)
	change()
	return r.index.Place(&h.Executor.Executor, h.eligibility())
}

// prefix returns how many of the first workers fit, if fitting of the free workers fit. A
// best-effort batch is split there.
func (p *volumePlan) prefix(fitting int) (n int) {
	for worker := range p.Workers.All() {
		if p.pinned[worker.Index] == nil {
			if fitting == 0 {
				break
			}
			fitting--
		}
		n++
	}
	return n
}

// grantVolumes returns the one effect that leases the workers and writes their volumes.
func (r *round) grantVolumes(p *volumePlan, picks []match.Pick) model.Effect {
	edits := volumeEdits{Core: r.Core}
	taken := map[string]bool{}
	total := p.Workers.Len()
	placements := make([]model.Placement, 0, total)
	var named []model.EventWorker
	for worker := range p.Workers.All() {
		v := model.Volume{Index: worker.Index}
		if pinned := p.pinned[worker.Index]; pinned != nil {
			v = *pinned
		} else {
			if old := p.replaced[worker.Index]; old != nil {
				given := *old
				if r.becomes(&given, VolumeReplaced) {
					edits.set(p.stage, given)
				} else {
					edits.remove(p.stage, &given)
				}
			}
			for picks[0].Workers == 0 {
				picks = picks[1:]
			}
			picks[0].Workers--
			v.ID, v.Ordinal = r.newVolumeID(p, worker.Index, taken), picks[0].Executor.Ordinal
		}
		v.Each, v.Role = p.Constraints.Resources, p.Constraints.Role
		v.Resource, v.KeepFor = p.Volume.Resource, p.Volume.KeepFor
		r.becomes(&v, VolumeGranted)
		edits.set(p.stage, v)
		placements = append(placements, model.Placement{Worker: worker, Ordinal: v.Ordinal})
		if total <= model.MaxEventWorkers {
			named = append(named, model.EventWorker{ID: worker, Executor: r.allocations[v.Ordinal].host.ID})
		}
	}
	effect := r.grant(p.Candidate, placements, named, r.rating(p.Candidate, placements, p.pinned))
	volumes := edits.effect()
	effect.Puts = append(effect.Puts, volumes.Puts...)
	effect.Events = append(effect.Events, volumes.Events...)
	return effect
}

// newVolumeID returns an ID that no volume ever had. After a restore from a backup, UIDs and
// revisions repeat, and executors may have volumes of the lost history. Only the time of the
// grant makes the ID differ from theirs.
func (r *round) newVolumeID(p *volumePlan, index int32, taken map[string]bool) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(p.UID + "\n" + p.Key.Job + "/" + p.Key.Stage + "/" + strconv.Itoa(int(index)) + "\n" +
			strconv.FormatInt(r.now.UnixNano(), 10) + "\n" + strconv.Itoa(n)))
		id := hex.EncodeToString(sum[:6])
		if r.volumes[id] == nil && r.listers[id] == nil && !taken[id] {
			taken[id] = true
			return id
		}
	}
}
