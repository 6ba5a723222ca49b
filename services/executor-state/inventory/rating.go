package inventory

import "berth.dev/pkg/model"

// rating returns the share of the scarcest requested resource that is left on all executors that
// match once the workers of a candidate use theirs, in percent rounded down. It returns nil for a
// candidate that is not held: nobody compares the ratings of other leases. The workers of pinned
// volumes use what their volumes hold already.
func (c *Core) rating(e model.Candidate, placements []model.Placement, pinned map[int32]*model.Volume) *int32 {
	if !e.Hold {
		return nil
	}
	added := 0 // workers that use more of an executor
	for _, p := range placements {
		if pinned[p.Worker.Index] == nil {
			added++
		}
	}
	percent := int32(100*c.index.Left(e.Constraints, added) + 1e-9) // 0.07 of 100 is 7, although the product is below 7
	return &percent
}
