package match

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth.dev/pkg/constraint"
)

// These bound how many executors, and how many groups of them, a text names.
const (
	maxNamed  = 3
	maxGroups = 3
)

// fullGroup holds the executors that are full after equally many workers of a batch, and the resources
// of which they then have too little.
type fullGroup struct {
	workers   int64
	lacks     string
	executors []string
}

// failTakers adds, for the executors that take some workers of a batch of which others do not fit, why they
// take no more. It describes those that are full.
func (x *explainer) failTakers(s *search) string {
	slices.SortFunc(x.takers, Compare)
	s.restartCount()
	sum := &sums{search: s}
	if s.constraints.SameShape && s.only == nil {
		for _, e := range x.takers {
			sum.add(e, x.timesOn(s, e))
		}
		s.restartCount()
	}
	groups := map[failure]*fullGroup{}
	for _, e := range x.takers {
		if sum.best != nil && e.shape != sum.best {
			x.failed[failure{check: constraint.Check{Name: "sameShape", Want: "the shape of the reservation's workers",
				Have: "another shape"}}]++
			continue
		}
		n := x.timesOn(s, e)
		fits := x.align(e.shape.layout).times(e.free, s.needed)
		if placed := s.place(e.class.index, n); placed < fits {
			x.failed[failure{check: constraint.Check{Name: "spread",
				Want: fmt.Sprintf("at most %d per %s", s.spread, x.constraints.Spread.By),
				Have: strconv.FormatInt(s.spread, 10)}}]++
			continue
		}
		f, lacks := x.lacksAfter(e, fits)
		x.failed[f]++
		group := failure{name: lacks, have: fits}
		if groups[group] == nil {
			groups[group] = &fullGroup{workers: fits, lacks: lacks}
		}
		groups[group].executors = append(groups[group].executors, e.ID)
	}
	return fullText(groups)
}

// timesOn returns how many workers fit on an executor that passes all checks.
func (x *explainer) timesOn(s *search, e *Executor) int64 {
	return x.align(e.shape.layout).times(e.free, s.mostOn(e))
}

// lacksAfter returns the check that an executor fails after n workers of the batch, and all resources of
// which it then has too little.
func (x *explainer) lacksAfter(e *Executor, n int64) (f failure, names string) {
	a := x.align(e.shape.layout)
	var lacks []string
	for i, amount := range a.need {
		if have := a.free(e.free, i) - n*amount; have < amount {
			if lacks = append(lacks, a.layout.names[i]); len(lacks) == 1 {
				f = failure{kind: "full.", name: a.layout.names[i], have: have}
			}
		}
	}
	return f, strings.Join(lacks, ", ")
}

// fullText describes the executors that are full, the groups with the most executors first.
func fullText(groups map[failure]*fullGroup) string {
	var list []*fullGroup
	for _, g := range groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *fullGroup) int {
		return cmp.Or(cmp.Compare(len(b.executors), len(a.executors)), cmp.Compare(b.workers, a.workers),
			cmp.Compare(a.lacks, b.lacks))
	})
	var texts []string
	for i, g := range list {
		if i == maxGroups {
			more := 0
			for _, other := range list[i:] {
				more += len(other.executors)
			}
			texts = append(texts, fmt.Sprintf("%d more are full after other numbers of workers", more))
			break
		}
		verb := "are"
		if len(g.executors) == 1 {
			verb = "is"
		}
		texts = append(texts, fmt.Sprintf("%s %s full after %d of the gang's workers: %s", namesOf(g.executors), verb, g.workers,
			g.lacks))
	}
	return strings.Join(texts, "; ")
}

// namesOf joins the names of executors; of many it names some.
func namesOf(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(slices.Clone(names[:maxNamed]), fmt.Sprintf("%d more", more))
	}
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
