package inventory

import (
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// freed is what executors became that may make room for what was refused, or
// change why it was: the newest maxFreed of it at least. It is this leader's alone.
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
	host  *host
	class *class
	shape *shape
	kind  bool
}

const maxFreed = 1 << 12

// next is the number of what comes next.
func (f *freed) next() uint64 { return f.first + uint64(len(f.list)) }

func (f *freed) note(h *host, kind bool) {
	if len(f.list) == 2*maxFreed {
		f.list = append(f.list[:0], f.list[maxFreed:]...)
		f.first += maxFreed
	}
	number := f.next()
	f.list = append(f.list, freeing{h, h.class, h.shape, kind})
	if kind {
		f.kinds = number + 1
	} else {
		h.freed = number
	}
}

// forget makes every refusal be looked at again.
func (f *freed) forget() {
	f.first, f.list = f.next()+1, f.list[:0]
}

// hasMore says whether an amount has grown.
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

// refused is an entry that did not fit. It does not fit still until executors that
// it may choose became free that have room for what was lacking, and is not looked
// for before: so cycles that are offered one after the other get to every entry,
// however little one may look at. What is said of it is as of the last look, for
// which a part of every cycle is kept. It is this leader's alone.
type refused struct {
	entry   model.Candidate
	text    string // of its query
	outcome model.Outcome
	// at is up to where the log was looked at, room how many of its workers at most
	// there was room for then.
	at   uint64
	room int64
	// closed and moves are Core.shutCount and Core.moves when it was refused.
	closed, moves uint64
}

// freshShare of what a cycle may look at goes to refusals that only the numbers of
// may have changed, so that what is said of waiting batches is of now where there
// are not very many.
const freshShare = 1024

// of reports whether e is the entry that was refused: the same record, which avoids the
// same executors. Everything else of an entry follows from the record.
func (r *refused) of(e model.Candidate) bool {
	return r.entry.Mod == e.Mod && slices.Equal(r.entry.Constraints.AvoidFailed, e.Constraints.AvoidFailed)
}

// still says whether a refused entry has no room yet.
func (c *Core) still(r *refused) bool {
	if r.at < c.freed.first {
		return false
	}
	if r.moves != c.moves && c.spent < c.limits.cycle/freshShare {
		return false
	}
	k := r.entry.Constraints
	if len(k.AvoidFailed) > 0 && r.closed != c.shutCount {
		return false // those to avoid may be all that is left
	}
	q, needed := c.queryOf(r.text, k), int64(r.entry.Workers.Len())
	// Where all that is free is too little nobody has to be looked at, unless one more
	// worker than before, or another reason, would be news.
	if most := c.atMost(q); r.at >= c.freed.kinds && most < needed && (most == 0 || r.outcome.Fitting > 0) {
		r.room, r.at = most, c.freed.next()
		return true
	}
	for i, f := range c.freed.list[r.at-c.freed.first:] {
		c.spent += workOfNote
		if f.kind {
			if c.concerns(f, q, k, r.outcome.Reason) {
				return false
			}
			continue
		}
		if f.host.freed == r.at+uint64(i) { // and not once more since
			r.room += c.grown(f, q, needed)
		}
		// A part of the batch may be asked for as soon as one worker fits.
		if r.room >= needed || r.outcome.Fitting == 0 && r.room > 0 {
			return false
		}
	}
	r.at = c.freed.next()
	return true
}

// concerns says whether an executor of that kind may change why the entry was
// refused.
func (c *Core) concerns(f freeing, q *query, k constraint.Constraints, why fault.Reason) bool {
	if ok, _ := q.matcher.Match(f.class.host); ok {
		return true
	}
	return why != fault.ReasonInsufficientCapacity && (len(k.Pools) > 0 || q.sku != "" && q.hasSKU(f.shape.sku))
}

// grown is how many of n workers fit on an executor that became free. One that
// has changed what it is since is noted again as what it is.
func (c *Core) grown(f freeing, q *query, n int64) int64 {
	if f.host.shape != f.shape || f.host.class != f.class || f.host.standing != open {
		return 0
	}
	if !q.hasSKU(f.shape.sku) || !q.section.has(f.class.index) {
		return 0
	}
	if q.form != f.shape.form {
		q.form, q.aim = f.shape.form, c.aimAt(f.shape.form, q.resources, q.role)
	}
	if q.aim == nil || !q.aim.fits(f.host.free) {
		return 0
	}
	return q.aim.times(f.host.free, n)
}

// atMost is how many workers fit at most, by all that is free in the SKU that is
// asked for, or in the fleet.
func (c *Core) atMost(q *query) int64 {
	free := c.total
	if q.sku != "" {
		s := c.skus[q.sku]
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
