package inventory

import "berth.dev/pkg/model"

// rating returns the share of the scarcest requested resource that is left on the executors of
// a lease once its workers use them, in percent rounded down. It returns nil for a candidate
// that is not held: nobody compares the ratings of other leases. The workers of pinned volumes
// use what their volumes hold already.
func (c *Core) rating(e model.Candidate, placements []model.Placement, pinned map[int32]*model.Volume) *int32 {
	if !e.Hold {
		return nil
	}
	var on []*allocation // the executors of the lease, each once
	counted := map[uint32]bool{}
	added := 0 // workers that use more of an executor
	for _, p := range placements {
		if !counted[p.Ordinal] {
			counted[p.Ordinal] = true
			on = append(on, c.allocations[p.Ordinal])
		}
		if pinned[p.Worker.Index] == nil {
			added++
		}
	}
	rating := 1.0
	for name, each := range e.Constraints.Resources {
		if each == 0 {
			continue
		}
		total, used := 0.0, float64(added)*float64(each)
		for _, a := range on {
			total += float64(a.host.Record.Resources[name])
			used += float64(a.Used[name])
		}
		rating = min(rating, (total-used)/total)
	}
	percent := int32(100*max(rating, 0) + 1e-9) // 0.07 of 100 is 7, although the product is below 7
	return &percent
}
