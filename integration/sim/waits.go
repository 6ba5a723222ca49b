package sim

import (
	"bytes"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/registry/queue"
)

// observeWait processes a change of a reservation. It checks that queueTimeout ends only the wait
// for the first grant: workers that had executors never wait for too long.
func (w *World) observeWait(ref model.Ref, c store.Change) {
	if c.Deleted || !bytes.Contains(c.Value, []byte(fault.ReasonQueueTimeout)) {
		return
	}
	r := w.decode(ref, c).(*model.Reservation)
	if r.Reason == fault.ReasonQueueTimeout && (r.Origin == model.OriginRequeue || r.Round > 0) {
		w.fail("%v of %s (%s), which were queued again, waited for longer than the queueTimeout of their request", r.Workers,
			r.Key, r.UID)
	}
}

// checkWhole checks at rest that a finding names each reservation with a worker that was given up
// while others run.
func (w *World) checkWhole() {
	named := map[string]bool{}
	for _, n := range w.replicas[model.ServiceRegistry] {
		if registry, ok := n.(*node[*queue.Core]); ok && registry.leads() {
			for _, f := range registry.driver.Core.Findings(w.now) {
				named[f.Object] = true
			}
		}
	}
	running, givenUp := map[string]bool{}, map[string]model.WorkerID{}
	for _, record := range w.records(model.KindTaskChunk) {
		chunk := record.(*model.TaskChunk)
		for _, tw := range chunk.Workers {
			switch {
			case !tw.State.Terminal():
				running[chunk.UID] = true
			case tw.Reason == fault.ReasonRoundsExhausted:
				givenUp[chunk.UID] = tw.ID
			}
		}
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		id, lacks := givenUp[r.UID]
		if lacks && running[r.UID] && r.State == model.Active && !r.Unwanted.Has(id) && !named[r.Key.String()] {
			w.fail("at rest: worker %s of %s (%s) was given up while others run, and no finding names it", id, r.Key, r.UID)
		}
	}
}
