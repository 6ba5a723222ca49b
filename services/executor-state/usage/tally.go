package usage

import (
	"maps"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// Use is what an executor is used for.
type Use uint8

const (
	// Idle executors may be given work and have no workers.
	Idle Use = iota
	// Leased executors have workers, none of which runs yet.
	Leased
	// VolumesOnly executors have volumes and no workers. They count as leased.
	VolumesOnly
	// Running executors have a worker that runs or is being stopped.
	Running
	// Unavailable executors are neither READY nor LOST, or have no workers and may not be
	// given work.
	Unavailable
	// Lost executors are LOST. They count in no total.
	Lost
	uses
)

// Tally counts executors by SKU and use, and pending reservations by group. The owner of the
// index updates it as records change.
type Tally struct {
	index *match.Index
	// poolsOf returns the pools that a host is in.
	poolsOf func(constraint.Host) []string
	// pinned counts, by executor, the workers of a pending version's reservation that have
	// executors and that the constraints of the version consider.
	pinned func(*model.Reservation) map[*match.Executor]int
	skus   map[string]*sku
	// demand is by canonical constraints, and pending is by UID.
	demand  map[string]*demand
	pending map[string]*pending
}

// New returns a tally without executors and demand. poolsOf returns the names of the
// pools that a host is in. pinned counts the workers of a version's reservation that have
// executors.
func New(index *match.Index, poolsOf func(constraint.Host) []string,
	pinned func(*model.Reservation) map[*match.Executor]int) *Tally {
	return &Tally{index: index, poolsOf: poolsOf, pinned: pinned, skus: map[string]*sku{}, demand: map[string]*demand{},
		pending: map[string]*pending{}}
}

// Count adds n executors of a SKU with a use at a time; n may be negative. Disabled
// executors also count as disabled, unless they are LOST.
func (t *Tally) Count(now time.Time, sku string, use Use, disabled bool, n int) {
	s := t.skuOf(sku)
	s.use[use] += n
	if disabled && use != Lost {
		s.disabled += n
	}
	if n > 0 { // otherwise the executor may be about to be counted with another use
		s.observe(now, int64(s.use[Idle]))
	}
	t.dropUnused(s)
}

// Size returns how many executors of the SKU with a folded name are not LOST.
func (t *Tally) Size(sku string) int {
	if s := t.skus[sku]; s != nil {
		return s.size()
	}
	return 0
}

// size returns how many executors of the SKU are not LOST.
func (s *sku) size() (n int) {
	for use, count := range s.use {
		if use != int(Lost) {
			n += count
		}
	}
	return n
}

// Disabled returns how many executors are disabled.
func (t *Tally) Disabled() (n int) {
	for _, s := range t.skus {
		n += s.disabled
	}
	return n
}

// inOrder returns the values of a map in order of key.
func inOrder[V any](m map[string]V) []V {
	list := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[key])
	}
	return list
}
