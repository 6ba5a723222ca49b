package policy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// Executor is an executor as this package sees it.
type Executor struct {
	match.Executor
	Record *model.Executor
	// Named lists the IDs of the requests that name the executor, in order. [Requests] sets
	// it.
	Named []string
	// AbsentSince is since when the executor has had no presence; zero while it is present.
	AbsentSince time.Time
}

// Owner keeps the records and the executors.
type Owner interface {
	// Registered returns the registered executor with an ID; nil if there is none.
	Registered(id string) *Executor
	// From iterates over the registered executors in order of ID, beginning at an ID.
	From(id string) iter.Seq[*Executor]
	// Update calls change while the executor is not placed in the index.
	Update(e *Executor, change func())
	// Closed is called when the class of an executor was closed or opened.
	Closed(e *match.Executor)
	// Decide applies an effect to the records at once, and undoes it if it cannot be made
	// durable. For the record of a request, both call [Requests.Set].
	Decide(model.Effect)
	// WorkersOn returns the workers on executors, by ordinal and by the UID of the lease.
	// Each of the executors has an entry.
	WorkersOn([]*Executor) map[uint32]map[string]*LeaseWorkers
}

// LeaseWorkers holds the workers of one lease on one executor, in order of ID.
type LeaseWorkers struct {
	Key     model.Key
	Trace   model.Trace
	Epoch   int64
	Workers []model.WorkerID
}

// Requests holds the requests to disable executors, including drains and claims, and the
// calls that undid requests.
type Requests struct {
	owner Owner
	index *match.Index

	byID map[string]*model.Disable
	// named holds, by executor, the IDs of the requests in force that name it, in order.
	// names counts all these IDs, and unknown those of executors that are not registered.
	named          map[string][]string
	names, unknown int
	// byAttributes holds the requests in force that select by attributes.
	byAttributes map[string]match.Attributes
	// due orders requests by when they expire or are deleted.
	due core.Ordered[*model.Disable]
	// unreported holds the requests in force whose events are not all written. late holds
	// the executors that came under a request after the request's events were written.
	unreported core.Ordered[*model.Disable]
	late       core.Ordered[*Executor]
}

// NewRequests returns a Requests without records.
func NewRequests(index *match.Index, owner Owner) *Requests {
	return &Requests{
		owner: owner, index: index,
		byID: map[string]*model.Disable{}, named: map[string][]string{}, byAttributes: map[string]match.Attributes{},
		due: core.NewOrdered(func(a, b *model.Disable) int {
			return cmp.Or(dueAt(a).Compare(dueAt(b)), cmp.Compare(a.ID, b.ID))
		}),
		unreported: core.NewOrdered(func(a, b *model.Disable) int { return cmp.Compare(a.ID, b.ID) }),
		late:       core.NewOrdered(func(a, b *Executor) int { return cmp.Compare(a.ID, b.ID) }),
	}
}

// dueAt returns when a request expires or, if it has ended, when its record is deleted;
// zero means never.
func dueAt(d *model.Disable) time.Time {
	if d.InForce() {
		return d.ExpireAt
	}
	return d.EndedAt.Add(model.KeepDisable)
}

// Next returns when the next request expires or is deleted; zero means never.
func (r *Requests) Next() time.Time {
	first, ok := r.due.First()
	if !ok {
		return time.Time{}
	}
	return dueAt(first)
}

// Set replaces the record of a request; nil means that there is none. This is where a
// request takes effect: if the request applies to other executors than before, Set calls
// apply.
func (r *Requests) Set(id string, next *model.Disable) {
	prev := r.byID[id]
	if prev != nil {
		delete(r.byID, id)
		r.due.Delete(prev)
		r.unreported.Delete(prev)
	}
	if next != nil {
		r.byID[id] = next
		if !dueAt(next).IsZero() {
			r.due.Insert(next)
		}
		if next.InForce() && !next.ReportedAll {
			r.unreported.Insert(next)
		}
	}
	if !sameSelection(prev, next) {
		r.apply(prev, false)
		r.apply(next, true)
	}
}

// sameSelection reports whether two versions of a request apply to the same executors.
func sameSelection(a, b *model.Disable) bool {
	aInForce, bInForce := a != nil && a.InForce(), b != nil && b.InForce()
	if !aInForce || !bInForce {
		return aInForce == bInForce
	}
	return slices.Equal(a.IDs, b.IDs) && match.AttributesKey(a.Attributes) == match.AttributesKey(b.Attributes)
}

// apply puts a request into force, or ends its effect: it enters the request at the
// executors that it names, and closes or opens the classes that its attributes select.
func (r *Requests) apply(d *model.Disable, inForce bool) {
	if d == nil || !d.InForce() {
		return
	}
	for _, id := range d.IDs {
		r.name(id, d.ID, inForce)
	}
	if len(d.Attributes) == 0 {
		return
	}
	selected := match.AttributesOf(d.Attributes)
	if inForce {
		r.byAttributes[d.ID] = selected
	} else {
		delete(r.byAttributes, d.ID)
	}
	for class := range r.index.Classes(selected) {
		if !r.index.Close(class, d.ID, inForce) {
			continue
		}
		for _, e := range class.Executors() {
			r.owner.Closed(e)
		}
	}
}

