package match

import (
	"slices"
	"strings"
)

// layout holds the shapes with the same resource names and with shares for the same
// roles. The amounts of their executors are vectors with the same columns. A fleet has
// few layouts.
type layout struct {
	key string
	// names lists the resources in order, and roles the folded roles in order.
	names, roles []string
	// fleetFree holds the sum of each resource over all eligible executors of all layouts.
	fleetFree []*sum
	// shapes counts the shapes of the layout.
	shapes int
	// free indexes the listed executors by their free amounts. idle indexes all executors by
	// the amounts that are free without leases.
	free, idle capacityIndex
}

// layoutOf returns the layout of a shape with these names and shares, and creates it if
// there is none.
func (ix *Index) layoutOf(names []string, shares []share) *layout {
	roles := make([]string, len(shares))
	for i, s := range shares {
		roles[i] = s.role
	}
	key := strings.Join(names, ",") + "|" + strings.Join(roles, ",")
	if l := ix.layoutByKey[key]; l != nil {
		return l
	}
	l := &layout{key: key, names: names, roles: roles}
	for _, name := range names {
		l.fleetFree = append(l.fleetFree, sumOf(ix.fleetFree, name))
	}
	l.free = capacityIndex{width: len(names) * (1 + len(roles)), limit: ix.Limits.Block}
	l.idle = l.free
	ix.layoutByKey[key] = l
	ix.layouts = append(ix.layouts, l)
	return l
}

// leaveLayout removes one shape from the count, and deletes the layout with its last
// shape.
func (ix *Index) leaveLayout(l *layout) {
	if l.shapes--; l.shapes == 0 {
		delete(ix.layoutByKey, l.key)
		ix.layouts = slices.DeleteFunc(ix.layouts, func(other *layout) bool { return other == l })
	}
}

// alignedRequest is the request of one worker, with its amounts in the order of a layout.
type alignedRequest struct {
	layout *layout
	// need is how much of each resource a worker uses. share is the place of its role's
	// share plus one; 0 for none.
	need  []int64
	share int
	// requested holds the places of the resources that a worker uses, the scarcest first.
	// others holds the other places. total holds, for each of the others, the sum over all
	// eligible executors.
	requested, others []int
	total             []float64
}

// align returns the request in the order of a layout; nil if the layout lacks a requested
// resource.
func (ix *Index) align(l *layout, q *Query) *alignedRequest {
	ix.Work += workOfLayout
	a := &alignedRequest{layout: l, need: make([]int64, len(l.names))}
	for name, amount := range q.resources {
		at, found := slices.BinarySearch(l.names, name)
		switch {
		case found:
			a.need[at] = amount
		case amount > 0:
			return nil
		}
	}
	if q.role != "" {
		a.share = 1 + slices.Index(l.roles, q.role)
	}
	return a
}

// rank sets the order in which resources are compared: the requested resources, the
// scarcest first.
func (a *alignedRequest) rank(scarce []string) {
	if a.total != nil {
		return
	}
	a.total = make([]float64, len(a.need))
	for _, name := range scarce {
		at, _ := slices.BinarySearch(a.layout.names, name)
		a.requested = append(a.requested, at)
	}
	for i, sum := range a.layout.fleetFree {
		if a.need[i] == 0 {
			a.others = append(a.others, i)
			a.total[i] = sum.float()
		}
	}
}

// free returns how much of a resource a worker of the request may use at a point.
func (a *alignedRequest) free(point []int64, i int) int64 {
	free := point[i]
	if a.share > 0 {
		free += point[a.share*len(a.need)+i]
	}
	return free
}

// fits reports whether a worker fits at the point.
func (a *alignedRequest) fits(point []int64) bool {
	if a.share == 0 { // the inner loop of every search
		for i, amount := range a.need {
			if point[i] < amount {
				return false
			}
		}
		return true
	}
	at, _ := a.lacks(point)
	return at < 0
}

// lacks returns the first resource of which a point has less than a worker needs, and the
// amount at the point; -1 if the worker fits.
func (a *alignedRequest) lacks(point []int64) (at int, have int64) {
	for i, amount := range a.need {
		if have := a.free(point, i); have < amount {
			return i, have
		}
	}
	return -1, 0
}

// times returns how many workers fit at the point, at most limit.
func (a *alignedRequest) times(point []int64, limit int64) int64 {
	for i, amount := range a.need {
		if amount > 0 {
			limit = min(limit, a.free(point, i)/amount)
		}
	}
	return limit
}

// leftover appends what one more worker would leave at the point: the amount of each
// requested resource, the scarcest first.
func (a *alignedRequest) leftover(list []int64, point []int64) []int64 {
	for _, i := range a.requested {
		list = append(list, max(0, a.free(point, i)-a.need[i]))
	}
	return list
}

// score returns the largest share of the fleet's free amount that the point has, over the
// resources that the worker does not request.
func (a *alignedRequest) score(point []int64) (score float64) {
	for _, i := range a.others {
		if free := a.free(point, i); free > 0 {
			score = max(score, float64(free)/a.total[i])
		}
	}
	return score
}
