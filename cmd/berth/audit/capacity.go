package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// executor is what an ordinal stands for, and what leases use of it.
type executor struct {
	record *model.Executor
	// recorded is the revision of the record, granted that of the newest lease
	// on it.
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
			a.violate(RulePlacement, "executor %s had ordinal %d and has %d", id, ordinal, record.Ordinal)
		}
	}
	if record == nil {
		return
	}
	e := a.executor(record.Ordinal)
	if e.record != nil && e.record.ID != id {
		a.violate(RulePlacement, "ordinal %d stands for executors %s and %s", record.Ordinal, e.record.ID, id)
	}
	e.record, e.recorded = record, mod
	a.ordinals[id] = record.Ordinal
}

func (a *Auditor) executor(ordinal uint32) *executor {
	e := a.executors[ordinal]
	if e == nil {
		e = &executor{usage: usage{used: resource.Vector{}}}
		a.executors[ordinal] = e
	}
	return e
}

// use adds n workers of a lease to what is used of an executor.
func (a *Auditor) use(ordinal uint32, n int64, chunk *model.LeaseChunk) {
	e := a.executor(ordinal)
	if _, noted := a.step.used[ordinal]; !noted {
		a.step.used[ordinal] = e.clone()
	}
	for name, amount := range chunk.Each {
		e.used[name] += n * amount
	}
	if chunk.Role != "" {
		e.hold(constraint.Fold(chunk.Role), n, chunk.Each)
	}
	e.granted = max(e.granted, chunk.Create)
}

// checkCapacity looks at the executors whose leases this revision changed. More
// used than there is may be left over from before a record shrank; that it came
// to be more, or became more still, is the violation.
func (a *Auditor) checkCapacity() {
	if len(a.step.used) == 0 {
		return
	}
	for _, ordinal := range slices.Sorted(maps.Keys(a.step.used)) {
		before, e := a.step.used[ordinal], a.executors[ordinal]
		a.checkShares(ordinal, e, before)
		capacity := e.capacity()
		if capacity.Fits(e.used) {
			continue
		}
		for _, name := range e.used.Names() {
			if used := e.used[name]; used > capacity[name] && used > before.used[name] {
				a.violate(RuleCapacity, "%s: %s used %d of %d", a.name(ordinal), name, used, capacity[name])
			}
		}
	}
}

// name is how an executor is called in messages.
func (a *Auditor) name(ordinal uint32) string {
	if e := a.executors[ordinal]; e != nil && e.record != nil {
		return "executor " + e.record.ID
	}
	return "unknown executor"
}
