package inventory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/pkg/model"
)

// TestCycleGrantsLikeSingleCandidates compares two ways to send reservations. One cycle has
// an ordered prefix of every queue. In the other way, each reservation is sent alone, after
// the reservation before it in its queue was granted. Both get the same leases on the same
// executors.
func TestCycleGrantsLikeSingleCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		registers := make([]Register, rapid.IntRange(0, 12).Draw(t, "executors"))
		for i := range registers {
			registers[i] = drawRegister(t, fmt.Sprintf("h%d", i))
		}
		together, single := lead(DefaultConfig()), lead(DefaultConfig())
		var entries [2][]model.Candidate
		kinds := rapid.SliceOfN(rapid.Custom(drawConstraints), 1, 4).Draw(t, "kinds")
		for _, r := range []*rig{together, single} {
			for _, g := range registers {
				r.ready(g)
			}
		}
		for i := range rapid.IntRange(1, 16).Draw(t, "reservations") {
			k := rapid.SampledFrom(kinds).Draw(t, "kind")
			n := rapid.IntRange(1, 5).Draw(t, "workers")
			for side, r := range []*rig{together, single} {
				entries[side] = append(entries[side], r.queue(fmt.Sprintf("r%d", i), n, k))
			}
		}
		together.cycle(entries[0]...)
		stopped := map[string]bool{}
		for _, e := range entries[1] {
			if !stopped[e.Group] {
				stopped[e.Group] = single.cycle(single.entry(e.UID))[0].Result != model.Granted
			}
		}
		leases := func(r *rig) map[string][]model.Placement {
			all := map[string][]model.Placement{}
			for _, e := range entries[0] {
				all[e.UID] = r.leased(e.UID)
			}
			return all
		}
		if diff := cmp.Diff(leases(single), leases(together)); diff != "" {
			t.Fatalf("one by one, and in one cycle (-one by one +together):\n%s", diff)
		}
	})
}
