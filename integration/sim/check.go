package sim

import (
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// starts maps each started (worker, epoch) to its host.
type starts map[instance]string

// promise is the confirmation of a host that it has stopped a worker and will not start it.
type promise struct {
	host string
	instance
}

// promises records the confirmation of a stop by a host.
func (w *World) promises(a *agent, k instance) { w.promised[promise{a.id, k}] = true }

// supersedes checks that a host ends a worker only for a start request of the same worker
// with a higher epoch.
func (w *World) supersedes(a *agent, k instance, old int64) {
	if old > k.epoch {
		w.fail("%s at epoch %d is ended on %s for a request of epoch %d, which is over", k.worker, old, a.id, k.epoch)
	}
}

// started records and checks the start of a worker on a host.
func (w *World) started(a *agent, k instance) {
	if first, ok := w.starts[k]; ok {
		w.fail("%s at epoch %d is started on %s, but was started on %s already", k.worker, k.epoch, a.id, first)
	}
	if w.promised[promise{a.id, k}] {
		w.fail("%s at epoch %d is started on %s, which had confirmed its stop", k.worker, k.epoch, a.id)
	}
	// Lost and orphaned workers count too. A volume that came with a disk holds what its worker
	// uses even if the executor is full.
	running := a.living()
	for _, k := range a.names {
		if worker := a.workers[k]; w.volumes.moved[worker.volume] && !worker.state.Terminal() {
			running--
		}
	}
	if a.cell != nil {
		a.cell.checkStart(k, a.workers[k].uid)
	} else if slots := int(a.host.Resources["slots"]); running > slots {
		w.fail("%s runs %d workers in %d slots", a.id, running, slots)
	}
	w.starts[k] = a.id
	w.logf("%s: starts %s at epoch %d", a.id, k.worker, k.epoch)
}

// stored is the content of the store at a revision, by kind and key.
type stored struct {
	revision int64
	kinds    map[model.Kind]map[string]*storedValue
}

type storedValue struct {
	ref model.Ref
	kv  store.KV
	// record is the decoded value; nil until a check needs it.
	record model.Record
}

// since returns the revisions of the store after the given revision.
func (w *World) since(revision int64) []store.Revision {
	history := w.store.History()
	// The history is sorted by revision, and the wanted revisions are at its end.
	at := len(history)
	for at > 0 && history[at-1].Revision > revision {
		at--
	}
	return history[at:]
}

// read updates w.stored to the current revision of the store.
func (w *World) read() {
	for _, r := range w.since(w.stored.revision) {
		w.stored.revision = r.Revision
		for _, c := range r.Changes {
			ref, ok := w.space.Parse(c.Key)
			if !ok {
				continue
			}
			values := w.stored.kinds[ref.Kind]
			if values == nil {
				values = map[string]*storedValue{}
				w.stored.kinds[ref.Kind] = values
			}
			if c.Deleted {
				delete(values, c.Key)
			} else {
				values[c.Key] = &storedValue{ref: ref, kv: c.KV}
			}
		}
	}
}

// leads reports whether a leader's key in the store has the term.
func (w *World) leads(key string, term int64) bool {
	w.read()
	leader := w.stored.kinds[model.KindLeader][key]
	return leader != nil && leader.kv.Create == term
}

// records returns the stored records of a kind, in order of their keys. The caller must not change
// them. Each value is decoded once: to decode all of them for each check took a third of the time
// of a seed.
func (w *World) records(kind model.Kind) []model.Record {
	w.read()
	values := w.stored.kinds[kind]
	var records []model.Record
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		if v.record == nil {
			record, err := wire.Decode(v.ref, v.kv.Value, v.kv.Create, v.kv.Mod, v.kv.Lease)
			if err != nil {
				w.fail("%v", err)
				continue
			}
			v.record = record
		}
		records = append(records, v.record)
	}
	return records
}

// checkRest runs the checks that apply to a world at rest.
func (w *World) checkRest() {
	if v := w.audit.Quiesced(); len(v) > 0 {
		w.fail("at rest: %+v", v[0])
		return
	}
	w.clients.checkRest()
	w.checkEnds()
	w.checkProcesses()
	w.checkMembers()
	w.checkHeads()
	w.checkRequeues()
	w.checkLives()
	w.checkVolumes()
	w.checkHolds()
	w.checkCells()
	w.checkBinds()
	w.checkWhole()
	w.checkShown()
}

