package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// offer is what the auditor knows of the offers of a version.
type offer struct {
	// record is nil without an offer. was is the record before this revision; set if changed is.
	record, was *model.Offer
	changed     bool
	// number is the highest number of an offer.
	number int64
	// accepted has the cells that accepted according to a decided offer, in some revision.
	accepted map[uint32]bool
}

// isHeldByCells reports whether cells keep executors for the version until a bind chooses one of
// them. Such a version is not in its queue.
func (v *version) isHeldByCells() bool {
	return v.r != nil && v.r.Holds() && v.r.Chosen == "" && v.offer.record.IsDecided() &&
		v.offer.record.Has(model.CellAccepted)
}

// setOffer applies the change of an offer. A version enters its queue again when the last of the
// cells that kept executors for it has withdrawn.
func (a *Auditor) setOffer(ref model.Ref, next *model.Offer) {
	v := a.touch(ref.ID)
	o := &v.offer
	a.leaveQueue(v)
	if !o.changed {
		o.was, o.changed = o.record, true
		a.step.offered = append(a.step.offered, v)
	}
	wasHeld := v.isHeldByCells()
	o.record = next
	if next != nil {
		if v.key == (model.Key{}) {
			v.key = next.Key
		}
		for _, cell := range next.Cells {
			isAccepted := cell.State == model.CellAccepted || cell.State == model.CellBound ||
				a.step.jump && cell.State == model.CellWithdrawn
			if isAccepted && next.IsDecided() {
				if o.accepted == nil {
					o.accepted = map[uint32]bool{}
				}
				o.accepted[cell.Ordinal] = true
			}
		}
	}
	if wasHeld && v.queued() {
		v.positions = []position{{a.step.revision, rankOf(v.r)}}
	}
	a.enterQueue(v)
}

// checkOffers checks the offers that this revision changed.
func (a *Auditor) checkOffers() {
	for _, v := range a.step.offered {
		o := &v.offer
		switch {
		case o.record != nil:
			a.checkOffer(v, o.was, o.record)
		case v.leased != 0 && v.unfinished() && !a.step.jump:
			a.violate(RuleOffer, "the offer of %s was deleted while %s", v, v.state())
		}
		o.was, o.changed = nil, false
	}
}

func (a *Auditor) checkOffer(v *version, was, next *model.Offer) {
	bound := 0
	for _, cell := range next.Cells {
		if cell.State == model.CellBound {
			bound++
		}
	}
	switch {
	case bound > 1:
		a.violate(RuleOffer, "the offer of %s is BOUND at %d cells", v, bound)
	case bound == 1 && next.Has(model.CellAccepted):
		a.violate(RuleOffer, "the offer of %s is BOUND at a cell, and another one is not released", v)
	}
	asked := was == nil || was.Number != next.Number
	if isLower := next.Number < v.offer.number; isLower || asked && next.Number == v.offer.number && !a.step.jump {
		a.violate(RuleOffer, "the offer of %s has number %d, after number %d", v, next.Number, v.offer.number)
	}
	v.offer.number = max(v.offer.number, next.Number)
	if a.step.jump {
		return
	}
	for _, cell := range next.Cells {
		before := model.CellPending
		if !asked && was.At(cell.Ordinal) != nil {
			before = was.At(cell.Ordinal).State
		}
		if !mayAnswer(before, cell.State) {
			a.violate(RuleOffer, "the offer of %s at %s went from %s to %s", v, a.name(cell.Ordinal), before, cell.State)
		}
		if cell.State == model.CellBound && before != model.CellBound &&
			(v.leased != a.step.revision || !slices.Contains(v.leasedOn(), cell.Ordinal)) {
			a.violate(RuleOffer, "the offer of %s became BOUND at %s without a lease there", v, a.name(cell.Ordinal))
		}
	}
}

// mayAnswer reports whether an offer may go from one state to another at a cell. Group commit may
// join several steps, so every state may follow PENDING.
func mayAnswer(from, to model.CellState) bool {
	switch from {
	case to, model.CellPending:
		return true
	case model.CellAccepted:
		return to == model.CellBound || to == model.CellReleased || to == model.CellWithdrawn
	case model.CellBound:
		return to == model.CellWithdrawn
	case model.CellUnreachable: // the cell accepts too late
		return to == model.CellReleased
	}
	return false
}

// leasedOn returns the executors of the lease, in order of ordinal.
func (v *version) leasedOn() []uint32 {
	ordinals := map[uint32]bool{}
	for _, chunk := range v.lease {
		for _, p := range chunk.Workers {
			ordinals[p.Ordinal] = true
		}
	}
	return slices.Sorted(maps.Keys(ordinals))
}

// checkCell checks a new lease against constraints.cells: it is on one cell whose offer of the version
// was ACCEPTED or becomes BOUND, or on hosts only. A held version gets it only on the cell that a
// bind has chosen. While workers of the reservation are in a cell, it gets it only there.
func (a *Auditor) checkCell(v *version) {
	wants, on := v.r.Spec.Constraints.Cells, v.leasedOn()
	for _, ordinal := range on {
		if e := a.executors[ordinal]; e != nil && e.record != nil && e.record.Cell != wants {
			a.violate(RuleOffer, "%s has constraints.cells %v and is leased %s, which is a cell: %v", v, wants,
				a.name(ordinal), e.record.Cell)
			return
		}
	}
	if !wants || len(on) == 0 {
		return
	}
	before := v.offer.record
	if v.offer.changed {
		before = v.offer.was
	}
	was, now := before.At(on[0]), v.offer.record.At(on[0])
	chosen, known := a.ordinals[v.r.Chosen]
	switch {
	case len(on) > 1:
		a.violate(RuleOffer, "%s is leased %d cells", v, len(on))
	case now == nil || now.State != model.CellBound && (was == nil || was.State != model.CellAccepted) &&
		(now.State != model.CellWithdrawn || was != nil && was.State == model.CellWithdrawn):
		a.violate(RuleOffer, "%s is leased %s, which did not accept its offer", v, a.name(on[0]))
	case v.r.Chosen == "" && v.r.Holds():
		a.violate(RuleOffer, "%s is leased %s before a bind has chosen a cell", v, a.name(on[0]))
	case v.r.Chosen != "" && known && chosen != on[0]:
		a.violate(RuleOffer, "%s is leased %s instead of %s, which a bind has chosen", v, a.name(on[0]), v.r.Chosen)
	}
	if other := a.cellOf(v); other != on[0] {
		a.violate(RuleOffer, "%s is leased %s, while workers of the reservation are in %s", v, a.name(on[0]), a.name(other))
	}
}

// cellOf returns a cell with workers of other versions of a reservation: that of the version, if they are
// in several or in none. A lease that nobody can use any more, or of which all workers were given up,
// counts only for the cell of the version.
func (a *Auditor) cellOf(v *version) uint32 {
	own := v.leasedOn()[0]
	cell := own
	for _, other := range a.versions {
		if other == v || other.key != v.key {
			continue
		}
		for _, ordinal := range other.leasedOn() {
			switch e := a.executors[ordinal]; {
			case ordinal == own:
				return own
			case e == nil || e.record == nil || !e.record.Cell, other.leaseOver():
			case other.header != nil || other.r != nil && !other.r.State.Terminal():
				cell = ordinal
			}
		}
	}
	return cell
}
