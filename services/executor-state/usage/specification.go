package usage

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// Demand maps to the specifications of SKUs, not to the executors that happen to
// be free: a SKU whose executors are all busy, or which has none yet, still
// shows its demand. What a SKU offers is
//
//   - its record in the catalog, if there is one, and
//   - the kinds of executors that are registered with it, in whatever state.
//
// A group fits a SKU when an idle executor of one of these would take a worker,
// by the constraints and resources that allocation goes by: so nothing is
// unmapped that could be allocated. Of what fits, the catalog's shape counts,
// else the one that takes the most workers.
//
// Of several SKUs the best fit is taken, as allocation takes the best fit of
// several executors: the one whose idle executor would have the least left of the
// scarcest resource, which is that of which the SKUs that fit offer the least
// together in proportion to the request; then the least of the next scarcest, and
// so on; then the smallest share of what is not requested; then the lowest name. So
// each group maps to one SKU, and to the same one however busy the executors are.

// sku is what is known of a SKU besides its executors: its record and how they are
// used, or either.
type sku struct {
	// folded is its name for comparisons.
	folded string
	// record is nil for a SKU that is not in the catalog.
	record *model.SKU
	// use counts its executors by what they are used for, disabled those of them that
	// are disabled.
	use      [uses]int
	disabled int
}

// skuOf returns the SKU with that folded name, which is made if need be.
func (t *Tally) skuOf(folded string) *sku {
	s := t.skus[folded]
	if s == nil {
		s = &sku{folded: folded}
		t.skus[folded] = s
	}
	return s
}

// SetSKU records the specification of a SKU; nil for none.
func (t *Tally) SetSKU(name string, record *model.SKU) {
	s := t.skuOf(constraint.Fold(name))
	s.record = record
	t.drop(s)
}

// drop forgets a SKU that has neither a record nor executors.
func (t *Tally) drop(s *sku) {
	if s.record == nil && s.use == [uses]int{} {
		delete(t.skus, s.folded)
	}
}

// listSKUs returns the SKUs in order of folded name.
func (t *Tally) listSKUs() []*sku {
	list := make([]*sku, 0, len(t.skus))
	for _, folded := range slices.Sorted(maps.Keys(t.skus)) {
		list = append(list, t.skus[folded])
	}
	return list
}

// SKU returns the specification of that name, without regard to case.
func (t *Tally) SKU(name string) (model.SKU, bool) {
	s := t.skus[constraint.Fold(name)]
	if s == nil || s.record == nil {
		return model.SKU{}, false
	}
	return *s.record, true
}

// SKUs returns all specifications, in order of name without regard to case.
func (t *Tally) SKUs() (list []model.SKU) {
	for _, s := range t.listSKUs() {
		if s.record != nil {
			list = append(list, *s.record)
		}
	}
	return list
}

// Spelled returns the name of a SKU as the catalog spells it, or else as its executors
// do, or else as it was given.
func (t *Tally) Spelled(name string) string {
	switch s, used := t.skus[constraint.Fold(name)], t.index.SKU(name); {
	case s != nil && s.record != nil:
		return s.record.Name
	case used != nil:
		return used.Name()
	}
	return name
}

// shape returns the specification, or else the most that any of its executors has of
// each resource.
func (t *Tally) shape(s *sku) resource.Vector {
	if s.record != nil {
		return s.record.Resources.WithSlots()
	}
	if used := t.index.SKU(s.folded); used != nil {
		return used.Most()
	}
	return nil
}

// specification is an executor as the record of a SKU specifies it; nothing
// without a record.
func (t *Tally) specification(s *sku) constraint.Host {
	if s.record == nil {
		return constraint.Host{}
	}
	h := constraint.Host{SKU: s.record.Name, Attributes: s.record.Attributes}
	h.Pools = t.poolsOf(h)
	return h
}

// mapper maps demand to SKUs, as they are.
type mapper struct {
	index *match.Index
	skus  []*sku
	// specified and shapes are those of skus, total the sums of shapes.
	specified []constraint.Host
	shapes    []resource.Vector
	total     map[string]float64
}

func (t *Tally) mapper() *mapper {
	m := &mapper{index: t.index, skus: t.listSKUs(), total: map[string]float64{}}
	for _, s := range m.skus {
		m.specified = append(m.specified, t.specification(s))
		shape := t.shape(s)
		m.shapes = append(m.shapes, shape)
		for name, amount := range shape {
			m.total[name] += float64(amount)
		}
	}
	return m
}

// find returns the place of the SKU that a query maps to, and what an idle executor of
// it has for the workers; -1 for none.
func (m *mapper) find(q *match.Query) (place int, best resource.Vector) {
	var places []int
	var fitting []resource.Vector
	for i := range m.skus {
		if shape := m.fit(i, q); shape != nil {
			places, fitting = append(places, i), append(fitting, shape)
		}
	}
	scarce := match.ByScarcity(q.Resources(), func(name string) (free float64) {
		for _, shape := range fitting {
			free += float64(shape[name])
		}
		return free
	})
	place = -1
	for i, shape := range fitting {
		if place < 0 || m.compare(q, scarce, shape, best) < 0 {
			place, best = places[i], shape
		}
	}
	return place, best
}

// compare orders what SKUs have for the workers, the best fit first.
func (m *mapper) compare(q *match.Query, scarce []string, a, b resource.Vector) int {
	for _, name := range scarce {
		if order := cmp.Compare(a[name], b[name]); order != 0 {
			return order
		}
	}
	return cmp.Compare(m.unrequested(a, q.Resources()), m.unrequested(b, q.Resources()))
}

// fit answers what an idle executor of a SKU has for the workers, nil when it
// cannot take one.
func (m *mapper) fit(i int, q *match.Query) resource.Vector {
	s := m.skus[i]
	if s.record != nil && m.shapes[i].Fits(q.Resources()) && q.Matches(m.specified[i]) {
		return m.shapes[i]
	}
	return m.index.Largest(q, s.folded)
}

// unrequested is the largest share of a resource that a worker does not request.
func (m *mapper) unrequested(shape, request resource.Vector) (score float64) {
	for name, amount := range shape {
		if request[name] <= 0 && amount > 0 {
			score = max(score, float64(amount)/max(m.total[name], float64(amount)))
		}
	}
	return score
}
