package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
)

// A volume is a lease that outlives its worker. It belongs to a worker index of a stage, and
// holds a part of its home, the executor that has it:
//
//	the whole vector of its worker   from the grant until nobody wants the volume
//	its size                         after that, until it is destroyed
//	nothing                          while it is LOST, since the home does not have it
//
// The workers of a lease on volumes use nothing in addition. So what leases and volumes use
// of an executor together is at most its capacity, with the same exceptions as for leases,
// and one more: a LOST volume that its home lists again, and a volume whose disk moves to
// another executor, hold their size even if the capacity was granted since. The executor is
// then OVERCOMMITTED.
//
// A volume is wanted while a version of its stage that has not ended requests a volume for
// its index, or while a worker on it is leased. Only a grant makes it hold a whole vector:
// whether that fits must be decided.

// volume is a volume, as its record says.
type volume struct {
	*model.Volume
	stage model.Key
}

// ref returns the Ref of the chunk with the volume.
func (v *volume) ref() model.Ref { return model.VolumeChunkRef(v.stage, v.Index) }

// stage is what volumes need to know about a stage.
type stage struct {
	chunks map[int32]*entry
	// demand counts, by worker index, the versions that have not ended and request a volume
	// for the index.
	demand map[int32]int
	// wanting holds these versions by UID.
	wanting map[string]*model.Reservation
	// holders holds, by worker index, the leased workers on volumes, in order.
	holders map[int32][]holder
}

// holder is a leased worker on a volume.
type holder struct {
	uid     string
	number  int32
	ordinal uint32
}

func compareHolders(a, b holder) int {
	return cmp.Or(strings.Compare(a.uid, b.uid), cmp.Compare(a.number, b.number), cmp.Compare(a.ordinal, b.ordinal))
}

// stageOf returns the key of the stage of a reservation.
func stageOf(key model.Key) model.Key { return model.Key{Job: key.Job, Stage: key.Stage} }

func (c *Core) stage(key model.Key) *stage {
	s := c.stages[key]
	if s == nil {
		s = &stage{chunks: map[int32]*entry{}, demand: map[int32]int{}, wanting: map[string]*model.Reservation{},
			holders: map[int32][]holder{}}
		c.stages[key] = s
	}
	return s
}

func (c *Core) dropStage(key model.Key) {
	if s := c.stages[key]; len(s.chunks) == 0 && len(s.demand) == 0 && len(s.wanting) == 0 && len(s.holders) == 0 {
		delete(c.stages, key)
	}
}

// current returns the volume of a worker index; nil if it has none.
func (s *stage) current(index int32) *model.Volume {
	list := volumesOf(s.chunks[index/model.VolumeChunkSize])
	for i := range list {
		if v := &list[i]; v.Index == index && v.State.Current() {
			return v
		}
	}
	return nil
}

// wants reports whether the volume of a worker index is wanted.
func (s *stage) wants(index int32) bool { return s.demand[index] > 0 || len(s.holders[index]) > 0 }

// leased reports whether a lease has a worker on the volume. Abandoned and destroyed volumes
// are not those of their index, so no worker is on them.
func (s *stage) leased(v *model.Volume) bool {
	return v.State.Current() && slices.ContainsFunc(s.holders[v.Index],
		func(h holder) bool { return h.ordinal == v.Ordinal })
}

func volumesOf(e *entry) []model.Volume {
	if e == nil {
		return nil
	}
	return e.record.(*model.VolumeChunk).Volumes
}

// setVolumeChunk replaces a chunk of volumes. It is the only writer of what follows from
// these records. It skips volumes that are in both, which are nearly all.
func (c *Core) setVolumeChunk(ref model.Ref, prev, next *entry) {
	s := c.stage(ref.Key)
	put(s.chunks, ref.Chunk, next)
	before, after := volumesOf(prev), volumesOf(next)
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(after) == 0:
			order = -1
		case len(before) == 0:
			order = 1
		default:
			order = before[0].Compare(&after[0])
		}
		if order == 0 && before[0].Equal(&after[0]) {
			c.volumes[after[0].ID].Volume = &after[0]
			before, after = before[1:], after[1:]
			continue
		}
		if order <= 0 {
			c.removeVolume(c.volumes[before[0].ID])
			before = before[1:]
		}
		if order >= 0 {
			c.addVolume(&volume{&after[0], ref.Key})
			after = after[1:]
		}
	}
	c.markVolumes(ref.Key, ref.Chunk)
	c.dropStage(ref.Key)
}

func (c *Core) addVolume(v *volume) {
	c.volumes[v.ID] = v
	if v.kept() {
		c.keeps.Insert(v)
	}
	c.hold(v, 1)
}

