package match

import (
	"slices"
	"strings"

	"berth.dev/pkg/resource"
)

// form is the shapes that have the same resources, and shares set aside for the
// same roles, however much of each: their amounts compare one by one. Fleets have
// few forms.
type form struct {
	key string
	// names are the resources, in order; roles are folded, in order.
	names, roles []string
	// total are the sums of each resource over all executors that may be given
	// work, shared with the other forms.
	total []*sum
	// shapes counts its shapes.
	shapes int
	// open are the executors that may be given work, by what is free; all are
	// the executors, by what they have when they are idle.
	open, all field
}

// formOf answers the form of a shape with these names and shares, which is made
// if need be.
func (ix *Index) formOf(names []string, shares []share) *form {
	roles := make([]string, len(shares))
	for i, s := range shares {
		roles[i] = s.role
	}
	key := strings.Join(names, ",") + "|" + strings.Join(roles, ",")
	if f := ix.formByKey[key]; f != nil {
		return f
	}
	f := &form{key: key, names: names, roles: roles}
	for _, name := range names {
		if ix.total[name] == nil {
			ix.total[name] = &sum{}
		}
		f.total = append(f.total, ix.total[name])
	}
	f.open = field{width: len(names) * (1 + len(roles)), limit: ix.Limits.Block}
	f.all = f.open
	ix.formByKey[key] = f
	ix.forms = append(ix.forms, f)
	return f
}

// leaveForm counts a shape less, and forgets the form with its last one.
func (ix *Index) leaveForm(f *form) {
	if f.shapes--; f.shapes == 0 {
		delete(ix.formByKey, f.key)
		ix.forms = slices.DeleteFunc(ix.forms, func(other *form) bool { return other == f })
	}
}

// aim is a request in the order of a form.
type aim struct {
	form *form
	// need is how much of each resource a worker takes, share the place of its
	// role's share plus one, 0 for none.
	need  []int64
	share int
	// requested are the places of the resources of which a worker takes some, the
	// scarcest first; others are those of the others. total are the sums of all
	// executors that may be given work, for the others.
	requested, others []int
	total             []float64
}

// aimAt answers the request in the order of a form; nil where the form lacks a
// resource.
func (ix *Index) aimAt(f *form, resources resource.Vector, role string) *aim {
	ix.Spent += workOfForm
	a := &aim{form: f, need: make([]int64, len(f.names))}
	for name, amount := range resources {
		at, found := slices.BinarySearch(f.names, name)
		switch {
		case found:
			a.need[at] = amount
		case amount > 0:
			return nil
		}
	}
	if role != "" {
		a.share = 1 + slices.Index(f.roles, role)
	}
	return a
}

// weigh puts the resources in order, the scarcest that is requested first.
func (a *aim) weigh(scarce []string) {
	if a.total != nil {
		return
	}
	a.total = make([]float64, len(a.need))
	for _, name := range scarce {
		at, _ := slices.BinarySearch(a.form.names, name)
		a.requested = append(a.requested, at)
	}
	for i, sum := range a.form.total {
		if a.need[i] == 0 {
			a.others = append(a.others, i)
			a.total[i] = sum.float()
		}
	}
}

// free is how much of a resource the point has for the worker.
func (a *aim) free(point []int64, i int) int64 {
	free := point[i]
	if a.share > 0 {
		free += point[a.share*len(a.need)+i]
	}
	return free
}

// fits reports whether a worker fits at the point.
func (a *aim) fits(point []int64) bool {
	if a.share == 0 {
		for i, amount := range a.need {
			if point[i] < amount {
				return false
			}
		}
		return true
	}
	for i, amount := range a.need {
		if a.free(point, i) < amount {
			return false
		}
	}
	return true
}

// times is how many workers fit at the point, at most limit.
func (a *aim) times(point []int64, limit int64) int64 {
	for i, amount := range a.need {
		if amount > 0 {
			limit = min(limit, a.free(point, i)/amount)
		}
	}
	return limit
}

// leftover appends what one worker more would leave at the point of each resource
// that it requests, the scarcest first.
func (a *aim) leftover(list []int64, point []int64) []int64 {
	for _, i := range a.requested {
		list = append(list, max(0, a.free(point, i)-a.need[i]))
	}
	return list
}

// score is the largest share of all that is free of a resource which the point has,
// of those that are not requested.
func (a *aim) score(point []int64) (score float64) {
	for _, i := range a.others {
		if free := a.free(point, i); free > 0 {
			score = max(score, float64(free)/a.total[i])
		}
	}
	return score
}

// short answers the first resource of which a point has less than needed, and
// how much; -1 for none.
func (a *aim) short(point []int64) (at int, have int64) {
	for i, amount := range a.need {
		if have := a.free(point, i); have < amount {
			return i, have
		}
	}
	return -1, 0
}
