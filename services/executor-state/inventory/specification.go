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
// else that of the kind of which there are most.
//
// Of several SKUs the best fit is taken, as allocation takes the best fit of
// several executors: what would be left of each resource of an idle executor,
// as a share of what the SKUs offer of it together, is compared by its largest;
// the smallest wins, then the lowest name. So each group maps to one SKU, and to
// the same one however busy the executors are.

// sku is what is known of a SKU: its record, its executors, or both.
type sku struct {
	// folded is its name for comparisons. An executor without a SKU belongs to
	// the one without a name.
	folded string
	// record is nil for a SKU that is not in the catalog.
	record  *model.SKU
	classes map[string]*class
	// at is its place in the latest listing.
	at int
}

// skuOf answers the SKU with that folded name, which is made if need be.
func (c *Core) skuOf(folded string) *sku {
	s := c.skus[folded]
	if s == nil {
		s = &sku{folded: folded, classes: map[string]*class{}}
		c.skus[folded] = s
	}
	return s
}

// dropSKU forgets a SKU that has neither a record nor executors.
func (c *Core) dropSKU(s *sku) {
	if s.record == nil && len(s.classes) == 0 {
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
		s := c.skus[folded]
		s.at = len(list)
		list = append(list, s)
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
	for _, class := range s.classes {
		if name == "" || class.host.SKU < name {
			name = class.host.SKU
		}
	}
	return name
}

// compareKinds orders classes of which there are more executors first.
func compareKinds(a, b *class) int {
	return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.key, b.key))
}

// shape is the typical executor of the SKU: its specification, or else the kind
// of which there are most.
func (s *sku) shape() resource.Vector {
	if s.record != nil {
		return s.record.Resources.WithSlots()
	}
	return slices.SortedFunc(maps.Values(s.classes), compareKinds)[0].resources
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
	skus []*sku
	// specifications and shapes are those of skus, total the sums of shapes.
	specifications []constraint.Host
	shapes         []resource.Vector
	total          map[string]float64
	// kinds are for each SKU the kind that fits the group at hand.
	kinds []*class
}

func (c *Core) mapper() *mapper {
	m := &mapper{skus: c.listSKUs(), total: map[string]float64{}}
	for _, s := range m.skus {
		shape := s.shape()
		m.specifications = append(m.specifications, c.specification(s))
		m.shapes = append(m.shapes, shape)
		for name, amount := range shape {
			m.total[name] += float64(amount)
		}
	}
	m.kinds = make([]*class, len(m.skus))
	return m
}

// find answers the SKU that a group maps to, nil for none, and what an idle
// executor of it has for the group's workers.
func (m *mapper) find(d *demand, q *query) (*sku, resource.Vector) {
	clear(m.kinds)
	for _, e := range q.eligible {
		at := e.class.sku.at
		if m.kinds[at] == nil || compareKinds(e.class, m.kinds[at]) < 0 {
			m.kinds[at] = e.class
		}
	}
	var best *sku
	var offer resource.Vector
	least := 0.0
	for i, s := range m.skus {
		shape := m.fit(i, d, q)
		if shape == nil {
			continue
		}
		if score := m.leftOver(shape, d.constraints.Resources); best == nil || score < least {
			best, offer, least = s, shape, score
		}
	}
	return best, offer
}

// fit answers what an idle executor of a SKU has for the group's workers, nil
// when it cannot take one.
func (m *mapper) fit(i int, d *demand, q *query) resource.Vector {
	if m.skus[i].record != nil && m.shapes[i].Fits(d.constraints.Resources) {
		if ok, _ := q.matcher.Match(m.specifications[i]); ok {
			return m.shapes[i]
		}
	}
	if m.kinds[i] != nil {
		return m.kinds[i].allowed(d.constraints.Role)
	}
	return nil
}

// leftOver is the largest share of a resource that one worker would leave.
func (m *mapper) leftOver(shape, each resource.Vector) (score float64) {
	for name, amount := range shape {
		if left := amount - each[name]; left > 0 {
			score = max(score, float64(left)/max(m.total[name], float64(amount)))
		}
	}
	return score
}