func (c *Core) removeVolume(v *volume) {
	delete(c.volumes, v.ID)
	if v.kept() {
		c.keeps.Remove(v)
	}
	c.hold(v, -1)
}

// hold adds what a volume holds to its home, or subtracts it if n is -1.
func (c *Core) hold(v *volume, n int) {
	allocation := c.allocationOf(v.Ordinal)
	if allocation.host != nil {
		c.unplace(allocation.host)
		defer c.place(allocation.host)
	}
	allocation.Hold(n, v.Holds(), v.Role)
	if n > 0 {
		if allocation.volumes == nil {
			allocation.volumes = map[string]*volume{}
		}
		allocation.volumes[v.ID] = v
	} else {
		delete(allocation.volumes, v.ID)
		if allocation.Volumes == 0 {
			allocation.volumes, allocation.freed = nil, c.now
		}
	}
	c.dropAllocation(v.Ordinal)
}

// kept reports whether the time for which the volume is kept runs.
func (v *volume) kept() bool {
	return v.KeepFor != nil && !v.UnwantedSince.IsZero() && v.State != model.VolumeDestroying
}

// keptUntil returns when a kept volume is to be deleted.
func (v *volume) keptUntil() time.Time { return v.UnwantedSince.Add(*v.KeepFor) }

func compareKept(a, b *volume) int {
	return cmp.Or(a.keptUntil().Compare(b.keptUntil()), strings.Compare(a.ID, b.ID))
}

// requestsVolumes returns the reservation of an entry if it has not ended and requests
// volumes; otherwise nil.
func requestsVolumes(e *entry) *model.Reservation {
	if e == nil {
		return nil
	}
	r := e.record.(*model.Reservation)
	if r.Spec.Volume == nil || r.State.Terminal() {
		return nil
	}
	return r
}

// moveDemand counts for which worker indexes a version requests volumes.
func (c *Core) moveDemand(prev, next *entry) {
	before, after := requestsVolumes(prev), requestsVolumes(next)
	if after != nil {
		c.stage(stageOf(after.Key)).wanting[after.UID] = after
	} else if before != nil {
		delete(c.stage(stageOf(before.Key)).wanting, before.UID)
	}
	if before == nil && after == nil || before != nil && after != nil && before.Workers.Equal(after.Workers) &&
		before.Unwanted.Equal(after.Unwanted) {
		return
	}
	c.demand(before, -1)
	c.demand(after, 1)
}

func (c *Core) demand(r *model.Reservation, n int) {
	if r == nil {
		return
	}
	key := stageOf(r.Key)
	s := c.stage(key)
	for worker := range r.Workers.All() {
		if r.Unwanted.Has(worker) {
			continue
		}
		if s.demand[worker.Index] += n; s.demand[worker.Index] == 0 {
			delete(s.demand, worker.Index)
		}
		c.markVolumes(key, worker.Index/model.VolumeChunkSize)
	}
	c.dropStage(key)
}

// moveHolders records which workers on volumes are leased. Like moveUse, it skips workers
// that are in both chunks.
func (c *Core) moveHolders(prev, next *model.LeaseChunk) {
	if !prev.OnVolumes && !next.OnVolumes {
		return
	}
	kept := 0
	for _, p := range prev.Workers {
		if kept < len(next.Workers) && next.Workers[kept] == p {
			kept++
			continue
		}
		c.moveHolder(prev, p, false)
	}
	for _, p := range next.Workers[kept:] {
		c.moveHolder(next, p, true)
	}
}

func (c *Core) moveHolder(chunk *model.LeaseChunk, p model.Placement, leased bool) {
	key := stageOf(chunk.Key)
	s := c.stage(key)
	index := p.Worker.Index
	h := holder{chunk.UID, p.Worker.Number, p.Ordinal}
	list := s.holders[index]
	switch at, found := slices.BinarySearchFunc(list, h, compareHolders); {
	case leased && !found:
		s.holders[index] = slices.Insert(list, at, h)
	case !leased && found:
		s.holders[index] = slices.Delete(list, at, at+1)
	}
	if len(s.holders[index]) == 0 {
		delete(s.holders, index)
	}
	c.markVolumes(key, index/model.VolumeChunkSize)
	c.dropStage(key)
}

// volumeWorker is a worker on a volume whose lease ends. unused reports whether it certainly
// never ran. Otherwise incarnation is the last incarnation of its executor that had it, or 0
// if that is unknown. lost is set if it ended because its executor was LOST.
type volumeWorker struct {
	stage       model.Key
	index       int32
	ordinal     uint32
	unused      bool
	incarnation int64
	lost        bool
}