// checkRequeues checks that every worker that had to be requeued was requeued, or that
// another request for its reservation has the index: the reservation has a later worker of the
// index. Workers of other reservation names do not count. The exceptions are workers that are
// no longer wanted: they were cancelled, their index is above a lowered target, or their
// reservation ended, unless it completed only with all its workers.
func (w *World) checkRequeues() {
	versions := map[string]*model.Reservation{}
	targets := map[model.Key]int32{}
	type workerVersion struct {
		uid      string
		workerID model.WorkerID
	}
	var wanted []workerVersion
	// lowered are the workers above a lowered target while their version was unfinished.
	lowered := map[workerVersion]bool{}
	lower := func() {
		for _, a := range wanted {
			r := versions[a.uid]
			target := targets[model.Key{Job: r.Key.Job, Stage: r.Key.Stage}]
			if target > 0 && a.workerID.Index >= target && !r.State.Terminal() {
				lowered[a] = true
			}
		}
	}
	latest := map[model.Key]model.WorkerSet{}
	for _, r := range w.store.History() {
		for _, change := range r.Changes {
			ref, ok := w.space.Parse(change.Key)
			if !ok || change.Deleted {
				continue
			}
			switch ref.Kind {
			case model.KindReservation, model.KindStage, model.KindTaskChunk:
			default:
				continue
			}
			record, err := wire.Decode(ref, change.Value, change.Create, change.Mod, change.Lease)
			if err != nil {
				w.fail("%v", err)
				return
			}
			switch record := record.(type) {
			case *model.Stage:
				targets[ref.Key] = record.TargetSize
				lower()
			case *model.Reservation:
				versions[record.UID] = record
				latest[record.Key] = latest[record.Key].Raise(record.Workers)
			case *model.TaskChunk:
				for _, tw := range record.Workers {
					if a := (workerVersion{record.UID, tw.ID}); tw.Requeue && !slices.Contains(wanted, a) {
						wanted = append(wanted, a)
					}
				}
				lower()
			}
		}
	}
	for _, a := range wanted {
		r := versions[a.uid]
		number, _ := latest[r.Key].Number(a.workerID.Index)
		switch {
		case number > a.workerID.Number, r.Unwanted.Has(a.workerID), lowered[a]:
		case r.State.Terminal() && (r.State != model.Completed || r.Reason == fault.ReasonCompletesWith):
		default:
			w.fail("at rest: %s %s of %s (%s) is not requeued", r.Key, a.workerID, a.uid, r.State)
		}
	}
}

// checkEnds checks that at rest no reservation is being cancelled, and that no ended task
// still exists.
func (w *World) checkEnds() {
	for _, record := range w.records(model.KindReservation) {
		if r := record.(*model.Reservation); r.State == model.Cancelling {
			w.fail("at rest: %s (%s) is still being cancelled", r.Key, r.UID)
		}
	}
	for _, record := range w.records(model.KindTaskHeader) {
		if h := record.(*model.TaskHeader); h.Ended {
			w.fail("at rest: the ended task %s of %s still exists", h.UID, h.Key)
		}
	}
}

// checkProcesses compares the workers on the hosts with the records.
func (w *World) checkProcesses() {
	ids := map[uint32]string{}
	for _, record := range w.records(model.KindExecutor) {
		e := record.(*model.Executor)
		ids[e.Ordinal] = e.ID
	}
	recorded := map[string]map[instance]bool{}
	headers := map[string]*model.TaskHeader{}
	for _, record := range w.records(model.KindTaskHeader) {
		h := record.(*model.TaskHeader)
		headers[h.UID] = h
	}
	for _, record := range w.records(model.KindTaskChunk) {
		chunk := record.(*model.TaskChunk)
		h := headers[chunk.UID]
		if h == nil {
			w.fail("at rest: task chunk %s/%d has no header", chunk.UID, chunk.Chunk)
			return
		}
		for _, tw := range chunk.Workers {
			if tw.State.Terminal() {
				continue
			}
			id := ids[tw.Ordinal]
			if recorded[id] == nil {
				recorded[id] = map[instance]bool{}
			}
			k := instance{model.Worker{Job: h.Key.Job, Stage: h.Key.Stage, ID: tw.ID}, h.Epoch}
			recorded[id][k] = true
			if tw.State != model.WorkerRunning {
				w.fail("at rest: %s is %s on %s", k.worker, tw.State, id)
			}
		}
	}
	registeredAgents := w.registeredAgents()
	for _, a := range w.agents {
		for _, k := range a.names {
			if !registeredAgents[a] {
				if !a.workers[k].state.Terminal() {
					w.fail("at rest: %s at epoch %d runs at %s, whose agent is not that of %s", k.worker, k.epoch, a.address, a.id)
				}
				continue
			}
			runs := !a.workers[k].state.Terminal()
			if runs != recorded[a.id][k] {
				w.fail("at rest: %s at epoch %d on %s: runs %v, recorded %v", k.worker, k.epoch, a.id, runs, recorded[a.id][k])
				return
			}
		}
		for k := range recorded[a.id] {
			if registeredAgents[a] && a.workers[k] == nil {
				w.fail("at rest: %s is recorded on %s, which does not have it", k.worker, a.id)
			}
		}
	}
}

