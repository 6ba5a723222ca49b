package inventory

import (
	"iter"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// cohort is the executors with equal attributes, without regard to case. A
// request to disable that goes by attributes holds for cohorts: when one comes or
// goes each cohort is looked at once, and an executor only if it is held by a first
// request or no more by a last one.
type cohort struct {
	key string
	// attributes are folded, names and values.
	attributes map[string]string
	hosts      ordered[*host]
	// requests are the ids of those that hold for the cohort, in order.
	requests []string
}

// selects says whether the executors of the cohort have all of the attributes,
// which are folded.
func (k *cohort) selects(attributes map[string]string) bool {
	for name, value := range attributes {
		if have, ok := k.attributes[name]; !ok || have != value {
			return false
		}
	}
	return true
}

// holds says whether a request that goes by attributes holds for the cohort.
func (k *cohort) holds(request string) bool {
	_, held := slices.BinarySearch(k.requests, request)
	return held
}

// folded answers the attributes in the one spelling that is compared.
func folded(attributes map[string]string) map[string]string {
	list := make(map[string]string, len(attributes))
	for name, value := range attributes {
		list[constraint.Fold(name)] = constraint.Fold(value)
	}
	return list
}

// joinCohort moves the host to the cohort of its executor; nil for none. An
// executor's requests may change by it: it must not be placed.
func (s *disables) joinCohort(h *host, e *model.Executor) {
	if last := h.cohort; last != nil {
		last.hosts.remove(h)
		if last.hosts.len() == 0 {
			delete(s.cohorts, last.key)
		}
		h.cohort = nil
	}
	if e == nil {
		return
	}
	key := attributesKey(e.Attributes)
	k := s.cohorts[key]
	if k == nil {
		k = &cohort{key: key, attributes: folded(e.Attributes), hosts: ordered[*host]{compare: compareIDs}}
		k.requests = s.holding(k)
		s.cohorts[key] = k
	}
	k.hosts.insert(h)
	h.cohort = k
}

// holding answers the ids of the requests that go by attributes and select the
// cohort, in order.
func (s *disables) holding(k *cohort) []string {
	var list []string
	for id, attributes := range s.byKind {
		if k.selects(attributes) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// cohortsOf gives the cohorts that attributes select, in no order.
func (s *disables) cohortsOf(attributes map[string]string) iter.Seq[*cohort] {
	attributes = folded(attributes)
	return func(yield func(*cohort) bool) {
		for _, k := range s.cohorts {
			if k.selects(attributes) && !yield(k) {
				return
			}
		}
	}
}

// insertID and removeID keep a list of ids in order.
func insertID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Insert(ids, at, id)
}

func removeID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Delete(ids, at, at+1)
}