// volumeWorkers returns the workers on volumes of a lease that was never dispatched.
func (l *lease) volumeWorkers() (list []volumeWorker) {
	for _, chunk := range l.inOrder() {
		if !chunk.OnVolumes {
			continue
		}
		for _, p := range chunk.Workers {
			list = append(list, volumeWorker{stage: stageOf(chunk.Key), index: p.Worker.Index, ordinal: p.Ordinal, unused: true})
		}
	}
	return list
}

// mayHaveRun reports whether an ended worker may have run, so that its volume may have data.
// A worker that its executor never acknowledged has not run, unless it is unknown what
// happened there.
func mayHaveRun(w model.TaskWorker) bool {
	return w.Incarnation != 0 || w.Sequence != 0 || w.State == model.WorkerLost && !w.NeverStarted ||
		w.Cleared != model.Interned{}
}

// leaveVolumes returns the chunks of volumes after workers on them have ended, for the
// effect that ends their lease. A PLANNED volume that was never used is destroyed: the next
// worker of its index may then try another executor. A PLANNED volume that may have been
// used must be in the lists of later incarnations of its home. Everything else that follows
// from the end of a worker is a duty; see settleVolumes.
func (c *Core) leaveVolumes(workers []volumeWorker) (puts []model.Record) {
	chunks := volumeEdits{Core: c}
	for _, w := range workers {
		s := c.stages[w.stage]
		if s == nil {
			continue
		}
		v := s.current(w.index)
		if v == nil || v.Ordinal != w.ordinal || v.State != model.VolumePlanned || v.Used {
			continue
		}
		next := *v
		if w.unused {
			c.becomes(&next, VolumeUnused)
		} else {
			next.Used, next.Incarnation = true, w.incarnation
			if h := c.home(v); h != nil && w.incarnation == 0 {
				next.Incarnation = h.Record.Incarnation
				if w.lost && !h.givenUp() {
					next.Incarnation-- // the executor has registered again since it was LOST
				}
			}
		}
		chunks.set(w.stage, next)
	}
	return chunks.effect().Puts
}

// volumeEdits collects changes of volumes by chunk, in the order of the first change.
type volumeEdits struct {
	*Core
	order  []model.Ref
	chunks map[model.Ref][]model.Volume
}

// list returns the volumes of a chunk with the changes so far, for a change.
func (e *volumeEdits) list(ref model.Ref) []model.Volume {
	list, edited := e.chunks[ref]
	if edited {
		return list
	}
	if e.chunks == nil {
		e.chunks = map[model.Ref][]model.Volume{}
	}
	e.order = append(e.order, ref)
	if s := e.stages[ref.Key]; s != nil {
		list = slices.Clone(volumesOf(s.chunks[ref.Chunk]))
	}
	return list
}

// set adds or replaces a volume.
func (e *volumeEdits) set(stage model.Key, v model.Volume) {
	ref := model.VolumeChunkRef(stage, v.Index)
	list := e.list(ref)
	at, found := findVolume(list, &v)
	if found {
		list[at] = v
	} else {
		list = slices.Insert(list, at, v)
	}
	e.chunks[ref] = list
}

// remove removes a volume.
func (e *volumeEdits) remove(stage model.Key, v *model.Volume) {
	ref := model.VolumeChunkRef(stage, v.Index)
	list := e.list(ref)
	if at, found := findVolume(list, v); found {
		list = slices.Delete(list, at, at+1)
	}
	e.chunks[ref] = list
}

func findVolume(list []model.Volume, v *model.Volume) (at int, found bool) {
	return slices.BinarySearchFunc(list, v, func(a model.Volume, b *model.Volume) int { return a.Compare(b) })
}

// effect returns the effect of the changes with its events. A chunk without volumes is
// deleted.
func (e *volumeEdits) effect() (effect model.Effect) {
	for _, ref := range e.order {
		var before []model.Volume
		if s := e.stages[ref.Key]; s != nil {
			before = volumesOf(s.chunks[ref.Chunk])
		}
		list := e.chunks[ref]
		if len(list) > 0 {
			effect.Puts = append(effect.Puts, &model.VolumeChunk{Job: ref.Key.Job, Stage: ref.Key.Stage, Chunk: ref.Chunk,
				Volumes: list})
		} else if len(before) > 0 {
			effect.Deletes = append(effect.Deletes, ref)
		}
		effect.Events = append(effect.Events, e.volumeEvents(ref.Key, before, list)...)
	}
	return effect
}
