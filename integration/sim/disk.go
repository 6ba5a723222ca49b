package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/executor-state/inventory"
)

// disk is the part of a host's disk that has volumes. It outlives the agent, and may be
// wiped or put into another host.
type disk struct {
	// volumes has the IDs of the directories, and written the workers that have started on each.
	volumes map[string]bool
	written map[string][]string
	// destroyed has the tombstones of volumes.
	destroyed map[string]bool
	// wiped is set if the directories were deleted.
	wiped bool
}

func newDisk() *disk {
	return &disk{volumes: map[string]bool{}, written: map[string][]string{}, destroyed: map[string]bool{}}
}

// volumes is what the world knows about all volumes, by ID.
type volumes struct {
	enabled bool
	// owners has the worker index of each volume on which a worker ever started.
	owners map[string]volumeOwner
	// givenUp has the volumes whose index may start elsewhere: their records were ABANDONED or
	// DESTROYING, or deleted. requested has those whose deletion a client requested, abandoned
	// those that a client abandoned, and intended those that may be destroyed because of a
	// record.
	givenUp, requested, abandoned, intended map[string]bool
	// records has the last version of each record.
	records map[model.Ref]*model.VolumeChunk
	// moved has the volumes that came to an executor with a disk, or again after they were LOST.
	moved   map[string]bool
	renames int
}

type volumeOwner struct {
	job, stage string
	index      int32
}

func newVolumes() volumes {
	return volumes{owners: map[string]volumeOwner{}, givenUp: map[string]bool{}, requested: map[string]bool{},
		abandoned: map[string]bool{}, intended: map[string]bool{}, moved: map[string]bool{},
		records: map[model.Ref]*model.VolumeChunk{}}
}

// foreign is a directory among the volumes of a host that Berth did not create.
const foreign = "foreign"

// observeVolumes processes a change of a record of volumes. It checks what an audit of the
// records alone cannot: whether a worker used a volume that is destroyed because none did,
// whether the home of a volume that moves is LOST, and whether anybody gave up a volume whose
// index starts elsewhere.
func (w *World) observeVolumes(ref model.Ref, c store.Change) {
	before, after := w.volumes.records[ref], (*model.VolumeChunk)(nil)
	if record := w.decode(ref, c); record != nil {
		after = record.(*model.VolumeChunk)
	}
	w.volumes.records[ref] = after
	now := map[string]*model.Volume{}
	if after != nil {
		for i := range after.Volumes {
			now[after.Volumes[i].ID] = &after.Volumes[i]
		}
	}
	if before == nil {
		before = &model.VolumeChunk{}
	}
	for i := range before.Volumes {
		was := &before.Volumes[i]
		v := now[was.ID]
		if v == nil || !v.State.Current() {
			w.volumes.givenUp[was.ID] = true
			w.checkGivenUp(ref.Key, was, v, c.Mod)
		}
		if v == nil {
			continue
		}
		if v.Ordinal != was.Ordinal || was.State == model.VolumeLost && v.State == model.VolumeReady {
			w.volumes.moved[v.ID] = true
		}
		if v.Delete {
			w.checkRequested(v.ID)
		}
		if v.State == model.VolumeDestroying && was.State != model.VolumeDestroying {
			_, used := w.volumes.owners[v.ID]
			if used && !v.Delete && v.KeepFor == nil {
				w.fail("volume %s is to be destroyed although a worker used it and nobody requested it", v.ID)
			}
			w.volumes.intended[v.ID] = true
		}
		if v.Ordinal != was.Ordinal {
			w.checkMove(was, v, c.Mod)
		}
	}
}

