package match

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// Refusal says why a batch did not fit. The batch fits only after enough capacity is
// freed on executors that it may use. Until then the index confirms the refusal without a
// search. So cycles reach every candidate, however little work they may do. A Refusal
// belongs to one index.
type Refusal struct {
	// Fitting is how many workers fit. Reason and Message say why not all fit.
	Fitting int
	Reason  fault.Reason
	Message string

	constraints constraint.Constraints
	needed      int64
	text        string // the text of its query
	// checked is the number of the first change that was not compared with the refusal.
	// freeCapacity is an upper bound for the workers that fitted before that change.
	checked      uint64
	freeCapacity int64
	// ineligibleVersion and freeVersion are the versions of the index at the time of the
	// refusal.
	ineligibleVersion, freeVersion uint64
	// pinned reports whether workers that had their executors already limited the search.
	pinned bool
}

// refreshShare is a divisor of a cycle's work. The result is the work that may be used
// for searches that can only update the numbers in a refusal. With it, the messages of
// pending batches stay current unless there are very many batches.
const refreshShare = 1024

// Choose picks executors for a batch, or returns a refusal if there are too few. It changes
// nothing.
//
// pinned counts by executor the other workers of the reservation that have their executors
// already. Their use is part of the executors' Leased. They count for spread and sameShape,
// and with pack their executors come first. Where they break the constraints themselves, no
// worker is added. StillRefused must not be called with the refusal after pinned has changed.
func (ix *Index) Choose(k constraint.Constraints, needed int, pinned map[*Executor]int) ([]Pick, *Refusal) {
	s := ix.search(k, needed, pinned)
	picks, fitting := s.choose()
	if fitting == needed {
		ix.Work += needed * workOfWorker
		return picks, nil
	}
	r := &Refusal{
		Fitting: fitting, constraints: k, needed: int64(needed), text: textOf(k), freeCapacity: int64(fitting),
		checked: ix.changes.next(), ineligibleVersion: ix.ineligibleVersion, freeVersion: ix.freeVersion,
	}
	r.pinned = s.limited()
	r.Reason, r.Message = ix.reason(k, needed, fitting, r.pinned)
	return nil, r
}

// StillRefused reports whether a search would refuse the batch again, as far as the
// changes since the refusal show. It costs a look at these changes, and no search. If it
// returns false, the batch may fit, or the refusal may be outdated.
func (ix *Index) StillRefused(r *Refusal) bool {
	if ix.mustSearchAgain(r) {
		return false
	}
	q := ix.queryOf(r.text, r.constraints)
	if ix.totalsRefuse(r, q) {
		return true
	}
	for i, c := range ix.changes.since(r.checked) {
		ix.Work += workOfChange
		if c.kind {
			if mayChangeReason(c, r, q) {
				return false
			}
			continue
		}
		if c.executor.lastFreed == r.checked+uint64(i) { // later changes count once
			r.freeCapacity += ix.timesOn(c, q, r.needed)
		}
		if r.mayFit() {
			return false
		}
	}
	r.checked = ix.changes.next()
	return true
}

// mustSearchAgain reports whether the log of changes cannot confirm the refusal, or
// whether the cycle has work left to update the numbers in it.
func (ix *Index) mustSearchAgain(r *Refusal) bool {
	switch {
	case !ix.changes.covers(r.checked):
		return true
	case r.freeVersion != ix.freeVersion && ix.Work < ix.Limits.Work/refreshShare:
		return true
	case r.pinned && ix.lastKindChange >= r.checked:
		return true // a worker on an executor that moved or is LOST counts elsewhere or no more
	}
	// If no other executor is left, the batch may use the executors of AvoidFailed.
	return len(r.constraints.AvoidFailed) > 0 && r.ineligibleVersion != ix.ineligibleVersion
}

// totalsRefuse reports whether the sums of free resources alone refuse the batch. It
// returns false if an executor has changed its kind since, because that might change the
// reason. It also returns false if the first worker may fit now and none fitted before.
func (ix *Index) totalsRefuse(r *Refusal, q *Query) bool {
	most := ix.timesInTotals(q)
	if ix.lastKindChange >= r.checked || most >= r.needed || most > 0 && r.Fitting == 0 {
		return false
	}
	r.freeCapacity, r.checked = most, ix.changes.next()
	return true
}

// mayFit reports whether there may be free capacity for the batch, or for its first
// worker if none fitted before: the caller may then request a part of the batch.
func (r *Refusal) mayFit() bool {
	return r.freeCapacity >= r.needed || r.Fitting == 0 && r.freeCapacity > 0
}

// mayChangeReason reports whether a change of an executor's kind may change the reason
// for which a batch was refused.
func mayChangeReason(c change, r *Refusal, q *Query) bool {
	if q.Matches(c.class.host) {
		return true
	}
	return r.Reason != fault.ReasonInsufficientCapacity && (len(r.constraints.Pools) > 0 || q.sku != "" &&
		q.hasSKU(c.shape.sku))
}

// timesOn returns how many of n workers fit on an executor whose free capacity has grown.
// If the executor has changed its kind since, it has a later change of its own, so
// timesOn returns 0.
func (ix *Index) timesOn(c change, q *Query, n int64) int64 {
	e := c.executor
	if e.shape != c.shape || e.class != c.class || e.eligibility != Eligible {
		return 0
	}
	if !q.hasSKU(c.shape.sku) || !q.selection.contains(c.class.index) {
		return 0
	}
	if q.layout != c.shape.layout {
		q.layout, q.aligned = c.shape.layout, ix.align(c.shape.layout, q)
	}
	if q.aligned == nil || !q.aligned.fits(e.free) {
		return 0
	}
	return q.aligned.times(e.free, n)
}

// timesInTotals returns an upper bound for the workers that fit, from the sums of what is
// free in the requested SKU or in the fleet.
func (ix *Index) timesInTotals(q *Query) int64 {
	free := ix.fleetFree
	if q.sku != "" {
		s := ix.skus[q.sku]
		if s == nil {
			return 0
		}
		free = s.free
	}
	most := int64(unlimited)
	for name, amount := range q.resources {
		if amount <= 0 {
			continue
		}
		sum := free[name]
		if sum == nil {
			return 0
		}
		most = min(most, sum.saturated()/amount)
	}
	return most
}