// checkMembers checks that at rest the assigner lists every worker that runs as a member of
// its gang. Of an index that two versions run, it lists the higher number. An index that runs is placed,
// and one that is queued has neither ended nor been given up.
func (w *World) checkMembers() {
	keys, running := map[string]model.Key{}, map[model.Key]map[int32]int32{}
	for _, record := range w.records(model.KindTaskHeader) {
		h := record.(*model.TaskHeader)
		keys[h.UID] = h.Key
	}
	for _, record := range w.records(model.KindTaskChunk) {
		chunk := record.(*model.TaskChunk)
		numbers := running[keys[chunk.UID]]
		if numbers == nil {
			numbers = map[int32]int32{}
			running[keys[chunk.UID]] = numbers
		}
		for _, tw := range chunk.Workers {
			if tw.State == model.WorkerRunning {
				numbers[tw.ID.Index] = max(numbers[tw.ID.Index], tw.ID.Number)
			}
		}
	}
	for _, r := range w.replicas[model.ServiceAssigner] {
		n := r.(*node[*dispatch.Core])
		if !n.leads() {
			continue
		}
		for key, numbers := range running {
			members := n.driver.Core.Members(key)
			for index, number := range numbers {
				if !members.Has(model.WorkerID{Index: index, Number: number}) || members.Workers < len(numbers) {
					w.fail("at rest: worker %d.%d of %s runs and is not one of the members %+v", index, number, key, *members)
				}
				if has(members.Waiting, index) || has(members.Ended, index) || has(members.GaveUp, index) {
					w.fail("at rest: worker %d.%d of %s runs and is not placed according to %+v", index, number, key, *members)
				}
			}
		}
		for _, record := range w.records(model.KindReservation) {
			r := record.(*model.Reservation)
			for id := range r.Workers.Minus(r.Unwanted).All() {
				members := n.driver.Core.Members(r.Key)
				if r.State == model.Queued && (has(members.Ended, id.Index) || has(members.GaveUp, id.Index)) {
					w.fail("at rest: worker %s of %s is queued and does not wait according to %+v", id, r.Key, *members)
				}
			}
		}
	}
}

func has(indexes model.Indexes, index int32) bool {
	return slices.ContainsFunc(indexes, func(r model.IndexRange) bool { return r.First <= index && index <= r.Last })
}

// registeredAgents returns the agents that registered the executors last.
func (w *World) registeredAgents() map[*agent]bool {
	addresses := map[string]string{}
	for _, record := range w.records(model.KindExecutor) {
		e := record.(*model.Executor)
		addresses[e.ID] = e.Address
	}
	registeredAgents := map[*agent]bool{}
	for _, a := range w.agents {
		if addresses[a.id] == a.address {
			registeredAgents[a] = true
		}
	}
	return registeredAgents
}

// checkHeads checks that at rest no head of a queue fits on the free capacity.
func (w *World) checkHeads() {
	used := 0
	for _, record := range w.records(model.KindLeaseChunk) {
		if chunk := record.(*model.LeaseChunk); !chunk.OnVolumes && len(chunk.Each) > 0 { // not in a cell
			used += len(chunk.Workers)
		}
	}
	for _, record := range w.records(model.KindVolumeChunk) {
		for _, v := range record.(*model.VolumeChunk).Volumes {
			used += int(v.Holds()[resource.Slots])
		}
	}
	free := -used
	for a := range w.registeredAgents() {
		if a.exited {
			continue // its disk is in another host
		}
		free += int(a.host.Resources["slots"])
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.State == model.Queued && r.Spec.Volume == nil && !r.Spec.Constraints.Cells && r.Workers.Len() <= free &&
			len(r.Spec.Constraints.Attributes) == 0 && r.Spec.Constraints.Spread.Max == 0 && !r.Spec.Constraints.SameShape &&
			len(r.Spec.Constraints.Avoid)+len(r.Failed) == 0 && w.clients.isHead(r) {
			w.fail("at rest: %s is queued for %d executors while %d are free", r.Key, r.Workers.Len(), free)
		}
	}
}

// state decodes the state of a stored reservation.
func (w *World) state(ref model.Ref, value []byte) model.State {
	record, err := wire.Decode(ref, value, 1, 1, 0)
	if err != nil {
		w.fail("%v", err)
		return model.StateUnset
	}
	return record.(*model.Reservation).State
}
