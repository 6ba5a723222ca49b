package match

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// freed is the changes of executors that may make room for what was refused, or change
// why it was: the newest maxFreed of them at least.
type freed struct {
	// first is the number of the first in the list.
	first uint64
	list  []freeing
	// kinds is one more than the number of the newest with kind.
	kinds uint64
}

// freeing is an executor that has more free than before or, with kind, that came,
// went or changed what it is.
type freeing struct {
	executor *Executor
	class    *Class
	shape    *Shape
	kind     bool
}

const maxFreed = 1 << 12

// next is the number of what comes next.
func (f *freed) next() uint64 { return f.first + uint64(len(f.list)) }

func (f *freed) note(e *Executor, kind bool) {
	if len(f.list) == 2*maxFreed {
		f.list = append(f.list[:0], f.list[maxFreed:]...)
		f.first += maxFreed
	}
	number := f.next()
	f.list = append(f.list, freeing{e, e.class, e.shape, kind})
	if kind {
		f.kinds = number + 1
	} else {
		e.freed = number
	}
}

// forget makes every refusal be looked at again.
func (f *freed) forget() {
	f.first, f.list = f.next()+1, f.list[:0]
}

// hasMore reports whether an amount has grown.
func hasMore(before, now []int64) bool {
	if len(before) != len(now) {
		return true
	}
	for i := range now {
		if now[i] > before[i] {
			return true
		}
	}
	return false
}

// Refusal is a batch that did not fit. It does not fit still until executors that it
// may choose have more free, enough for what was lacking, and no search is needed
// before: so cycles get to every candidate, however little one may look at. A Refusal is
// of one index.
type Refusal struct {
	// Fitting is how many workers fit, Reason and Message why not all.
	Fitting int
	Reason  fault.Reason
	Message string

	constraints constraint.Constraints
	needed      int64
	text        string // of its query
	// at is up to where the log of changes was looked at, room how many of its workers
	// at most there was room for then.
	at   uint64
	room int64
	// shut and moves are Index.shutCount and Index.moves when it was refused.
	shut, moves uint64
}

// freshShare of the work of a cycle goes to refusals of which only the numbers may have
// changed, so that what is said of pending batches is current unless there are very
// many.
const freshShare = 1024

// Fits searches executors for a batch. It returns a refusal where they are too few.
func (ix *Index) Fits(k constraint.Constraints, needed int) ([]Pick, *Refusal) {
	picks, fitting := ix.choose(k, needed)
	if fitting == needed {
		ix.Spent += needed * workOfWorker
		return picks, nil
	}
	r := &Refusal{
		Fitting: fitting, constraints: k, needed: int64(needed), text: textOf(k),
		room: int64(fitting),
	}
	r.Reason, r.Message = ix.reason(k, needed, fitting)
	r.at, r.shut, r.moves = ix.freed.next(), ix.shutCount, ix.moves
	return nil, r
}

// Stands reports whether a batch that was refused has no room yet. It costs a look at
// the changes since, and no search.
func (ix *Index) Stands(r *Refusal) bool {
	switch {
	case r.at < ix.freed.first:
		return false
	case r.moves != ix.moves && ix.Spent < ix.Limits.Work/freshShare:
		return false
	case len(r.constraints.AvoidFailed) > 0 && r.shut != ix.shutCount:
		return false // those to avoid may be all that is left
	}
	q := ix.queryOf(r.text, r.constraints)
	// Where all that is free is too little no executor has to be looked at, unless one
	// more worker than before, or another reason, would be news.
	if most := ix.atMost(q); r.at >= ix.freed.kinds && most < r.needed && (most == 0 || r.Fitting > 0) {
		r.room, r.at = most, ix.freed.next()
		return true
	}
	for i, f := range ix.freed.list[r.at-ix.freed.first:] {
		ix.Spent += workOfNote
		if f.kind {
			if ix.concerns(f, q, r) {
				return false
			}
			continue
		}
		if f.executor.freed == r.at+uint64(i) { // and not once more since
			r.room += ix.grown(f, q, r.needed)
		}
		// A part of the batch may be asked for as soon as one worker fits.
		if r.room >= r.needed || r.Fitting == 0 && r.room > 0 {
			return false
		}
	}
	r.at = ix.freed.next()
	return true
}

// concerns reports whether an executor of that kind may change why a batch was refused.
func (ix *Index) concerns(f freeing, q *Query, r *Refusal) bool {
	if ok, _ := q.matcher.Match(f.class.host); ok {
		return true
	}
	return r.Reason != fault.ReasonInsufficientCapacity && (len(r.constraints.Pools) > 0 || q.sku != "" && q.hasSKU(f.shape.sku))
}

// grown returns how many of n workers fit on an executor that has more free. One that
// has changed what it is since is noted again as what it is.
func (ix *Index) grown(f freeing, q *Query, n int64) int64 {
	e := f.executor
	if e.shape != f.shape || e.class != f.class || e.standing != Open {
		return 0
	}
	if !q.hasSKU(f.shape.sku) || !q.section.has(f.class.index) {
		return 0
	}
	if q.form != f.shape.form {
		q.form, q.aim = f.shape.form, ix.aimAt(f.shape.form, q.resources, q.role)
	}
	if q.aim == nil || !q.aim.fits(e.free) {
		return 0
	}
	return q.aim.times(e.free, n)
}

// atMost returns how many workers fit at most, by all that is free in the SKU that is
// requested, or in the fleet.
func (ix *Index) atMost(q *Query) int64 {
	free := ix.total
	if q.sku != "" {
		s := ix.skus[q.sku]
		if s == nil {
			return 0
		}
		free = s.free
	}
	most := int64(endless)
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
