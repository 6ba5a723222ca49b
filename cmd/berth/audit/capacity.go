package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// executor is the executor with an ordinal, and the amounts that leases and volumes use of
// it.
type executor struct {
	record *model.Executor
	// recorded is the revision of the record. granted is the revision of the newest lease
	// on the executor.
	recorded, granted int64
	usage
}

func (e *executor) capacity() resource.Vector {
	if e.record == nil {
		return nil
	}
	return e.record.Resources
}

func (a *Auditor) setExecutor(id string, record *model.Executor, mod int64) {
	if ordinal, known := a.ordinals[id]; known && (record == nil || record.Ordinal != ordinal) {
		a.executor(ordinal).record = nil
		delete(a.ordinals, id)
		if record != nil {
			a.violate(RulePlacement, "executor %s changed its ordinal from %d to %d", id, ordinal, record.Ordinal)
		}
	}
	if record == nil {
		return
	}
	e := a.executor(record.Ordinal)
	if e.record != nil && e.record.ID != id {
		a.violate(RulePlacement, "ordinal %d belongs to executors %s and %s", record.Ordinal, e.record.ID, id)
	}
	if e.record != nil && e.record.Lost && !record.Lost {
		a.step.returned[record.Ordinal] = true
	}
	e.record, e.recorded = record, mod
	a.ordinals[id] = record.Ordinal
}

func (a *Auditor) executor(ordinal uint32) *executor {
	e := a.executors[ordinal]
	if e == nil {
		e = &executor{usage: usage{used: resource.Vector{}, byRole: map[string]resource.Vector{}}}
		a.executors[ordinal] = e
	}
	return e
}

// use adds n workers of a lease to the use of an executor, or subtracts them if n is
// negative.
func (a *Auditor) use(ordinal uint32, n int64, chunk *model.LeaseChunk) {
	each := chunk.Each
	if chunk.OnVolumes {
		each = nil // the volumes hold what the workers use
	}
	e := a.add(ordinal, n, chunk.Role, each)
	e.granted = max(e.granted, chunk.Create)
}

// add adds n times the amounts to the use of an executor.
func (a *Auditor) add(ordinal uint32, n int64, role string, amounts resource.Vector) *executor {
	e := a.executor(ordinal)
	if _, saved := a.step.used[ordinal]; !saved {
		a.step.used[ordinal] = e.usage
	}
	e.usage = e.plus(n, role, amounts)
	return e
}

// checkCapacity checks the executors whose leases or volumes this revision changed. The use may exceed
// the capacity if the executor's record shrank earlier. In that case the use must not grow.
func (a *Auditor) checkCapacity() {
	for _, ordinal := range slices.Sorted(maps.Keys(a.step.used)) {
		before, e := a.step.used[ordinal], a.executors[ordinal]
		a.checkShares(ordinal, e, before)
		capacity := e.capacity()
		if capacity.Fits(e.used) {
			continue
		}
		for _, name := range e.used.Names() {
			used := e.used[name] - a.step.imposed[ordinal][name]
			if used > capacity[name] && used > before.used[name] {
				a.violate(RuleCapacity, "%s: %s used %d of %d", a.name(ordinal), name, used, capacity[name])
			}
		}
	}
}

// name returns the name of an executor for messages.
func (a *Auditor) name(ordinal uint32) string {
	if e := a.executors[ordinal]; e != nil && e.record != nil {
		return "executor " + e.record.ID
	}
	return "unknown executor"
}
