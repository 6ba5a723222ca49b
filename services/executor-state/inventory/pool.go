package inventory

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// PutPool is the request to keep the record of a pool. One without attributes
// is made of the executors whose attribute `pool` is its name, as it is without
// a record. The reply's Value is the *model.Pool as it is kept.
type PutPool struct{ Pool model.Pool }

// DeletePool is the request to forget a pool; of one that is not kept it
// succeeds. The reply's Value is a [PoolDeleted].
type DeletePool struct{ Name string }

// PoolDeleted answers DeletePool.
type PoolDeleted struct{}

// pool is a record of a pool, ready to be matched. Names of pools are compared
// without regard to case, so they are kept by their folded names.
type pool struct {
	record  *model.Pool
	members constraint.Matcher
}

func (c *Core) putPool(r PutPool) (*model.Pool, error) {
	next := r.Pool
	var bad violations
	bad.name("name", next.Name, maxName)
	bad.attributes("attributes", next.Attributes)
	if next.LostAfter != nil && *next.LostAfter < 0 {
		bad.add(fault.ReasonInvalid, "lostAfter", "must not be negative, is %v", *next.LostAfter)
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	if len(next.Attributes) == 0 {
		next.Attributes = map[string]string{constraint.PoolAttribute: next.Name}
	}
	next.UpdatedAt = c.now
	if known := c.pools[constraint.Fold(next.Name)]; known != nil {
		switch {
		case known.record.Name != next.Name:
			return nil, fault.BadField(fault.ReasonDuplicate, "name", "is the same as %q but for case", known.record.Name)
		case samePool(known.record, &next):
			return known.record, nil
		}
	}
	if n := len(c.pools); n >= c.cfg.MaxCatalog && c.pools[constraint.Fold(next.Name)] == nil {
		return nil, catalogFull("pools", n, c.cfg.MaxCatalog)
	}
	c.decide(model.Effect{Puts: []model.Record{&next}})
	return &next, nil
}

// catalogFull refuses one record more.
func catalogFull(of string, n, most int) error {
	return fault.New(fault.Exhausted, fault.ReasonTooLarge, "%d %s are recorded, at most %d may be (max-catalog); delete one", n, of, most)
}

func samePool(a, b *model.Pool) bool {
	return maps.Equal(a.Attributes, b.Attributes) &&
		(a.LostAfter == nil) == (b.LostAfter == nil) && (a.LostAfter == nil || *a.LostAfter == *b.LostAfter)
}

func (c *Core) deletePool(r DeletePool) (PoolDeleted, error) {
	var bad violations
	bad.name("name", r.Name, maxName)
	if known := c.pools[constraint.Fold(r.Name)]; known != nil {
		c.decide(model.Effect{Deletes: []model.Ref{known.record.Ref()}})
	}
	return PoolDeleted{}, bad.err()
}

// setPool puts the executors of each class into the pool or out of it. Those that
// are absent may be due at another time now.
func (c *Core) setPool(name string, next *held) {
	folded := constraint.Fold(name)
	delete(c.pools, folded)
	if next != nil {
		record := next.record.(*model.Pool)
		c.pools[folded] = &pool{record, selects(record.Attributes)}
	}
	c.index.SetPools(func(h constraint.Host) []string {
		pools := slices.DeleteFunc(slices.Clone(h.Pools), func(in string) bool { return strings.EqualFold(in, name) })
		if own := h.Attribute(constraint.PoolAttribute); next != nil {
			pools = c.pools[folded].join(pools, h)
		} else if strings.EqualFold(own, name) && !c.aside.pools[folded] {
			pools = append(pools, own)
		}
		slices.Sort(pools)
		return pools
	})
	c.absentChanged = true
}

// join adds the pool's name where the host is in it.
func (p *pool) join(names []string, h constraint.Host) []string {
	if ok, _ := p.members.Match(h); ok {
		return append(names, p.record.Name)
	}
	return names
}

// PoolsOf implements [match.Owner]: a host is in the pools whose selectors match it and,
// where no pool of that name is kept, in the one that its attribute names.
func (c owner) PoolsOf(h constraint.Host) []string {
	var names []string
	for _, p := range c.pools {
		names = p.join(names, h)
	}
	if own := h.Attribute(constraint.PoolAttribute); own != "" && c.pools[constraint.Fold(own)] == nil && !c.aside.pools[constraint.Fold(own)] {
		names = append(names, own)
	}
	slices.Sort(names)
	return names
}

// lostAfter is how long an executor may be absent: the shortest that one of its pools
// says, else the cluster's.
func (c *Core) lostAfter(h *host) time.Duration {
	shortest, said := c.cfg.LostAfter, false
	for _, in := range h.Class().Pools() {
		p := c.pools[in.Name]
		if p == nil || p.record.LostAfter == nil {
			continue
		}
		if after := *p.record.LostAfter; !said || after < shortest {
			shortest, said = after, true
		}
	}
	return shortest
}

// Pools answers the pools that are kept, in order of name.
func (c *Core) Pools() []model.Pool {
	list := make([]model.Pool, 0, len(c.pools))
	for _, p := range c.pools {
		list = append(list, *p.record)
	}
	slices.SortFunc(list, func(a, b model.Pool) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Pool answers the pool of a name, without regard to case.
func (c *Core) Pool(name string) (model.Pool, bool) {
	p := c.pools[constraint.Fold(name)]
	if p == nil {
		return model.Pool{}, false
	}
	return *p.record, true
}
