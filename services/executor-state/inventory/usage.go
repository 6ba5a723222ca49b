package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Usage is how much of the fleet is used and how much more is asked for, as of
// one revision: executors, leases and reservations are those of one view, and
// nothing is counted twice. A reservation waits, and counts as pending, while
// it is QUEUED without a lease and not handed over.
type Usage struct {
	// SKUs are in order of name without regard to case; executors without a SKU
	// are under the empty name.
	SKUs []SKUUsage
	// Unmapped is what no SKU fits, in order of group.
	Unmapped []Unmapped
	Revision int64
}

// SKUUsage counts the executors of a SKU, and what waits for such executors.
type SKUUsage struct {
	SKU string
	// Total = Idle + Leased + Running + Unavailable. Executors that are LOST are
	// not counted: who provisions hosts must not wait for them.
	Total int
	// Idle may be given work and hold none. Leased hold workers of which none
	// runs yet, Running such that one runs. Unavailable are those that are not
	// READY, and those without workers that may not be given work.
	Idle, Leased, Running, Unavailable int
	// Disabled are taken out of allocation: each is in one of the above too.
	Disabled int
	// PendingReservations wait, with PendingWorkers. PendingExecutors is how
	// many executors of the SKU's shape the workers of each group fill, those of
	// one group packed together. Idle executors that waiting reservations avoid
	// are unavailable to these and count as needed besides: see exclusions.
	PendingReservations              int
	PendingWorkers, PendingExecutors int64
	// PendingBatches are in order of size.
	PendingBatches []PendingBatch
	// EffectiveIdle is max(0, Idle − PendingExecutors).
	EffectiveIdle int64
	// WantedSize is the advice of the scale rule; see [Wanted].
	WantedSize int64
}

// PendingBatch counts the waiting batches of one size.
type PendingBatch struct{ Workers, Count int }

// Unmapped is a group that no SKU fits.
type Unmapped struct {
	Group        string
	Constraints  constraint.Constraints
	Reservations int
	Workers      int64
	Reason       fault.Reason
	Message      string
}

// Usage answers the usage of one SKU, or of all for an empty name; what is
// unmapped is told only with all. It is refused before the registry is ready:
// until then what waits may be told of in part.
func (c *Core) Usage(name string) (Usage, error) {
	if !c.registryReady() {
		return Usage{}, fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "the registry is not ready: what waits is not complete")
	}
	m := c.mapper()
	usage := Usage{Revision: c.revision, SKUs: make([]SKUUsage, len(m.skus))}
	batches := make([]map[int]int, len(m.skus))
	excluded, work := make([]exclusions, len(m.skus)), usageWork
	for i, s := range m.skus {
		usage.SKUs[i] = s.count()
		batches[i], excluded[i] = map[int]int{}, exclusions{}
	}
	for _, text := range slices.Sorted(maps.Keys(c.demand)) {
		d := c.demand[text]
		q := c.queryOf(text, d.constraints)
		place, shape := m.find(q)
		if place < 0 {
			usage.Unmapped = append(usage.Unmapped, c.unmapped(d, q))
			continue
		}
		row := &usage.SKUs[place]
		row.PendingReservations += d.reservations
		row.PendingWorkers += d.workers
		row.PendingExecutors += d.executors(shape)
		excluded[place].exclude(c, d, q, m.skus[place], shape, &work)
		for size, count := range d.batches {
			batches[place][size.workers] += count
		}
	}
	for i, s := range m.skus {
		row := &usage.SKUs[i]
		for _, workers := range slices.Sorted(maps.Keys(batches[i])) {
			row.PendingBatches = append(row.PendingBatches, PendingBatch{workers, batches[i][workers]})
		}
		row.PendingExecutors = max(row.PendingExecutors, excluded[i].executors())
		row.EffectiveIdle = max(0, int64(row.Idle)-row.PendingExecutors)
		row.WantedSize = int64(row.Total)
		if s.record != nil {
			row.WantedSize = Wanted(s.record.Scale, int64(row.Total), int64(row.Idle), row.PendingExecutors)
		}
	}
	if name != "" {
		folded := constraint.Fold(name)
		usage.Unmapped = nil
		usage.SKUs = slices.DeleteFunc(usage.SKUs, func(row SKUUsage) bool { return constraint.Fold(row.SKU) != folded })
	}
	slices.SortFunc(usage.Unmapped, func(a, b Unmapped) int { return cmp.Compare(a.Group, b.Group) })
	return usage, nil
}

// registryReady says whether the registry knows of all that waits.
func (c *Core) registryReady() bool {
	return c.ready != nil && !c.ready.record.(*model.Ready).Since.IsZero()
}

// count tells what the SKU's executors are used for.
func (s *sku) count() SKUUsage {
	row := SKUUsage{
		SKU: s.name(), Idle: s.use[idle], Leased: s.use[leased], Running: s.use[running],
		Unavailable: s.use[unavailable], Disabled: s.shut,
	}
	for use, n := range s.use {
		if use != int(gone) {
			row.Total += n
		}
	}
	return row
}

// executors is how many executors with so much of each resource the workers
// fill: as many as all of them packed together do, and no fewer than the batch
// that is to be spread the most.
func (d *demand) executors(shape resource.Vector) int64 {
	p := packing{each: timesEach(shape, d.constraints.Resources)}
	for size, count := range d.batches {
		p.add(size)
		p.workers += int64(count-1) * int64(size.workers)
	}
	return p.executors()
}

func ceil(n, each int64) int64 { return (n + each - 1) / each }

// unmapped says why no SKU fits a group.
func (c *Core) unmapped(d *demand, q *query) Unmapped {
	k := d.constraints
	u := Unmapped{Group: k.Group(), Constraints: k, Reservations: d.reservations, Workers: d.workers, Reason: fault.ReasonNoMatchingExecutor}
	switch s := c.skus[constraint.Fold(k.SKU)]; {
	case k.SKU != "" && s == nil:
		u.Reason = fault.ReasonNoMatchingSKU
		u.Message = fmt.Sprintf("no SKU %s is in the catalog or registered", k.SKU)
	case c.recorded(q) || c.ofKind(q) > 0:
		u.Message = fmt.Sprintf("no SKU of that kind is large enough for %s", k.Resources.Canonical())
	default:
		u.Message = "no SKU is of that kind"
	}
	return u
}

// recorded says whether a SKU in the catalog is of the kind asked for, large
// enough or not.
func (c *Core) recorded(q *query) bool {
	for _, s := range c.skus {
		if s.record == nil {
			continue
		}
		if ok, _ := q.matcher.Match(c.specification(s)); ok {
			return true
		}
	}
	return false
}
