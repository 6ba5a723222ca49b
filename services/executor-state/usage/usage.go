package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
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

// Usage returns the usage of one SKU at a time, or of all for an empty name; what is
// unmapped is listed only with all. It costs a look at each group of demand for each
// SKU.
func (t *Tally) Usage(now time.Time, name string) Usage {
	m := t.mapper()
	usage := Usage{SKUs: make([]SKUUsage, len(m.skus))}
	batches := make([]map[int]int, len(m.skus))
	excluded, work := make([]exclusions, len(m.skus)), usageWork
	for i, s := range m.skus {
		usage.SKUs[i] = t.row(s)
		batches[i], excluded[i] = map[int]int{}, exclusions{}
	}
	for _, d := range t.groups() {
		q := t.index.Query(d.constraints)
		place, shape := m.find(q)
		if place < 0 {
			usage.Unmapped = append(usage.Unmapped, t.unmapped(d, q))
			continue
		}
		row := &usage.SKUs[place]
		row.PendingReservations += d.reservations
		row.PendingWorkers += d.workers
		row.PendingExecutors += d.executors(shape)
		excluded[place].exclude(t.index, now, d, q, m.skus[place], shape, &work)
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
	return usage
}

// row returns what the SKU's executors are used for.
func (t *Tally) row(s *sku) SKUUsage {
	row := SKUUsage{
		SKU: t.Spelled(s.folded), Idle: s.use[Idle], Leased: s.use[Leased], Running: s.use[Running],
		Unavailable: s.use[Unavailable], Disabled: s.disabled,
	}
	for use, n := range s.use {
		if use != int(Lost) {
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

// unmapped returns why no SKU fits a group.
func (t *Tally) unmapped(d *demand, q *match.Query) Unmapped {
	k := d.constraints
	u := Unmapped{Group: k.Group(), Constraints: k, Reservations: d.reservations, Workers: d.workers, Reason: fault.ReasonNoMatchingExecutor}
	switch s := t.skus[constraint.Fold(k.SKU)]; {
	case k.SKU != "" && s == nil:
		u.Reason = fault.ReasonNoMatchingSKU
		u.Message = fmt.Sprintf("no SKU %s is in the catalog or registered", k.SKU)
	case t.recorded(q) || t.index.OfKind(q) > 0:
		u.Message = fmt.Sprintf("no SKU of that kind is large enough for %s", k.Resources.Canonical())
	default:
		u.Message = "no SKU is of that kind"
	}
	return u
}

// recorded reports whether a SKU in the catalog is of the kind requested, large enough
// or not.
func (t *Tally) recorded(q *match.Query) bool {
	for _, s := range t.skus {
		if s.record != nil && q.Matches(t.specification(s)) {
			return true
		}
	}
	return false
}
