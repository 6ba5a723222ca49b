package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// Config is what may be chosen about scheduling. Zero values are the defaults.
type Config struct {
	// Order is the strategy; the default is OrderByEpoch.
	Order Order
	// Debounce is how long changes of the inventory are gathered into one wake-up,
	// counted from the first of them; the default is 50 ms.
	Debounce time.Duration
	// RetryEvery is how often pending reservations are tried without any wake-up; the
	// default is 1 s.
	RetryEvery time.Duration
	// MinDelay is the least time between two cycles; the default is 1 ms.
	MinDelay time.Duration
	// CycleCandidates and CycleWorkers bound the candidates of a cycle behind the heads
	// of its groups, and their workers; the defaults are 512 and 50,000.
	CycleCandidates, CycleWorkers int
	// CycleBytes bounds a cycle as a message, heads included. The default is 12 MiB, of
	// the 16 MiB that a message between Berth's processes may have: 150,000 heads that
	// are sent by name, or more than 40,000 that are sent whole.
	CycleBytes int
}

// WithDefaults fills in the defaults.
func (c Config) WithDefaults() Config {
	c.Order = cmp.Or[Order](c.Order, OrderByEpoch{})
	c.Debounce = cmp.Or(c.Debounce, 50*time.Millisecond)
	c.RetryEvery = cmp.Or(c.RetryEvery, time.Second)
	c.MinDelay = cmp.Or(c.MinDelay, time.Millisecond)
	c.CycleCandidates = cmp.Or(c.CycleCandidates, 512)
	c.CycleWorkers = cmp.Or(c.CycleWorkers, 50_000)
	c.CycleBytes = cmp.Or(c.CycleBytes, 12<<20)
	return c
}

// Scheduler holds the pending reservations. Its owner adds and removes them, and sets
// Cause to the reason of the changes that follow.
type Scheduler struct {
	// Cause is counted for the heads that become due.
	Cause WakeCause
	// Subject is the reservation that the scheduler is looking at, zero between calls.
	Subject model.Ref
	// Counts are those of the current term.
	Counts Counts

	config Config
	groups map[string]*Group // those that are not empty

	// The rest belongs to the current term and is lost with it.
	term      int64             // 0 before the replica leads
	due       map[string]*Group // groups whose head may be tried
	causes    [wakeCauses]bool  // why they are due
	wakes     int64             // how often all groups became due
	wakeAt    time.Time         // end of the debounce
	retryAt   time.Time         // of the timer
	notBefore time.Time         // of the next cycle
	cycles    int64             // number of the last cycle
	reachable int64             // highest number of a cycle up to model.HighestJump
	flight    *flight
}

// New returns a scheduler without reservations.
func New(config Config) *Scheduler {
	return &Scheduler{config: config.WithDefaults(), groups: map[string]*Group{}, due: map[string]*Group{}}
}

// Lead begins a term: what triggers a cycle is counted from now on.
func (s *Scheduler) Lead(term int64) {
	s.term = term
	clear(s.causes[:])
}

// Entry is a reservation as the scheduler knows it. The owner keeps one for each
// version, and only reads its fields.
type Entry struct {
	// Group is nil unless the reservation is pending.
	Group *Group
	// InCycle reports whether it is a candidate of the cycle in flight.
	InCycle bool
	// Outcome is the newest outcome that found no capacity; nil if there is none. At
	// TriedAt a cycle tried TriedWorkers workers.
	Outcome      *model.Outcome
	TriedWorkers int
	TriedAt      time.Time

	reservation *model.Reservation // as ordered in the group
	groupID     string             // computed once, since constraints never change
	// refusedIn is the last cycle, if it found no capacity for the reservation as it
	// was at revision refusedMod. The next cycle then only names it.
	refusedIn, refusedMod int64
}

// Group is one strict queue of pending reservations.
type Group struct {
	ID string
	// Workers is the number of workers of all reservations.
	Workers int

	order core.Ordered[*Entry]
	// depth bounds the candidates of the group in a cycle, head included; 0 leaves it
	// to the bounds of the cycle.
	depth int
}

// Len returns the number of reservations, which is at least 1.
func (g *Group) Len() int { return g.order.Len() }

// Head returns the first reservation, and Outcome why it did not fit; nil if it was not
// tried.
func (g *Group) Head() (head *model.Reservation, outcome *model.Outcome) {
	e := g.order.At(0)
	return e.reservation, e.Outcome
}

// Position returns the place of an entry in its group, which is 1 for the head.
func (e *Entry) Position() int { return e.Group.order.Rank(e) + 1 }

// GroupID returns the ID of the group that the entry's reservation belongs to.
func (e *Entry) GroupID(r *model.Reservation) string {
	if e.groupID == "" {
		e.groupID = r.Spec.Constraints.Group()
	}
	return e.groupID
}

// Groups returns the groups that are not empty, in order of their IDs.
func (s *Scheduler) Groups() []*Group {
	return slices.SortedFunc(maps.Values(s.groups), func(a, b *Group) int { return strings.Compare(a.ID, b.ID) })
}

// Add puts a reservation into its group. A new head is due at once.
func (s *Scheduler) Add(e *Entry, r *model.Reservation) {
	id := e.GroupID(r)
	g := s.groups[id]
	if g == nil {
		g = &Group{ID: id, order: core.NewOrdered(s.compareEntries)}
		s.groups[id] = g
	}
	e.Group, e.reservation = g, r
	g.order.Insert(e)
	g.Workers += r.Workers.Len()
	if g.order.At(0) == e {
		s.makeDue(g)
	}
}

func (s *Scheduler) compareEntries(a, b *Entry) int { return s.Compare(a.reservation, b.reservation) }

// Remove takes a reservation out of its group, if it is in one. If it was the head, the
// next head is due at once.
func (s *Scheduler) Remove(e *Entry) {
	g := e.Group
	if g == nil {
		return
	}
	wasHead := g.order.At(0) == e
	g.order.Delete(e)
	g.Workers -= e.reservation.Workers.Len()
	e.Group, e.reservation = nil, nil
	switch {
	case g.order.Len() == 0:
		core.Drop(&s.groups, g.ID)
		delete(s.due, g.ID)
	case wasHead:
		s.makeDue(g)
	}
}
