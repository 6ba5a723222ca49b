package inventory

import (
	"slices"

	"berth.dev/pkg/model"
)

// cohort is the executors with equal attributes, without regard to case. A
// request to disable that goes by attributes holds for cohorts: when one comes or
// goes each cohort is looked at once, and an executor is moved only if it is held
// by a first request or no more by a last one. See sweep.go.
type cohort struct {
	key string
	// attributes are folded, in order.
	attributes []attribute
	hosts      ordered[*host]
	// requests are the ids of those that hold for the cohort, in order; and of
	// those that are about to, or have just ended.
	requests []string
}

// selects says whether the executors of the cohort have all of the attributes,
// which are in order.
func (k *cohort) selects(attributes []attribute) bool {
	at := 0
	for _, wanted := range attributes {
		for at < len(k.attributes) && k.attributes[at].name != wanted.name {
			at++
		}
		if at == len(k.attributes) || k.attributes[at].value != wanted.value {
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

// joinCohort moves the host to the cohort of its executor; nil for none. An
// executor's requests may change by it: it must not be placed.
func (s *disables) joinCohort(h *host, e *model.Executor) {
	if last := h.cohort; last != nil {
		last.hosts.remove(h)
		if last.hosts.len() == 0 {
			delete(s.cohorts, last.key)
			s.inOrder.remove(last)
		}
		h.cohort = nil
	}
	if e == nil {
		return
	}
	key := attributesKey(e.Attributes)
	k := s.cohorts[key]
	if k == nil {
		k = &cohort{key: key, attributes: attributesOf(e.Attributes), hosts: ordered[*host]{compare: compareIDs}}
		k.requests = s.holding(k)
		s.cohorts[key] = k
		s.inOrder.insert(k)
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

// insertID and removeID keep a list of ids in order.
func insertID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Insert(ids, at, id)
}

func removeID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Delete(ids, at, at+1)
}
