package inventory

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
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

// sku is what is known of a SKU: its record, its executors, or both.
type sku struct {
	// folded is its name for comparisons. An executor without a SKU belongs to
	// the one without a name. number tells it apart in fields.
	folded string
	number int32
	// record is nil for a SKU that is not in the catalog.
	record *model.SKU
	// shapes are those of its executors, by key; spellings counts executors by
	// how they spell it, use by what they are used for, shut those disabled.
	shapes    map[string]*shape
	spellings map[string]int
	use       [uses]int
	shut      int
	// free are the sums of each resource over its executors that may be given work.
	free map[string]*sum
	// most is the most that any of its shapes has of each resource; nil when
	// that is to be found out.
	most resource.Vector
}

func (s *sku) addShape(added *shape) { s.shapes[added.key], s.most = added, nil }

func (s *sku) removeShape(gone *shape) {
	delete(s.shapes, gone.key)
	s.most = nil
}

// skuOf answers the SKU with that folded name, which is made if need be.
func (c *Core) skuOf(folded string) *sku {
	s := c.skus[folded]
	if s == nil {
		c.lastSKU++
		s = &sku{folded: folded, number: c.lastSKU, shapes: map[string]*shape{}, spellings: map[string]int{}, free: map[string]*sum{}}
		c.skus[folded] = s
	}
	return s
}

// dropSKU forgets a SKU that has neither a record nor executors.
func (c *Core) dropSKU(s *sku) {
	if s.record == nil && len(s.shapes) == 0 {
		delete(c.skus, s.folded)
	}
}

func (c *Core) setSKU(name string, next *held) {
	s := c.skuOf(constraint.Fold(name))
	s.record = nil
	if next != nil {
		s.record = next.record.(*model.SKU)
	}
	c.dropSKU(s)
}

// listSKUs answers the SKUs in order of folded name.
func (c *Core) listSKUs() []*sku {
	list := make([]*sku, 0, len(c.skus))
	for _, folded := range slices.Sorted(maps.Keys(c.skus)) {
		list = append(list, c.skus[folded])
	}
	return list
}

// name is as the catalog spells it, or else the first of its executors'
// spellings.
func (s *sku) name() string {
	if s.record != nil {
		return s.record.Name
	}
	name := ""
	for spelling := range s.spellings {
		if name == "" || spelling < name {
			name = spelling
		}
	}
	return name
}

// shape is the specification, or else the most that any of its executors has of
// each resource.
func (s *sku) shape() resource.Vector {
	if s.record != nil {
		return s.record.Resources.WithSlots()
	}
	if s.most == nil {
		s.most = resource.Vector{}
		for _, shape := range s.shapes {
			for i, name := range shape.names {
				s.most[name] = max(s.most[name], shape.capacity[i])
			}
		}
	}
	return s.most
}

// specification is an executor as the record of a SKU specifies it; nothing
// without a record.
func (c *Core) specification(s *sku) constraint.Host {
	if s.record == nil {
		return constraint.Host{}
	}
	h := constraint.Host{SKU: s.record.Name, Attributes: s.record.Attributes}
	h.Pools = c.poolsOf(h)
	return h
}

// mapper maps demand to SKUs, as they are.
type mapper struct {
	core *Core
	skus []*sku
	// specified and shapes are those of skus, total the sums of shapes.
	specified []constraint.Host
	shapes    []resource.Vector
	total     map[string]float64
}

func (c *Core) mapper() *mapper {
	m := &mapper{core: c, skus: c.listSKUs(), total: map[string]float64{}}
	for _, s := range m.skus {
		m.specified = append(m.specified, c.specification(s))
		shape := s.shape()
		m.shapes = append(m.shapes, shape)
		for name, amount := range shape {
			m.total[name] += float64(amount)
		}
	}
	return m
}

// find answers the place of the SKU that a query maps to, and what an idle
// executor of it has for the workers; -1 for none.
func (m *mapper) find(q *query) (place int, offer resource.Vector) {
	var places []int
	var offers []resource.Vector
	for i := range m.skus {
		if shape := m.fit(i, q); shape != nil {
			places, offers = append(places, i), append(offers, shape)
		}
	}
	scarce := byScarcity(q.resources, func(name string) (free float64) {
		for _, offer := range offers {
			free += float64(offer[name])
		}
		return free
	})
	place = -1
	for i, shape := range offers {
		if place < 0 || m.compare(q, scarce, shape, offer) < 0 {
			place, offer = places[i], shape
		}
	}
	return place, offer
}

// compare orders what SKUs have for the workers, the best fit first.
func (m *mapper) compare(q *query, scarce []string, a, b resource.Vector) int {
	for _, name := range scarce {
		if order := cmp.Compare(a[name], b[name]); order != 0 {
			return order
		}
	}
	return cmp.Compare(m.unrequested(a, q.resources), m.unrequested(b, q.resources))
}

// fit answers what an idle executor of a SKU has for the workers, nil when it
// cannot take one.
func (m *mapper) fit(i int, q *query) resource.Vector {
	s := m.skus[i]
	if s.record != nil && m.shapes[i].Fits(q.resources) {
		if ok, _ := q.matcher.Match(m.specified[i]); ok {
			return m.shapes[i]
		}
	}
	if k := m.core.largestOf(q, s); k != nil {
		return k.allowed(q.role)
	}
	return nil
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
