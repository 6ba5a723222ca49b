package sim

import (
	"io"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// TestSeedsPlaySeams checks that some seeds replace a drained worker of a gang with a spread, let a
// gang grow while it runs, and let a reservation wait for too long.
func TestSeedsPlaySeams(t *testing.T) {
	replaced, grown, late := 0, 0, 0
	for seed := uint64(1); seed <= 300; seed++ {
		w := NewWorld(seed, io.Discard)
		if !w.seams.enabled {
			continue
		}
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		versions := map[string]*model.Reservation{}
		for _, revision := range w.store.History() {
			for _, c := range revision.Changes {
				ref, ok := w.space.Parse(c.Key)
				if !ok || c.Deleted || ref.Kind != model.KindTaskChunk && ref.Kind != model.KindReservation {
					continue
				}
				record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
				if err != nil {
					t.Fatal(err)
				}
				switch record := record.(type) {
				case *model.TaskChunk:
					for _, tw := range record.Workers {
						if v := versions[record.UID]; tw.Requeue && tw.Reason == fault.ReasonExecutorDraining &&
							v != nil && v.Spec.Constraints.Spread.Max > 0 {
							replaced++
						}
					}
				case *model.Reservation:
					if versions[record.UID] = record; record.Reason == fault.ReasonQueueTimeout {
						late++
					}
					for _, v := range versions {
						if v.Key == record.Key && v.State == model.Active && record.State == model.Active &&
							record.Parent == "" && v.Epoch < record.Epoch && v.Spec.Constraints.Spread == record.Spec.Constraints.Spread {
							grown++
						}
					}
				}
			}
		}
		if replaced > 0 && grown > 0 && late > 0 {
			return
		}
	}
	t.Errorf("%d drained workers of gangs with a spread were replaced, %d gangs grew, %d reservations waited for too long",
		replaced, grown, late)
}