// checkGivenUp checks that a client abandoned a volume which is no longer that of its index,
// or requested its deletion, or that the index starts elsewhere because its reservation says
// REPLACE and the volume or its home is LOST.
func (w *World) checkGivenUp(stage model.Key, was, now *model.Volume, revision int64) {
	switch {
	case w.directed || !was.State.Current() || w.volumes.abandoned[was.ID]:
		return
	case now == nil && was.State == model.VolumeLost && (w.volumes.requested[was.ID] || was.KeepFor != nil):
		return
	case now != nil && now.State == model.VolumeDestroying:
		return
	}
	if was.State != model.VolumeLost && !w.lostHome(was, revision) {
		w.fail("volume %s is given up although neither it nor its executor is LOST", was.ID)
	}
	uids := map[string]bool{}
	for _, record := range w.records(model.KindLeaseChunk) {
		chunk := record.(*model.LeaseChunk)
		for _, p := range chunk.Workers {
			if chunk.Key.Job == stage.Job && chunk.Key.Stage == stage.Stage && p.Worker.Index == was.Index {
				uids[chunk.UID] = true
			}
		}
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if uids[r.UID] && r.Spec.Volume != nil && r.Spec.Volume.OnLoss == model.OnVolumeLossReplace {
			return
		}
	}
	w.fail("volume %s is given up although nobody abandoned it and no reservation replaces it", was.ID)
}

// lostHome reports whether the home of a volume is LOST, or was until a revision. Group commit
// may join a change of the volume and the return of its home.
func (w *World) lostHome(v *model.Volume, revision int64) bool {
	return !slices.ContainsFunc(w.records(model.KindExecutor), func(record model.Record) bool {
		e := record.(*model.Executor)
		p := w.presence(e.ID)
		return e.Ordinal == v.Ordinal && !p.lost && p.returned != revision
	})
}

// checkRequested checks that a client requested the deletion of a volume.
func (w *World) checkRequested(id string) {
	if !w.directed && !w.volumes.requested[id] {
		w.fail("volume %s is to be deleted although nobody requested it", id)
	}
}

// checkMove checks that a volume moves only from a LOST executor.
func (w *World) checkMove(was, now *model.Volume, revision int64) {
	w.logf("volume %s moves from executor #%d to #%d", was.ID, was.Ordinal, now.Ordinal)
	if !w.lostHome(was, revision) {
		w.fail("volume %s moves although its executor #%d is not LOST", was.ID, was.Ordinal)
	}
}

// useVolume records and checks the start of a worker on a volume. The worker must not start
// on an empty directory while an earlier volume of its index has data that nobody gave up.
func (a *agent) useVolume(k instance, id string) {
	w := a.w
	owner := volumeOwner{k.worker.Job, k.worker.Stage, k.worker.ID.Index}
	if !a.disk.volumes[id] {
		w.logf("%s: makes volume %s for %s", a.id, id, k.worker)
		a.disk.volumes[id] = true
		a.disk.written[id] = nil
		a.decisions.HasVolume(id, true)
		w.check()
		for _, other := range slices.Sorted(maps.Keys(w.volumes.owners)) {
			if w.volumes.owners[other] == owner && !w.volumes.givenUp[other] {
				w.fail("%s at epoch %d starts on the empty volume %s, but volume %s has its data", k.worker, k.epoch, id, other)
			}
		}
	}
	if first, used := w.volumes.owners[id]; used && first != owner {
		w.fail("%s starts on volume %s of index %d of %s/%s", k.worker, id, first.index, first.job, first.stage)
	}
	for _, b := range w.agents {
		for _, worker := range b.workers {
			if worker.volume == id && !worker.state.Terminal() {
				w.fail("%s starts on volume %s, but %s runs on it on %s", k.worker, id, worker.worker, b.id)
			}
		}
	}
	w.volumes.owners[id] = owner
	a.disk.written[id] = append(a.disk.written[id], k.worker.ID.String())
}

// drop handles a request to destroy volumes.
func (a *agent) drop(d dispatch.DropVolumes) any {
	if err := a.permit(d.Nonce); err != nil {
		return dispatch.Refused{Reason: fault.Of(err).Reason}
	}
	fresh, err := a.decisions.Drop(d.Term, d.Incarnation, d.IDs, a.w.now)
	if err != nil {
		return dispatch.Refused{Reason: fault.Of(err).Reason}
	}
	for _, id := range fresh {
		a.disk.destroyed[id] = true
	}
	a.remove(fresh)
	return dispatch.Dropping{}
}