// name adds a request to the requests that name an executor, or removes it from them.
func (r *Requests) name(id, request string, inForce bool) {
	list, n := r.named[id], 1
	at, _ := slices.BinarySearch(list, request)
	if inForce {
		list = slices.Insert(slices.Clone(list), at, request)
	} else {
		list, n = slices.Delete(slices.Clone(list), at, at+1), -1
	}
	if r.named[id] = list; len(list) == 0 {
		delete(r.named, id)
	}
	r.names += n
	if e := r.owner.Registered(id); e != nil {
		r.owner.Update(e, func() { e.Named = list })
	} else {
		r.unknown += n
	}
}

// Enter adds a registered executor, and Leave removes it. The owner calls Leave before
// and Enter after each change of an executor's record, while the executor is not placed.
func (r *Requests) Enter(e *Executor) {
	e.Named = r.named[e.ID]
	r.unknown -= len(e.Named)
	if len(e.Record.Unreported) > 0 {
		r.late.Insert(e)
	}
}

// Leave removes a registered executor; see Enter.
func (r *Requests) Leave(e *Executor) {
	r.unknown += len(e.Named)
	r.late.Delete(e)
}

// ClosedBy implements [match.Owner].
func (r *Requests) ClosedBy(attributes match.Attributes) []string {
	var list []string
	for id, selected := range r.byAttributes {
		if attributes.Contain(selected) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// Of returns the requests that take the executor out of allocation, in order of ID.
func (r *Requests) Of(e *Executor) []*model.Disable {
	ids := slices.Concat(e.Named, e.Class().ClosedBy())
	slices.Sort(ids)
	list := make([]*model.Disable, 0, len(ids))
	for _, id := range ids {
		list = append(list, r.byID[id])
	}
	return list
}

// Withheld reports whether a request takes the executor out of allocation.
func (e *Executor) Withheld() bool { return len(e.Named)+len(e.Class().ClosedBy()) > 0 }

// Drained reports whether a drain applies to an executor, and returns the shortest time that its
// drains give workers to end; nil if none does.
func (r *Requests) Drained(id string) (bool, *time.Duration) { return r.drained(id, "") }

// drained is Drained without regard to the drain with the ID other.
func (r *Requests) drained(executor, other string) (draining bool, grace *time.Duration) {
	for _, id := range r.named[executor] {
		if d := r.byID[id]; id != other && d.Drain {
			draining, grace = true, shorter(grace, d.Grace)
		}
	}
	return draining, grace
}

// Leaving reports whether the executor is expected to disappear. It is if it is claimed
// for scale-down, or if it is drained and has no worker. It also is if it was drained
// after it became absent: with such a drain an operator states that the executor will not
// return.
func (r *Requests) Leaving(e *Executor) bool {
	return slices.ContainsFunc(e.Named, func(id string) bool {
		d := r.byID[id]
		return d.Claim || d.Drain && (e.Leased.Workers == 0 || !e.AbsentSince.IsZero() && d.CreatedAt.After(e.AbsentSince))
	})
}

// count returns the number of executors to which a request applies.
func (r *Requests) count(d *model.Disable) (n int) {
	if !d.InForce() {
		return 0
	}
	n = len(d.IDs) - len(r.unregistered(d.IDs))
	if len(d.Attributes) > 0 {
		for class := range r.index.Classes(match.AttributesOf(d.Attributes)) {
			n += len(class.Executors())
		}
	}
	return n
}

// unregistered returns the IDs without a registered executor.
func (r *Requests) unregistered(ids []string) (list []string) {
	for _, id := range ids {
		if r.owner.Registered(id) == nil {
			list = append(list, id)
		}
	}
	return list
}

// inForce returns the IDs of the requests in force that have the given ID, select
// executors by the same attributes, or name one of the executors, in order.
func (r *Requests) inForce(request string, s Selector) []string {
	found := map[string]bool{}
	for _, id := range s.IDs {
		for _, request := range r.named[id] {
			found[request] = true
		}
	}
	if len(s.Attributes) > 0 {
		attributes := match.AttributesOf(s.Attributes)
		for id, selected := range r.byAttributes {
			if slices.Equal(attributes, selected) {
				found[id] = true
			}
		}
	}
	if d := r.byID[request]; d != nil && d.InForce() {
		found[request] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// String returns a text of everything that follows from the records, for comparison in
// tests.
func (r *Requests) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "named %v: %d, %d unknown\nby attributes %v\n", r.named, r.names, r.unknown,
		slices.Sorted(maps.Keys(r.byAttributes)))
	for d := range r.due.All() {
		fmt.Fprintf(&b, "due %s %v\n", d.ID, dueAt(d))
	}
	for d := range r.unreported.All() {
		fmt.Fprintf(&b, "unreported %s\n", d.ID)
	}
	for e := range r.late.All() {
		fmt.Fprintf(&b, "late %s %v\n", e.ID, e.Record.Unreported)
	}
	return b.String()
}
