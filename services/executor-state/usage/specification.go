package usage

import (
	"cmp"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// Demand maps to the specifications of SKUs, not to executors that are free at the
// moment. So a SKU shows its demand even if all its executors are busy, or if it has
// none. A SKU offers
//
//   - its record in the catalog, if there is one, and
//   - the kinds of executors that are registered with it, in any state.
//
// A group fits a SKU if a worker would fit on an idle executor of the record or of one of
// these kinds, by the same constraints and resources as in allocation. So demand that
// could be allocated is never unmapped. If the worker fits on the shape in the catalog,
// that shape counts. Otherwise the shape on which the most workers fit counts.
//
// If a group fits several SKUs, it maps to the best fit, as in allocation: the SKU whose
// idle executor would have the least left of the scarcest resource, then of the next
// scarcest, and so on. The scarcest resource is the resource of which the fitting SKUs
// together offer the least in proportion to the request. Next, the smallest share of
// resources that are not requested decides, then the lowest name. So each group maps to
// one SKU, and the mapping does not depend on how busy the executors are.

// sku holds the record of a SKU and the counts of its executors. Either may be missing.
type sku struct {
	// folded is the SKU's name for comparisons.
	folded string
	// record is nil for a SKU that is not in the catalog.
	record *model.SKU
	// use counts the SKU's executors by use. disabled counts the disabled executors among
	// them.
	use      [uses]int
	disabled int
	// neededAt is the latest time at which this core saw at most maxIdle spare executors. The
	// cooldown of the scale rule starts then. It does not follow from records.
	neededAt time.Time
}

// skuOf returns the SKU with a folded name, and creates it if there is none.
func (t *Tally) skuOf(folded string) *sku {
	s := t.skus[folded]
	if s == nil {
		s = &sku{folded: folded}
		t.skus[folded] = s
	}
	return s
}

// observe notes that a number of executors is spare at a time. If it is at most maxIdle,
// the cooldown restarts. Without maxIdle, every number is.
func (s *sku) observe(now time.Time, spare int64) {
	if s.record != nil && s.record.Scale != nil {
		if most := s.record.Scale.MaxIdle; most != nil && spare > int64(*most) {
			return
		}
	}
	if now.After(s.neededAt) {
		s.neededAt = now
	}
}

// Observe notes how many executors are spare by a usage of this tally at a time.
func (t *Tally) Observe(now time.Time, u Usage) {
	for _, row := range u.SKUs {
		t.skus[constraint.Fold(row.SKU)].observe(now, row.spare())
	}
}

// StartCooldowns starts the cooldowns of all SKUs.
func (t *Tally) StartCooldowns(now time.Time) {
	for _, s := range t.skus {
		s.neededAt = now
	}
}

// SetSKU sets the record of a SKU at a time; nil deletes it.
func (t *Tally) SetSKU(now time.Time, name string, record *model.SKU) {
	s := t.skuOf(constraint.Fold(name))
	s.observe(now, int64(s.use[Idle])) // by the rule that ends
	s.record = record
	t.dropUnused(s)
}

// dropUnused deletes a SKU that has neither a record nor executors.
func (t *Tally) dropUnused(s *sku) {
	if s.record == nil && s.use == [uses]int{} {
		delete(t.skus, s.folded)
	}
}

// SKU returns the record with a name, without regard to case.
func (t *Tally) SKU(name string) (model.SKU, bool) {
	s := t.skus[constraint.Fold(name)]
	if s == nil || s.record == nil {
		return model.SKU{}, false
	}
	return *s.record, true
}

// SKUs returns all records, in order of name without regard to case.
func (t *Tally) SKUs() (list []model.SKU) {
	for _, s := range inOrder(t.skus) {
		if s.record != nil {
			list = append(list, *s.record)
		}
	}
	return list
}

// Spelled returns the name of a SKU as the catalog spells it, otherwise as its executors
// spell it, otherwise as given.
func (t *Tally) Spelled(name string) string {
	switch s, used := t.skus[constraint.Fold(name)], t.index.SKU(name); {
	case s != nil && s.record != nil:
		return s.record.Name
	case used != nil:
		return used.Name()
	}
	return name
}

// Unknown returns an error if a SKU is neither in the catalog nor the SKU of a registered executor.
func (t *Tally) Unknown(name string) error {
	s := t.skus[constraint.Fold(name)]
	if s != nil && (s.record != nil || s.use != [uses]int{}) || t.index.SKU(name) != nil {
		return nil
	}
	known := func(yield func(string) bool) {
		for folded := range t.skus {
			if !yield(t.Spelled(folded)) {
				return
			}
		}
	}
	return fault.New(fault.NotFound, fault.ReasonNotFound, "no SKU %s is in the catalog or registered%s", name,
		fault.DidYouMean(name, known))
}

// shape returns the resources in the record of a SKU. Without a record it returns the highest
// amount of each resource that any of its executors has.
func (t *Tally) shape(s *sku) resource.Vector {
	if s.record != nil {
		return s.record.Resources.WithSlots()
	}
	if used := t.index.SKU(s.folded); used != nil {
		return used.Most()
	}
	return nil
}

// specification returns a host as the record of a SKU specifies it; empty if there is no
// record.
func (t *Tally) specification(s *sku) constraint.Host {
	if s.record == nil {
		return constraint.Host{}
	}
	h := constraint.Host{SKU: s.record.Name, Attributes: s.record.Attributes}
	h.Pools = t.poolsOf(h)
	return h
}

// mapper maps demand to the current SKUs.
type mapper struct {
	index *match.Index
	skus  []*sku
	// specified and shapes are in the order of skus. total holds the sums of shapes.
	specified []constraint.Host
	shapes    []resource.Vector
	total     map[string]float64
}

func (t *Tally) mapper() *mapper {
	m := &mapper{index: t.index, skus: inOrder(t.skus), total: map[string]float64{}}
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

// find returns the place of the SKU to which a query maps, and what its workers may use
// on an idle executor of that SKU; -1 if no SKU fits.
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

// compare orders the resources of SKUs by fit, the best first.
func (m *mapper) compare(q *match.Query, scarce []string, a, b resource.Vector) int {
	for _, name := range scarce {
		if order := cmp.Compare(a[name], b[name]); order != 0 {
			return order
		}
	}
	return cmp.Compare(m.unrequested(a, q.Resources()), m.unrequested(b, q.Resources()))
}

// fit returns what the workers may use on an idle executor of a SKU; nil if no worker fits.
func (m *mapper) fit(i int, q *match.Query) resource.Vector {
	s := m.skus[i]
	if s.record != nil && m.shapes[i].Fits(q.Resources()) && q.Matches(m.specified[i]) {
		return m.shapes[i]
	}
	return m.index.Largest(q, s.folded)
}

// unrequested returns the largest share of the total that the shape has of a resource
// that the workers do not request.
func (m *mapper) unrequested(shape, request resource.Vector) (score float64) {
	for name, amount := range shape {
		if request[name] <= 0 && amount > 0 {
			score = max(score, float64(amount)/max(m.total[name], float64(amount)))
		}
	}
	return score
}