// remove removes the directories of destroyed volumes after a while, unless the agent's
// process ends before.
func (a *agent) remove(ids []string) {
	for _, id := range ids {
		process := a.processCount
		a.w.later(time.Duration(a.w.rng.IntN(2000))*time.Millisecond, func() {
			if a.processCount != process || a.decisions == nil {
				return
			}
			a.w.check()
			if a.disk.volumes[id] && !a.w.volumes.intended[id] {
				a.w.fail("%s destroys volume %s without a stored request", a.id, id)
			}
			for _, worker := range a.workers {
				if worker.volume == id && !worker.state.Terminal() {
					a.w.fail("%s destroys volume %s while %s runs on it", a.id, id, worker.worker)
				}
			}
			a.w.logf("%s: volume %s is destroyed", a.id, id)
			delete(a.disk.volumes, id)
			a.decisions.Removed(id)
		})
	}
}

// recoverVolumes restores what a new process knows about the volumes on the disk.
func (a *agent) recoverVolumes() {
	for _, id := range slices.Sorted(maps.Keys(a.disk.volumes)) {
		a.decisions.HasVolume(id, true)
	}
	for _, id := range slices.Sorted(maps.Keys(a.disk.destroyed)) {
		a.decisions.BuryVolume(id, a.w.now)
	}
	a.remove(a.decisions.Resume())
}

// mustList reports whether the agent must send its list of volumes: the list has changed, or
// the leader of executor-state has none.
func (a *agent) mustList() bool {
	return a.w.volumes.enabled && a.cell == nil && a.incarnation != 0 && !a.listing && !a.superseded &&
		(a.decisions.ListDue() || a.listedTerm < a.w.leaderTerm(model.ServiceExecutorState))
}

// list sends the list of volumes. An agent sends it on its stream, and the replica repeats it
// to each new leader.
func (a *agent) list() {
	sequence, ids, gone := a.decisions.List()
	a.w.logf("%s: list %d of volumes %v, gone %v", a.id, sequence, ids, gone)
	a.listing = true
	a.lists++
	number := a.lists
	request := inventory.ReportVolumes{Executor: a.id, Incarnation: a.incarnation, Sequence: sequence, IDs: ids,
		Gone: gone}
	a.call("list", model.ServiceExecutorState, request, func(value any, err error) {
		if number != a.lists {
			return
		}
		a.listing = false
		if err == nil {
			a.listedTerm = value.(inventory.VolumesReported).Term
			a.decisions.Received(sequence)
		}
	})
	a.w.later(4*time.Second, func() {
		if number == a.lists && a.listing {
			a.listing, a.listedTerm = false, 0 // the list is sent again
		}
	})
}

// reboot ends the agent's process and all workers on its host.
func (a *agent) reboot() {
	a.crash()
	for _, k := range a.names {
		a.end(a.workers[k], model.WorkerFailed, nil)
	}
}

// diskFault wipes the volumes of a host, or puts its disk into another host.
func (w *World) diskFault() {
	a := w.agents[w.rng.IntN(len(w.agents))]
	if a.exited || a.cell != nil {
		return
	}
	if w.rng.IntN(3) > 0 || w.volumes.renames == 2 {
		w.logf("%s: reboots with an empty directory of volumes", a.id)
		a.reboot()
		a.disk.volumes, a.disk.wiped = map[string]bool{}, true
		return
	}
	w.volumes.renames++
	a.reboot()
	a.exited = true
	host := a.host
	host.ID = fmt.Sprintf("%s-renamed-%d", a.id, w.volumes.renames)
	b := newAgent(w, host)
	b.disk, b.stopped = a.disk, maps.Clone(a.stopped)
	a.disk = newDisk()
	w.logf("%s: its disk is now in %s", a.id, b.id)
	w.agents = append(w.agents, b)
}

// drawVolume draws the request for a volume.
func (w *World) drawVolume(s *model.Spec) {
	if w.rng.IntN(2) == 0 {
		return
	}
	s.Volume = &model.VolumeRequest{Resource: resource.Slots, OnLoss: model.OnVolumeLoss(w.rng.IntN(2))}
	if w.rng.IntN(3) == 0 {
		keep := time.Duration(w.rng.IntN(40)) * time.Second
		s.Volume.KeepFor = &keep
	}
}

