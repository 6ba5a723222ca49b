package sim

import (
	"math"
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// leadingNode returns the node that leads a service according to the store and knows its last
// revision, or nil if there is none.
func leadingNode[C model.Core](w *World, service string) *node[C] {
	for _, r := range w.replicas[service] {
		if n := r.(*node[C]); n.leads() && w.leads(n.key(), n.term) && !n.behind() {
			return n
		}
	}
	return nil
}

// checkDemand checks that executor-state counts exactly the workers that are in the queues of the
// registry, if both services know the same revision. While a cycle is in flight, its candidates are
// in the queues, although some may have a lease.
func (w *World) checkDemand() {
	registry := leadingNode[*queue.Core](w, model.ServiceRegistry)
	inventories := leadingNode[*inventory.Core](w, model.ServiceExecutorState)
	if registry == nil || inventories == nil || registry.asked() || inventories.asked() || registry.retries() ||
		inventories.retries() {
		return
	}
	groups, _, err := registry.driver.Core.Pending("", math.MaxInt)
	if err != nil {
		return // the registry is not ready
	}
	usage, err := inventories.driver.Core.Usage(w.now, "")
	if err != nil {
		return // the registry is not ready
	}
	queued, wanted := int64(0), int64(0)
	for _, g := range groups {
		views, _ := registry.driver.Core.Queue(g.ID, model.StateUnset, nil, math.MaxInt)
		for _, view := range views {
			if !view.Reservation.Spec.Constraints.Cells { // which need no executors
				queued += int64(view.Reservation.Workers.Len())
			}
		}
	}
	for _, sku := range usage.SKUs {
		wanted += sku.PendingWorkers
	}
	for _, u := range usage.Unmapped {
		wanted += u.Workers
	}
	if queued != wanted && !w.inCycle(registry.driver.Core) {
		w.fail("executor-state counts %d pending workers, but %d are in the queues of the registry", wanted, queued)
	}
}

// inCycle reports whether a cycle with a reservation is in flight.
func (w *World) inCycle(core *queue.Core) bool {
	return slices.ContainsFunc(w.records(model.KindReservation), func(record model.Record) bool {
		view, ok := core.GetUID(record.(*model.Reservation).UID)
		return ok && view.State == model.Leasing
	})
}
