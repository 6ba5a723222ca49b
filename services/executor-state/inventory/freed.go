package inventory

import (
	"reflect"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
)

// freed is what executors became that may make room for what was refused, or
// change why it was: the newest maxFreed of it at least. It is this leader's alone.
type freed struct {
	// first is the number of the first in the list.
	first uint64
	list  []freeing
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
	f.list = append(f.list, freeing{h, h.class, h.shape, kind})
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
// for before: so passes that are offered one after the other get to every entry,
// however little one may look at. What is said of it is as of the last look, for
// which a part of every pass is kept. It is this leader's alone.
type refused struct {
	entry   Entry
	text    string // of its query
	outcome Outcome
	// at is up to where the log was looked at, grown how many workers at most
	// what was found there has room for.
	at    uint64
	grown int64
	// closed and moves are Core.closed and Core.moves when it was refused.
	closed, moves uint64
}

// freshShare of what a pass may look at goes to refusals that only the numbers of
// may have changed, so that what is said of waiting batches is of now where there
// are not very many.
const freshShare = 1024

// still says whether the entry was refused and has no room yet. Again says that it
// is known to be the same.
func (c *Core) still(r *refused, e Entry, again bool) bool {
	if r == nil || r.at < c.freed.first || !again && !reflect.DeepEqual(r.entry, e) {
		return false
	}
	if r.moves != c.moves && c.spent < c.limits.pass/freshShare {
		return false
	}
	k := e.Constraints
	if len(k.Avoid) > 0 && r.closed != c.closed {
		return false // those to avoid may be all that is left
	}
	q := c.queryOf(r.text, k)
	for _, f := range c.freed.list[r.at-c.freed.first:] {
		c.spent += workOfNote
		if f.kind {
			if c.concerns(f, q, k, r.outcome.Reason) {
				return false
			}
			continue
		}
		if r.grown += c.grown(f, q, e.Seats.Len()); r.grown == 0 {
			continue
		}
		// A part of the batch may be asked for as soon as one worker fits.
		if r.outcome.Fitting == 0 || int64(r.outcome.Fitting)+r.grown >= int64(e.Seats.Len()) {
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
func (c *Core) grown(f freeing, q *query, n int) int64 {
	if f.host.shape != f.shape || f.host.class != f.class || f.host.standing != open || !q.hasSKU(f.shape.sku) {
		return 0
	}
	if ok, _ := q.matcher.Match(f.class.host); !ok {
		return 0
	}
	a := c.aimAt(f.shape.form, q.resources, q.role)
	if a == nil || !a.fits(f.host.free) {
		return 0
	}
	return a.times(f.host.free, int64(n))
}