// changeVolumes deletes or abandons some volumes, as an operator does.
func (c *clients) changeVolumes() {
	var ids []string
	for _, record := range c.w.records(model.KindVolumeChunk) {
		for _, v := range record.(*model.VolumeChunk).Volumes {
			if c.w.rng.IntN(3) == 0 {
				ids = append(ids, v.ID)
			}
		}
	}
	var request any = inventory.AbandonVolumes{IDs: ids}
	if c.w.rng.IntN(3) == 0 {
		// Also if it is refused: an earlier copy of the request may have been carried out.
		for _, id := range ids {
			c.w.volumes.abandoned[id] = true
		}
	} else {
		remove := inventory.DeleteVolumes{IDs: ids}
		if c.w.rng.IntN(4) == 0 {
			remove.IDs, remove.Executor = slices.Concat(ids, []string{foreign}), c.w.agents[c.w.rng.IntN(len(c.w.agents))].id
		}
		request = remove
		for _, id := range remove.IDs {
			c.w.volumes.requested[id] = true
		}
	}
	if len(ids) == 0 {
		return
	}
	always := func() bool { return true }
	c.w.call("change of volumes", model.ServiceExecutorState, always, request, func(_ any, err error) {
		if err != nil && !fault.Is(err, fault.ReasonVolumeInUse) && !fault.Is(err, fault.ReasonVolumeAway) &&
			fault.Of(err).Kind != fault.NotFound &&
			!strings.Contains(fmt.Sprint(err), "delete it without the ID") {
			c.w.fail("change of volumes: %v", err)
		}
	})
}

// heldVolumes returns the stages and indexes of the workers of leases that wait for a bind.
func (w *World) heldVolumes() map[model.Key]map[int32]bool {
	held := map[string]bool{}
	for _, record := range w.records(model.KindReservation) {
		if r := record.(*model.Reservation); r.State == model.Queued && r.Holds() {
			held[r.UID] = true
		}
	}
	volumes := map[model.Key]map[int32]bool{}
	for _, record := range w.records(model.KindLeaseChunk) {
		chunk := record.(*model.LeaseChunk)
		if !held[chunk.UID] {
			continue
		}
		stage := model.Key{Job: chunk.Key.Job, Stage: chunk.Key.Stage}
		if volumes[stage] == nil {
			volumes[stage] = map[int32]bool{}
		}
		for _, p := range chunk.Workers {
			volumes[stage][p.Worker.Index] = true
		}
	}
	return volumes
}

// checkVolumes checks at rest that no volume waits for an executor that is present, and that
// each volume is where its record says. Until a lease on a volume ends, its record stays as it
// is: its worker cannot start on a volume that is missing, and then ends. But the workers of a
// lease that waits for a bind do not start.
func (w *World) checkVolumes() {
	agents := map[uint32]*agent{}
	for _, record := range w.records(model.KindExecutor) {
		e := record.(*model.Executor)
		for a := range w.registeredAgents() {
			if a.id == e.ID && !a.exited && !e.Lost {
				agents[e.Ordinal] = a
			}
		}
	}
	held := w.heldVolumes()
	for _, record := range w.records(model.KindVolumeChunk) {
		chunk := record.(*model.VolumeChunk)
		for _, v := range chunk.Volumes {
			a := agents[v.Ordinal]
			if a == nil {
				continue // its home is absent
			}
			missing := !a.disk.volumes[v.ID] && !held[model.Key{Job: chunk.Job, Stage: chunk.Stage}][v.Index]
			switch {
			case v.State == model.VolumeDestroying:
				w.fail("at rest: volume %s is not destroyed on %s", v.ID, a.id)
			case v.State == model.VolumePlanned && v.Used && missing:
				w.fail("at rest: no worker can start on volume %s, which %s does not have", v.ID, a.id)
			case v.State == model.VolumeReady && missing:
				w.fail("at rest: volume %s is READY on %s, which does not have it", v.ID, a.id)
			case v.State == model.VolumeLost && a.disk.volumes[v.ID]:
				w.fail("at rest: volume %s is LOST on %s, which has it", v.ID, a.id)
			}
		}
	}
}
