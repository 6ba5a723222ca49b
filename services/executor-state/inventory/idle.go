package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// IdleExecutor is an executor that is READY and holds no worker.
type IdleExecutor struct {
	ID, SKU string
	// Reason is DRAINED or DISABLED for one that may not be given work. For
	// others it is NO_DEMAND when nothing waits that could use its kind, and
	// DEMAND_DOES_NOT_FIT when something waits all the same: its workers are too
	// large, or not all of a batch fit.
	Reason  fault.Reason
	Message string
	// Since is when it became idle, as far as this core saw: its last worker
	// was gone, or it was READY.
	Since time.Time
}

// IdleExecutors answers at most limit executors of a SKU that are idle, as usage
// counts them: they hold no worker and may be given one. Those that are idle the
// longest come first, then it goes by id. An empty
// name is every SKU. It costs a look at every executor, and puts no more of them
// in order than it answers.
func (c *Core) IdleExecutors(sku string, limit int) []IdleExecutor {
	found := c.idleFirst(sku, limit, func(a, b *host) int {
		return cmp.Or(a.idleSince().Compare(b.idleSince()), cmp.Compare(a.id, b.id))
	})
	list := make([]IdleExecutor, 0, len(found))
	why := idleReasons{core: c, texts: slices.Sorted(maps.Keys(c.demand)), byKind: map[kindOf]idleReason{}}
	for _, h := range found {
		reason := why.of(h)
		list = append(list, IdleExecutor{ID: h.id, SKU: h.executor.SKU, Reason: reason.reason, Message: reason.message, Since: h.idleSince()})
	}
	return list
}

// idleFirst answers the first idle executors of a SKU, in an order; an empty name
// is every SKU.
func (c *Core) idleFirst(sku string, limit int, compare func(a, b *host) int) []*host {
	if limit <= 0 {
		return nil
	}
	folded := constraint.Fold(sku)
	// The last of those kept is on top: it makes room for one that is before it.
	kept := heap[*host]{before: func(a, b *host) bool { return compare(a, b) > 0 }}
	for h := range c.byID.All() {
		switch {
		case h.use != idle || sku != "" && h.shape.sku.folded != folded:
		case len(kept.list) < limit:
			kept.push(h)
		case compare(h, kept.list[0]) < 0:
			kept.list[0] = h
			kept.down(0)
		}
	}
	slices.SortFunc(kept.list, compare)
	return kept.list
}

// idleSince is when the host became idle.
func (h *host) idleSince() time.Time {
	if since := h.stateSince(); since.After(h.hold.freed) {
		return since
	}
	return h.hold.freed
}

type idleReason struct {
	reason  fault.Reason
	message string
}

// kindOf is what it hangs on whether demand could use an idle executor.
type kindOf struct {
	class *class
	shape *shape
}

// idleReasons finds out why executors idle, for each kind once.
type idleReasons struct {
	core *Core
	// texts name the groups that wait.
	texts  []string
	byKind map[kindOf]idleReason
}

func (r *idleReasons) of(h *host) idleReason {
	kind := kindOf{h.class, h.shape}
	reason, known := r.byKind[kind]
	if !known {
		reason = r.demand(kind)
		r.byKind[kind] = reason
	}
	return reason
}

// demand answers by the first group that could use the kind at all.
func (r *idleReasons) demand(k kindOf) idleReason {
	for _, text := range r.texts {
		d := r.core.demand[text]
		q := r.core.queryOf(text, d.constraints)
		if ok, _ := q.matcher.Match(k.class.host); !ok {
			continue
		}
		why := "not all of a batch fit"
		if !q.fits(k.shape) {
			why = "each is too large for it"
		}
		return idleReason{fault.ReasonDemandDoesNotFit, fmt.Sprintf("demand of group %s (reservations: %d) is pending: %s", d.constraints.Group(), d.reservations, why)}
	}
	return idleReason{fault.ReasonNoDemand, "nothing waits for its kind"}
}
