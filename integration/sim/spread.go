package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// gangs has the chunks of leases by reservation.
type gangs map[model.Key]map[model.Ref]*model.LeaseChunk

// observeLease processes a change of a lease. It checks a new one together with the workers of the
// other versions of its reservation.
func (w *World) observeLease(ref model.Ref, c store.Change) {
	if c.Deleted {
		for _, chunks := range w.gangs {
			delete(chunks, ref)
		}
		return
	}
	chunk := w.decode(ref, c).(*model.LeaseChunk)
	if w.gangs[chunk.Key] == nil {
		w.gangs[chunk.Key] = map[model.Ref]*model.LeaseChunk{}
	}
	_, known := w.gangs[chunk.Key][ref]
	w.gangs[chunk.Key][ref] = chunk
	if known {
		return
	}
	version := model.Ref{Kind: model.KindReservation, Key: chunk.Key, ID: chunk.UID}
	if r, _ := w.record(version).(*model.Reservation); r != nil && r.NotBefore.After(w.now) {
		w.fail("%s (%s) is granted before %v, at which it enters its queue", r.Key, r.UID, r.NotBefore)
	}
	w.checkSpread(chunk.Key)
}

// placed is a worker that runs, or will, of a version that wants it.
type placed struct {
	version *model.Reservation
	id      model.WorkerID
	host    *model.Executor
}

// placedWorkers returns the leased workers of a reservation that are wanted and have not been
// stopped.
func (w *World) placedWorkers(key model.Key) (list []placed) {
	hosts := map[uint32]*model.Executor{}
	for _, record := range w.records(model.KindExecutor) {
		e := record.(*model.Executor)
		hosts[e.Ordinal] = e
	}
	for _, chunk := range w.gangs[key] {
		r, _ := w.record(model.Ref{Kind: model.KindReservation, Key: key, ID: chunk.UID}).(*model.Reservation)
		if r == nil || r.State != model.Queued && r.State != model.Active {
			continue
		}
		task, _ := w.record(model.Ref{Kind: model.KindTaskChunk, ID: chunk.UID}).(*model.TaskChunk)
		for _, p := range chunk.Workers {
			live := hosts[p.Ordinal] != nil && !hosts[p.Ordinal].Lost && !r.Unwanted.Has(p.Worker)
			for i := range size(task) {
				live = live && (task.Workers[i].ID != p.Worker || task.Workers[i].State < model.WorkerEvict)
			}
			if live {
				list = append(list, placed{r, p.Worker, hosts[p.Ordinal]})
			}
		}
	}
	return list
}

func size(chunk *model.TaskChunk) int {
	if chunk == nil {
		return 0
	}
	return len(chunk.Workers)
}

// record returns the stored record of a Ref, or nil.
func (w *World) record(ref model.Ref) model.Record {
	w.read()
	value, present := w.stored.kinds[ref.Kind][w.space.Key(ref)]
	if !present {
		return nil
	}
	return w.decode(ref, store.Change{KV: value.kv})
}

// checkSpread checks that spread and sameShape hold for all workers of a reservation, over all its
// versions, if all versions with workers have the same. A volume decides where its worker is, and
// a cell where its workers are.
func (w *World) checkSpread(key model.Key) {
	workers := w.placedWorkers(key)
	domains, shapes := map[string]int{}, map[string]bool{}
	for _, p := range workers {
		s, first := p.version.Spec, workers[0].version.Spec
		if s.Volume != nil || s.Constraints.Cells || s.Constraints.Spread != first.Constraints.Spread ||
			s.Constraints.SameShape != first.Constraints.SameShape {
			return
		}
		domain := p.host.ID
		if !s.Constraints.Spread.Single() {
			domain = p.host.Attributes[s.Constraints.Spread.By]
		}
		domains[domain]++
		shapes[constraint.Fold(p.host.SKU)+" "+p.host.Resources.Canonical()] = true
	}
	if len(workers) == 0 {
		return
	}
	spread := workers[0].version.Spec.Constraints.Spread
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		if n := domains[domain]; spread.Max > 0 && n > int(spread.Max) {
			w.fail("%s has %d workers on %s %s, and its spread allows %d: %s", key, n, spread.By, domain, spread.Max,
				placements(workers))
		}
	}
	if workers[0].version.Spec.Constraints.SameShape && len(shapes) > 1 {
		w.fail("%s has workers on %d shapes, and must be on one: %s", key, len(shapes), placements(workers))
	}
}

// placements describes where workers are.
func placements(workers []placed) string {
	var parts []string
	for _, p := range workers {
		parts = append(parts, fmt.Sprintf("%s of %s on %s", p.id, p.version.UID, p.host.ID))
	}
	return strings.Join(parts, ", ")
}
