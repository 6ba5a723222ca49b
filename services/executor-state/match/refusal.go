package match

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// Refusal is a batch that did not fit. It fits only after enough is freed on executors that
// it may use, so the index confirms a refusal without a search until then. Cycles therefore
// get to every candidate, however little work they may do. A Refusal belongs to one index.
type Refusal struct {
	// Fitting is how many workers fit, Reason and Message why not all.
	Fitting int
	Reason  fault.Reason
	Message string

	constraints constraint.Constraints
	needed      int64
	text        string // of its query
	// checked is the number of the first change that was not compared with the refusal;
	// room is how many of its workers fitted at most before that change.
	checked      uint64
	freeCapacity int64
	// ineligibleVersion and freeVersion are those of the index when it was refused.
	ineligibleVersion, freeVersion uint64
}

// refreshShare is the part of a cycle's work, as a divisor, for searches that can only
// change the numbers in a refusal. They keep the messages of pending batches current unless
// there are very many.
const refreshShare = 1024

// Choose picks executors for a batch, or returns a refusal if there are too few. It changes
// nothing.
func (ix *Index) Choose(k constraint.Constraints, needed int) ([]Pick, *Refusal) {
	picks, fitting := ix.search(k, needed).choose()
	if fitting == needed {
		ix.Work += needed * workOfWorker
		return picks, nil
	}
	r := &Refusal{
		Fitting: fitting, constraints: k, needed: int64(needed), text: textOf(k), freeCapacity: int64(fitting),
		checked: ix.changes.next(), ineligibleVersion: ix.ineligibleVersion, freeVersion: ix.freeVersion,
	}
	r.Reason, r.Message = ix.reason(k, needed, fitting)
	return nil, r
}

// StillRefused reports whether a search would refuse the batch again, as far as the changes
// since show. It costs a look at these changes, and no search. If it returns false the
// batch may fit, or the refusal may be out of date.
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

// mustSearchAgain reports whether the log of changes cannot confirm the refusal, or whether
// the cycle has work left to refresh its numbers.
func (ix *Index) mustSearchAgain(r *Refusal) bool {
	switch {
	case !ix.changes.covers(r.checked):
		return true
	case r.freeVersion != ix.freeVersion && ix.Work < ix.Limits.Work/refreshShare:
		return true
	}
	// If no other executor is left, the batch may use those of AvoidFailed.
	return len(r.constraints.AvoidFailed) > 0 && r.ineligibleVersion != ix.ineligibleVersion
}

// totalsRefuse reports whether the sums of free resources alone refuse the batch. It
// applies only while no executor has changed its kind, which might change the reason, and
// while one fitting worker would not be news.
func (ix *Index) totalsRefuse(r *Refusal, q *Query) bool {
	most := ix.timesInTotals(q)
	if ix.lastKindChange >= r.checked || most >= r.needed || most > 0 && r.Fitting == 0 {
		return false
	}
	r.freeCapacity, r.checked = most, ix.changes.next()
	return true
}

// mayFit reports whether there may be room for the batch, or for its first worker: the
// caller may then request a part of the batch.
func (r *Refusal) mayFit() bool {
	return r.freeCapacity >= r.needed || r.Fitting == 0 && r.freeCapacity > 0
}

// mayChangeReason reports whether a change of an executor's kind may change why a batch was
// refused.
func mayChangeReason(c change, r *Refusal, q *Query) bool {
	if q.Matches(c.class.host) {
		return true
	}
	return r.Reason != fault.ReasonInsufficientCapacity && (len(r.constraints.Pools) > 0 || q.sku != "" &&
		q.hasSKU(c.shape.sku))
}

// timesOn returns how many of n workers fit on an executor that has more free. An executor
// that has changed its kind since has a later change of its own.
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

// timesInTotals returns how many workers fit at most, by the sums of what is free in the
// requested SKU, or in the fleet.
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
