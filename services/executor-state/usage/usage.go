package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// Usage is how much of the fleet is used and how much more is requested, as of one
// revision. Executors, leases and reservations are those of one view, and nothing is
// counted twice. A reservation is pending while its [model.Reservation.DemandAt] is
// [model.DemandNow].
type Usage struct {
	// SKUs are in order of name without regard to case. Executors without a SKU are under
	// the empty name.
	SKUs []SKUUsage
	// Unmapped lists the groups that fit no SKU, in order of group.
	Unmapped []Unmapped
	Revision int64
}

// SKUUsage counts the executors of a SKU, and the pending demand for them.
type SKUUsage struct {
	SKU string
	// Total = Idle + Leased + Running + Unavailable. LOST executors are not counted, because
	// a service that provisions hosts must not wait for them.
	Total int
	// Idle executors may be given work and have no workers. Leased executors have workers of
	// which none runs yet. Running executors have a worker that runs. Unavailable executors
	// are not READY, or have no workers and may not be given work.
	Idle, Leased, Running, Unavailable int
	// VolumesOnly executors have volumes and no workers. They are a part of Leased.
	VolumesOnly int
	// Disabled executors get no new work. Each of them also counts in one of the fields
	// above.
	Disabled int
	// PendingReservations counts the pending reservations, and PendingWorkers their workers.
	// PendingExecutors is how many executors of the SKU's shape the workers of each group
	// fill, if the workers of one group are packed together. Idle executors that pending
	// reservations cannot use count in addition: see exclusions.
	PendingReservations              int
	PendingWorkers, PendingExecutors int64
	// PendingBatches is in order of size.
	PendingBatches []PendingBatch
	// EffectiveIdle is max(0, Idle − PendingExecutors).
	EffectiveIdle int64
	Advice
}

// spare returns how many idle executors no pending reservation needs; negative if pending
// reservations need more than are idle.
func (u *SKUUsage) spare() int64 { return int64(u.Idle) - u.PendingExecutors }

// PendingBatch counts the pending batches of one size.
type PendingBatch struct{ Workers, Count int }

// Unmapped is a group that fits no SKU. Constraints shows only resources, sku,
// attributes, pools and role, because they define the group. It never shows the other
// fields, such as sameShape, spread, pack and avoid, because reservations of one group
// may differ in them.
type Unmapped struct {
	Group        string
	Constraints  constraint.Constraints
	Reservations int
	Workers      int64
	Reason       fault.Reason
	Message      string
}

// Usage returns the usage of one SKU, or of all SKUs for an empty name. Only the usage of
// all SKUs includes unmapped demand. It costs a look at each group of demand for each
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
	for _, d := range inOrder(t.demand) {
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
		excluded[place].exclude(t, now, d, q, m.skus[place], shape, &work)
		for workers, count := range d.batches {
			batches[place][workers] += count
		}
	}
	for i, s := range m.skus {
		row := &usage.SKUs[i]
		for _, workers := range slices.Sorted(maps.Keys(batches[i])) {
			row.PendingBatches = append(row.PendingBatches, PendingBatch{workers, batches[i][workers]})
		}
		row.PendingExecutors = max(row.PendingExecutors, excluded[i].executors())
		row.EffectiveIdle = max(0, row.spare())
		var rule *model.ScaleRule
		if s.record != nil {
			rule = s.record.Scale
		}
		row.Advice = Advise(rule, now, s.neededAt, int64(row.Total), int64(row.Idle), row.PendingExecutors)
	}
	if name != "" {
		folded := constraint.Fold(name)
		usage.Unmapped = nil
		usage.SKUs = slices.DeleteFunc(usage.SKUs, func(row SKUUsage) bool { return constraint.Fold(row.SKU) != folded })
	}
	slices.SortFunc(usage.Unmapped, func(a, b Unmapped) int { return cmp.Compare(a.Group, b.Group) })
	return usage
}

// row returns the counts of a SKU's executors.
func (t *Tally) row(s *sku) SKUUsage {
	row := SKUUsage{
		SKU: t.Spelled(s.folded), Idle: s.use[Idle], Leased: s.use[Leased] + s.use[VolumesOnly],
		VolumesOnly: s.use[VolumesOnly], Running: s.use[Running],
		Unavailable: s.use[Unavailable], Disabled: s.disabled,
	}
	row.Total = s.size()
	return row
}

// executors returns how many executors of a shape the workers of a group fill: the number
// for all workers packed together, and at least the number that the most widely spread
// reservation needs.
func (d *demand) executors(shape resource.Vector) int64 {
	p := packing{each: timesEach(shape, d.constraints.Resources), workers: d.workers}
	for of, workers := range d.spread {
		p.widen(of, workers)
	}
	return p.executors()
}

func ceil(n, each int64) int64 { return (n + each - 1) / each }

// unmapped returns why no SKU fits a group.
func (t *Tally) unmapped(d *demand, q *match.Query) Unmapped {
	k := d.constraints
	u := Unmapped{Group: k.Group(), Constraints: k, Reservations: d.reservations, Workers: d.workers,
		Reason: fault.ReasonNoMatchingExecutor}
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

// recorded reports whether the query selects a SKU in the catalog, large enough or not.
func (t *Tally) recorded(q *match.Query) bool {
	for _, s := range t.skus {
		if s.record != nil && q.Matches(t.specification(s)) {
			return true
		}
	}
	return false
}
