package policy

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// PutPool is the request to record a pool. A pool without attributes consists of the
// executors whose attribute `pool` is its name, as it does if it has no record. The
// reply's Value is the *model.Pool as recorded.
type PutPool struct{ Pool model.Pool }

// DeletePool is the request to delete the record of a pool. Deleting a missing record
// succeeds. The reply's Value is a [PoolDeleted].
type DeletePool struct{ Name string }

// PoolDeleted is the reply to DeletePool. Unknown is set if there was no record.
type PoolDeleted struct{ Unknown bool }

// Pools holds the recorded pools. Their names are compared without regard to case.
type Pools struct {
	// byName and quarantined are by folded name. The record of a quarantined pool cannot be
	// read, so no executor is in the pool.
	byName      map[string]*pool
	quarantined map[string]bool
}

type pool struct {
	record  *model.Pool
	members constraint.Matcher
}

// NewPools returns a Pools without records.
func NewPools() *Pools {
	return &Pools{byName: map[string]*pool{}, quarantined: map[string]bool{}}
}

// Put returns the record to store for a request, and reports whether it differs from the
// stored record. At most limit pools are recorded.
func (p *Pools) Put(now time.Time, next model.Pool, limit int) (record *model.Pool, changes bool, err error) {
	var bad model.Violations
	bad.Name("name", next.Name, model.MaxName)
	bad.Attributes("attributes", next.Attributes)
	if next.LostAfter != nil && *next.LostAfter < 0 {
		bad.Add(fault.ReasonInvalid, "lostAfter", "must not be negative, got %v", *next.LostAfter)
	}
	if err := bad.Err(); err != nil {
		return nil, false, err
	}
	if len(next.Attributes) == 0 {
		next.Attributes = map[string]string{constraint.PoolAttribute: next.Name}
	}
	next.UpdatedAt = now
	known := p.byName[constraint.Fold(next.Name)]
	switch {
	case known == nil && len(p.byName) >= limit:
		return nil, false, CatalogFull("pools", len(p.byName), limit)
	case known == nil:
	case known.record.Name != next.Name:
		return nil, false, fault.BadField(fault.ReasonDuplicate, "name", "differs from %q only in case", known.record.Name)
	case samePool(known.record, &next):
		return known.record, false, nil
	}
	return &next, true, nil
}

// CatalogFull returns the error for one record more than limit.
func CatalogFull(of string, n, limit int) error {
	return fault.New(fault.Exhausted, fault.ReasonTooLarge,
		"%d %s are recorded, at most %d are allowed (max-catalog); delete one", n, of, limit)
}

func samePool(a, b *model.Pool) bool {
	return maps.Equal(a.Attributes, b.Attributes) &&
		(a.LostAfter == nil) == (b.LostAfter == nil) && (a.LostAfter == nil || *a.LostAfter == *b.LostAfter)
}

// Set replaces the record of a pool, and moves the executors of each class into the pool
// or out of it. A nil record means that there is none.
func (p *Pools) Set(index *match.Index, name string, next *model.Pool) {
	folded := constraint.Fold(name)
	delete(p.byName, folded)
	if next != nil {
		p.byName[folded] = &pool{next, constraint.Constraints{Attributes: next.Attributes}.Matcher()}
	}
	index.SetPools(func(h constraint.Host) []string {
		pools := slices.DeleteFunc(slices.Clone(h.Pools), func(in string) bool { return strings.EqualFold(in, name) })
		switch own := h.Attribute(constraint.PoolAttribute); {
		case next != nil:
			pools = p.byName[folded].join(pools, h)
		case strings.EqualFold(own, name) && !p.quarantined[folded]:
			pools = append(pools, own)
		}
		slices.Sort(pools)
		return pools
	})
}

// Quarantine marks the record of a pool as unreadable. Restore removes that mark.
func (p *Pools) Quarantine(index *match.Index, name string) {
	p.quarantined[constraint.Fold(name)] = true
	p.Set(index, name, nil)
}

// Restore removes the mark that Quarantine sets.
func (p *Pools) Restore(name string) { delete(p.quarantined, constraint.Fold(name)) }

// Quarantined reports whether the pool that a host names has an unreadable record.
func (p *Pools) Quarantined(h constraint.Host) bool {
	return p.quarantined[constraint.Fold(h.Attribute(constraint.PoolAttribute))]
}

// join adds the pool's name if the host is in it.
func (p *pool) join(names []string, h constraint.Host) []string {
	if ok, _ := p.members.Match(h); ok {
		return append(names, p.record.Name)
	}
	return names
}

// Of returns the names of the pools that a host is in, in order. These are the recorded
// pools whose attributes the host has. The pool that the host's attribute names is one of
// them if no pool of that name is recorded.
func (p *Pools) Of(h constraint.Host) []string {
	var names []string
	for _, pool := range p.byName {
		names = pool.join(names, h)
	}
	if own := h.Attribute(constraint.PoolAttribute); own != "" && p.byName[constraint.Fold(own)] == nil &&
		!p.Quarantined(h) {
		names = append(names, own)
	}
	slices.Sort(names)
	return names
}

// LostAfter returns how long executors of a class may be absent: the shortest duration
// that one of their pools sets, or byDefault if none sets one.
func (p *Pools) LostAfter(class *match.Class, byDefault time.Duration) time.Duration {
	shortest, set := byDefault, false
	for _, in := range class.Pools() {
		pool := p.byName[in.Name]
		if pool != nil && pool.record.LostAfter != nil && (!set || *pool.record.LostAfter < shortest) {
			shortest, set = *pool.record.LostAfter, true
		}
	}
	return shortest
}

// List returns the recorded pools in order of name.
func (p *Pools) List() []model.Pool {
	list := make([]model.Pool, 0, len(p.byName))
	for _, pool := range p.byName {
		list = append(list, *pool.record)
	}
	slices.SortFunc(list, func(a, b model.Pool) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Get returns the recorded pool with a name.
func (p *Pools) Get(name string) (model.Pool, bool) {
	pool := p.byName[constraint.Fold(name)]
	if pool == nil {
		return model.Pool{}, false
	}
	return *pool.record, true
}
