package sim

import (
	"math/rand/v2"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// holds draws what a third of the worlds do with held reservations.
type holds struct {
	enabled bool
	rng     *rand.Rand
}

// draw draws whether a reservation is held, and for how long.
func (h *holds) draw(s *model.Spec) {
	if !h.enabled || h.rng.IntN(2) == 0 {
		return
	}
	s.Hold = true
	if s.Batch == model.BatchBestEffort {
		s.Batch = model.BatchUnset
	}
	switch n := h.rng.IntN(20); {
	case n < 10:
		limit := time.Duration(1+h.rng.IntN(20)) * time.Second
		s.HoldTimeout = &limit
	case n < 15:
		s.HoldTimeout = new(time.Duration(0))
	}
}

// bind binds a reservation, which is held most of the time, and reports whether there is one.
// Other calls about the key may be in flight.
func (c *clients) bind() bool {
	h := &c.w.holds
	if !h.enabled {
		return false
	}
	kept := c.w.keptByCells()
	var keys []model.Key
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.State == model.Queued && r.Holds() && (!r.Spec.Constraints.Cells || kept[r.UID]) || h.rng.IntN(20) == 0 {
			keys = append(keys, r.Key)
		}
	}
	if len(keys) == 0 {
		return false
	}
	b := request.Bind{Key: keys[h.rng.IntN(len(keys))]}
	if h.rng.IntN(2) == 0 {
		b.Task = &model.Task{Command: "bound"}
	}
	c.w.cells.drawBind(&b)
	c.call("bind of "+b.Key.String(), func() bool { return true }, func(id string) any {
		b.RequestID = id
		return b
	}, func(value any, err error) {
		switch {
		case fault.Is(err, fault.ReasonNotHeld) || fault.Is(err, fault.ReasonNotFound):
		case b.Pool != "" && (fault.Is(err, fault.ReasonNotAccepted) || fault.Is(err, fault.ReasonInvalid)):
		case err != nil:
			c.w.fail("bind of %s: %v", b.Key, err)
		case b.KeepHeld:
			c.w.logf("client: bind of %s to %q acknowledged, which stays held", b.Key, b.Pool)
		case value.(queue.Upserted).Reservation.BoundAt.IsZero():
			c.w.fail("%s was bound, and its record does not say so", b.Key)
		default:
			r := value.(queue.Upserted).Reservation
			c.w.logf("client: bind of %s (%s) acknowledged", b.Key, r.UID)
			c.bound[r.UID] = r.BoundAt
		}
	})
	return true
}

// checkHolds checks that at rest no reservation is held past its time or on an executor that is
// LOST or draining, and that none is bound and not started.
func (w *World) checkHolds() {
	unusable := map[uint32]string{}
	for _, record := range w.records(model.KindExecutor) {
		if e := record.(*model.Executor); e.Lost || e.Draining {
			unusable[e.Ordinal] = e.ID
		}
	}
	leases := map[string][]*model.LeaseChunk{}
	for _, record := range w.records(model.KindLeaseChunk) {
		chunk := record.(*model.LeaseChunk)
		leases[chunk.UID] = append(leases[chunk.UID], chunk)
	}
	offers := map[string]*model.Offer{}
	for _, record := range w.records(model.KindOffer) {
		offers[record.(*model.Offer).UID] = record.(*model.Offer)
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.State != model.Queued || !r.Spec.Hold {
			continue
		}
		limit := r.Spec.HoldLimit()
		if o := offers[r.UID]; o.IsDecided() && r.Holds() && limit > 0 &&
			(o.Has(model.CellAccepted) || o.Has(model.CellBound)) && !o.DecidedAt.Add(limit).After(w.now) {
			w.fail("at rest: %s (%s) is held by cells since %v, for more than %v", r.Key, r.UID, o.DecidedAt, limit)
		}
		for _, chunk := range leases[r.UID] {
			switch {
			case !r.BoundAt.IsZero():
				w.fail("at rest: %s (%s) was bound at %v and is not started", r.Key, r.UID, r.BoundAt)
			case limit > 0 && offers[r.UID] == nil && !chunk.GrantedAt.Add(limit).After(w.now):
				w.fail("at rest: %s (%s) is held since %v, for more than %v", r.Key, r.UID, chunk.GrantedAt, limit)
			case chunk.Rating == nil:
				w.fail("at rest: %s (%s) is held without a rating", r.Key, r.UID)
			}
			for _, p := range chunk.Workers {
				if id := unusable[p.Ordinal]; id != "" {
					w.fail("at rest: %s (%s) is held on %s, which is LOST or draining", r.Key, r.UID, id)
				}
			}
		}
	}
}
