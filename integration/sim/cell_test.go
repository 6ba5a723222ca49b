package sim

import (
	"io"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// TestSeedsPlayCells checks that some seeds play every state of an offer, a bind that chooses a cell, a
// held reservation that loses its cells, and a start that a cell refuses.
func TestSeedsPlayCells(t *testing.T) {
	states, bound, withdrawn, refused := map[model.CellState]bool{}, 0, 0, 0
	const all = int(model.CellWithdrawn)
	for seed := uint64(1); seed <= 300; seed++ {
		w := NewWorld(seed, io.Discard)
		if !w.cells.enabled {
			continue
		}
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range w.store.History() {
			for _, c := range r.Changes {
				ref, ok := w.space.Parse(c.Key)
				if !ok || c.Deleted || ref.Kind != model.KindOffer && ref.Kind != model.KindReservation {
					continue
				}
				record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
				if err != nil {
					t.Fatal(err)
				}
				switch record := record.(type) {
				case *model.Offer:
					for _, cell := range record.Cells {
						states[cell.State] = true
					}
				case *model.Reservation:
					if record.Chosen != "" && !record.BoundAt.IsZero() {
						bound++
					}
					if record.Spec.Constraints.Cells && record.Reason == fault.ReasonHoldWithdrawn {
						withdrawn++
					}
				}
			}
		}
		refused += w.cells.refused
		if len(states) == all && bound > 0 && withdrawn > 0 && refused > 0 {
			return
		}
	}
	t.Errorf("offers had %d of %d states, %d binds chose a cell, cells withdrew from %d holds and refused %d starts",
		len(states), all, bound, withdrawn, refused)
}
