package policy

import (
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// namesPerStep bounds the executors that the requests name which end in one step. To open
// an executor takes some microseconds.
const namesPerStep = 2048

// EndExpired processes at most limit requests that are due. It ends requests that have
// expired, and deletes the records of requests that ended long ago.
func (r *Requests) EndExpired(now time.Time, limit int) {
	names := 0
	for range limit {
		d, ok := r.due.First()
		if !ok || dueAt(d).After(now) || names >= namesPerStep {
			return
		}
		if d.InForce() {
			names += len(d.IDs)
			r.release(now, d, d.IDs)
		} else {
			r.owner.Decide(model.Effect{Deletes: []model.Ref{d.Ref()}})
		}
	}
}

// EndDrains ends the drains of an executor.
func (r *Requests) EndDrains(now time.Time, id string) {
	for _, request := range slices.Clone(r.named[id]) {
		if d := r.byID[request]; d.Drain {
			r.release(now, d, d.IDs)
		}
	}
}

// release removes IDs from a request. It ends the request if no ID is left or if the
// request selects by attributes. If no other drain applies to an executor, the executor
// stops draining in the same effect. If others do, it has the shortest time that they give.
func (r *Requests) release(now time.Time, d *model.Disable, ids []string) {
	released := make(map[string]bool, len(ids))
	for _, id := range ids {
		released[id] = true
	}
	next := *d
	next.IDs = slices.DeleteFunc(slices.Clone(d.IDs), func(id string) bool { return released[id] })
	if len(next.IDs) == 0 {
		// An ended request keeps its IDs.
		next.IDs, next.EndedAt = d.IDs, now
	}
	effect := model.Effect{Puts: []model.Record{&next}}
	for _, id := range d.IDs {
		e := r.owner.Registered(id)
		if d.Drain && e != nil && e.Record.Draining && released[id] {
			draining, grace := r.drained(id, d.ID)
			effect.Puts = append(effect.Puts, withDrain(e, draining, grace)...)
		}
	}
	r.owner.Decide(effect)
}
