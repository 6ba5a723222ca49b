package inventory

import (
	"strings"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// The functions in this file return the state in memory, including decisions that are not
// durable. The shell calls them between rounds, when all decisions are durable.

// ExecutorView is an executor as reported.
type ExecutorView struct {
	model.Executor
	// Pools lists the names of the executor's pools, in order.
	Pools []string
	State model.ExecutorState
	// StateSince is since when the executor has been in State, as far as this core saw.
	StateSince time.Time
	// Used is what leases and volumes use of the executor's resources. Workers is how many
	// workers leases have on it, and Volumes how many volumes have it as their home.
	Used             resource.Vector
	Workers, Volumes int
	// Disabled lists the requests that take the executor out of allocation, in order of ID.
	Disabled []*model.Disable
	// SkippedUntil is when matching stops skipping the executor, which fails starts; zero if
	// matching does not skip it.
	SkippedUntil time.Time
	// Leases lists the leases with workers on the executor, in order of UID and at most
	// maxLeases. Only Executor sets it.
	Leases []LeaseView
}

// LeaseView is a lease as reported with one of its executors.
type LeaseView struct {
	Key model.Key
	UID string
	// Workers is how many workers the lease has on the executor. Held reports whether the
	// reservation is HELD.
	Workers int
	Held    bool
}

// maxLeases bounds the leases in a view of an executor.
const maxLeases = 1000

func (c *Core) view(h *host) ExecutorView {
	v := ExecutorView{
		Executor: *h.Record, Pools: h.Class().Host().Pools,
		State: h.shown(), StateSince: h.stateSince(),
		Used: h.allocation.Used.Clone(), Workers: h.allocation.Workers, Volumes: h.allocation.Volumes,
		Disabled: c.requests.Of(&h.Executor),
	}
	if h.allocation.skips() {
		v.SkippedUntil = h.allocation.failing.until
	}
	return v
}

// Filter selects executors. A zero field selects all. SKU, Pool and Attributes are compared
// without regard to case. An executor must have all attributes.
type Filter struct {
	SKU, Pool  string
	State      model.ExecutorState
	Attributes map[string]string
}

// Executors returns at most limit executors with IDs greater than after, in order of ID,
// and reports whether there are more.
func (c *Core) Executors(f Filter, after string, limit int) (list []ExecutorView, more bool) {
	has := f.matcher()
	for h := range c.byID.From(hostAt(after)) {
		if h.ID != after && has(h) {
			if len(list) == limit {
				return list, true
			}
			list = append(list, c.view(h))
		}
	}
	return list, false
}

// CountExecutors returns the number of executors that a filter selects.
func (c *Core) CountExecutors(f Filter) (n int) {
	if f.SKU == "" && f.Pool == "" && f.State == model.ExecutorUnset && len(f.Attributes) == 0 {
		return c.byID.Len()
	}
	has := f.matcher()
	for _, h := range c.hosts {
		if has(h) {
			n++
		}
	}
	return n
}

// matcher returns a function that reports whether the filter selects an executor.
func (f Filter) matcher() func(*host) bool {
	attributes := match.AttributesOf(f.Attributes)
	return func(h *host) bool {
		return (f.State == model.ExecutorUnset || f.State == h.shown()) &&
			(f.SKU == "" || strings.EqualFold(f.SKU, h.Record.SKU)) &&
			(f.Pool == "" || h.Class().Host().InPool(f.Pool)) && h.Class().HasAll(attributes)
	}
}

// Executor returns the executor with an ID and its leases; false if there is none.
func (c *Core) Executor(id string) (ExecutorView, bool) {
	h := c.hosts[id]
	if h == nil {
		return ExecutorView{}, false
	}
	v := c.view(h)
	for _, p := range h.allocation.placements[:min(len(h.allocation.placements), maxLeases)] {
		r := recordOf[*model.Reservation](c.reservations[p.uid])
		v.Leases = append(v.Leases, LeaseView{
			Key: c.leases[p.uid].key(), UID: p.uid, Workers: p.workers,
			Held: r != nil && r.State == model.Queued && r.Holds() && !c.dispatched(p.uid),
		})
	}
	return v, true
}

// Address returns where the agent of the executor with an ordinal accepts requests. It
// also returns the executor's ID and incarnation.
func (c *Core) Address(ordinal uint32) (id, address string, incarnation int64, ok bool) {
	allocation := c.allocations[ordinal]
	if allocation == nil || allocation.host == nil {
		return "", "", 0, false
	}
	e := allocation.host.Record
	return e.ID, e.Address, e.Incarnation, true
}

// Presence holds the records about an executor's presence. Callers must not change these
// records.
type Presence struct {
	Executor *model.Executor
	Live     *model.Live // nil without presence
}

// Presence returns the records about an executor's presence; false for an unknown executor.
func (c *Core) Presence(id string) (Presence, bool) {
	h := c.hosts[id]
	if h == nil {
		return Presence{}, false
	}
	p := Presence{Executor: h.Record}
	if h.live != nil {
		p.Live, _ = h.live.record.(*model.Live)
	}
	return p, true
}

// Presences returns a number that changes whenever the results of Presence or
// AssignerTerm may change.
func (c *Core) Presences() uint64 { return c.presences }

// AssignerTerm returns the term of the leading assigner in this view; 0 if there is none.
func (c *Core) AssignerTerm() int64 { return c.leaders[model.ServiceAssigner] }

// LeaderTerm returns the term of the leading executor-state in this view; 0 if there is
// none.
func (c *Core) LeaderTerm() int64 { return c.leaders[model.ServiceExecutorState] }

// HasVolumes reports whether the executor with an ID is the home of a volume.
func (c *Core) HasVolumes(id string) bool {
	h := c.hosts[id]
	return h != nil && h.allocation.Volumes > 0
}

// Explain returns why a batch of needed workers with the constraints would or would not
// be granted now; see [match.Index.Explain]. If the batch is the version with a UID, the
// workers of other versions of its reservation count.
func (c *Core) Explain(uid string, k constraint.Constraints, needed int) match.Explanation {
	e := model.Candidate{UID: uid, Constraints: k}
	var pinned map[*match.Executor]int
	if r := recordOf[*model.Reservation](c.reservations[uid]); r != nil {
		e.Key, e.Workers = r.Key, r.Workers
		pinned = c.pinned(r.Key, uid, k, r.Workers)
	}
	explanation := c.index.Explain(k, needed, pinned)
	explanation.Message = c.ifEmpty(explanation.Reason, explanation.Message, e, needed, nil)
	return explanation
}

// Revision returns the revision up to which the view shows all writes.
func (c *Core) Revision() int64 { return c.revision }

// Stats holds sums for metrics and diagnosis.
type Stats struct {
	// The number of executors in each state.
	Registered, Ready, Unreachable, Lost int
	// Overcommitted counts the executors whose leases use more than their capacity.
	Overcommitted int
	Leases        int
	// Free is the capacity that may be granted, summed over all executors. Each sum
	// saturates.
	Free resource.Vector
	match.Size
	// Undurable counts the decisions that are not durable. Duties counts the pending
	// evaluations of leases.
	Undurable, Duties int
}

// Stats returns the sums.
func (c *Core) Stats() Stats {
	s := Stats{
		Registered:    c.states[model.ExecutorRegistered],
		Ready:         c.states[model.ExecutorReady],
		Unreachable:   c.states[model.ExecutorUnreachable],
		Lost:          c.states[model.ExecutorLost],
		Overcommitted: len(c.overcommitted),
		Leases:        len(c.leases),
		Free:          c.index.Free(),
		Size:          c.index.Size(),
		Undurable:     len(c.journal),
		Duties:        c.todo.len(),
	}
	return s
}
