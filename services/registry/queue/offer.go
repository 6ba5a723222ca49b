package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// A version with constraints.Cells is leased to one cell. Before that executor-state asks the cells,
// and stores what they answer as an offer. If the version is held, it is HELD from the decision of
// the offer on, without a lease, as long as a cell keeps executors for it. A bind chooses the cell:
// the version then waits for its lease in a queue of its own.

// setOffer records the offer of a version. Every change of an offer triggers a cycle, even if a
// cycle with the version is in flight.
func (c *Core) setOffer(uid string, record model.Record) {
	v := c.version(uid)
	c.update(v, func() { v.offer, _ = record.(*model.Offer) })
	c.scheduler.WakeEntry(&v.entry)
}

// isOffering reports whether cells are asked about the version.
func (v *version) isOffering() bool { return v.offer != nil && !v.offer.IsDecided() }

// heldByCells reports whether cells keep executors for the version until a bind chooses one of them.
func (v *version) heldByCells() bool {
	return v.awaitsBind() && v.r.Chosen == "" && v.offer.IsDecided() && v.offer.Has(model.CellAccepted)
}

// withdrew reports whether the cells on which the version relies no longer keep executors for it.
func (c *Core) withdrew(v *version) bool {
	switch {
	case !v.is(model.Queued) || v.header != nil || !v.r.Spec.Constraints.Cells:
		return false
	case v.r.Chosen != "":
		return !c.isKeptBy(v, v.r.Chosen)
	}
	return v.awaitsBind() && v.offer.IsDecided() && !v.offer.Has(model.CellAccepted) &&
		v.offer.Has(model.CellWithdrawn)
}

// isKeptBy reports whether a cell keeps executors for the version. It does once the version has a
// lease on it, unless the cell withdraws.
func (c *Core) isKeptBy(v *version, cell string) bool {
	at := v.offer.At(c.executors[cell])
	return at != nil && (at.State == model.CellAccepted || at.State == model.CellBound)
}

// pools returns the answers of the cells to the offer of the version, by ID.
func (c *Core) pools(v *version) map[string]model.CellOffer {
	if v.offer == nil {
		return nil
	}
	pools := map[string]model.CellOffer{}
	for _, cell := range v.offer.Cells {
		if id := c.names[cell.Ordinal]; id != "" { // the record of a cell may have been deleted
			pools[id] = cell
		}
	}
	return pools
}

// acceptedBy returns the cells that keep executors for the version: first those that get workers at
// present, then the one with the highest rating, then by name.
func (c *Core) acceptedBy(v *version) []string {
	pools := c.pools(v)
	maps.DeleteFunc(pools, func(_ string, cell model.CellOffer) bool { return cell.State != model.CellAccepted })
	return slices.SortedFunc(maps.Keys(pools), func(a, b string) int {
		waits := func(id string) int { return len(pools[id].Reason) }
		return cmp.Or(cmp.Compare(min(waits(a), 1), min(waits(b), 1)), cmp.Compare(pools[b].Rating, pools[a].Rating),
			cmp.Compare(a, b))
	})
}

// choose returns the cell that a bind of a held version takes.
func (c *Core) choose(v *version, pool string) (string, error) {
	if !v.r.Spec.Constraints.Cells {
		if pool != "" {
			return "", fault.BadField(fault.ReasonInvalid, "pool", "must not be set: %s is not held in cells", v.r.Key)
		}
		return "", nil
	}
	accepted := c.acceptedBy(v)
	if v.r.Chosen != "" {
		accepted = []string{v.r.Chosen}
	}
	switch {
	case pool == "" && len(accepted) > 0:
		return accepted[0], nil
	case slices.Contains(accepted, pool):
		return pool, nil
	}
	err := fault.BadField(fault.ReasonNotAccepted, "pool", "must be a cell that has accepted (%s), got %q",
		strings.Join(accepted, ", "), pool)
	err.Kind = fault.Conflict
	return "", err
}

// withdrawal says why a version is withdrawn: which of its executors is LOST or draining, or which
// cells no longer keep executors for it.
func (c *Core) withdrawal(v *version) string {
	if text := c.lostExecutor(v); text != "" {
		return text
	}
	var texts []string
	for id, cell := range c.pools(v) {
		if cell.State == model.CellWithdrawn || id == v.r.Chosen {
			texts = append(texts, fmt.Sprintf("cell %s is %s: %s", id, cell.State,
				cmp.Or(cell.Message, string(cell.Reason), "it no longer keeps executors")))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts[:min(len(texts), 3)], "; ")
}
