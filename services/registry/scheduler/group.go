package scheduler

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// Config configures the scheduler. Zero values are the defaults.
type Config struct {
	// Order is the strategy that orders reservations; the default is OrderByEpoch.
	Order Order
	// Debounce is how long changes of the inventory are gathered into one wake-up, counted
	// from the first change; the default is 50 ms.
	Debounce time.Duration
	// RetryEvery is the interval of the timer, which tries pending reservations without any
	// change; the default is 1 s.
	RetryEvery time.Duration
	// MinDelay is the minimum time between the starts of two cycles; the default is 1 ms.
	MinDelay time.Duration
	// CycleCandidates bounds the candidates of a cycle behind the heads of its groups, and
	// CycleWorkers the workers of those candidates. The defaults are 512 and 50,000.
	CycleCandidates, CycleWorkers int
	// CycleBytes bounds the size of a cycle as a message, including heads. The default is 12
	// MiB, because a message between Berth's processes may have 16 MiB. In 12 MiB a cycle
	// can send 150,000 heads by name, or more than 40,000 complete heads.
	CycleBytes int
	// BestEffort is the cluster's mode for requests that do not set a batch mode.
	BestEffort bool
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

// Scheduler holds the pending reservations. Its owner adds and removes them. Before a
// change, the owner sets Cause to the reason of the change.
type Scheduler struct {
	// Cause is counted for the heads that a change makes due.
	Cause WakeCause
	// Subject is the reservation that the scheduler is evaluating; zero between calls.
	Subject model.Ref
	// Counts holds the counts of the current term.
	Counts Counts

	config  Config
	groups  map[string]*Group    // the non-empty groups
	byID    core.Ordered[*Group] // the same groups, in order of their IDs
	pending Depth

	// The following fields belong to the current term and are lost with it.
	term      int64             // 0 before the replica leads
	due       map[string]*Group // groups whose head triggers a cycle
	causes    [wakeCauses]bool  // why groups are due
	wakes     int64             // how often all groups became due
	wakeAt    time.Time         // end of the debounce
	retryAt   time.Time         // when the timer fires
	notBefore time.Time         // the next cycle starts no earlier
	cycles    int64             // number of the last cycle
	reachable int64             // highest number of a cycle that was at most model.HighestJump
	flight    *flight
	// endedEarly reports whether the depth of a group ended the last cycle early.
	endedEarly bool
}

// New returns a scheduler without reservations.
func New(config Config) *Scheduler {
	return &Scheduler{
		config: config.WithDefaults(), groups: map[string]*Group{}, due: map[string]*Group{},
		byID: core.NewOrdered(func(a, b *Group) int { return strings.Compare(a.ID, b.ID) }),
	}
}

// Has reports whether a group is not empty.
func (s *Scheduler) Has(group string) bool { return s.groups[group] != nil }

// Depth counts what is pending in all groups.
type Depth struct{ Groups, Reservations, Workers int }

// Depth returns the current counts.
func (s *Scheduler) Depth() Depth { return s.pending }

// Lead begins a term. From now on, the scheduler counts what triggers a cycle.
func (s *Scheduler) Lead(term int64) {
	s.term = term
	clear(s.causes[:])
}

// Entry is a reservation as the scheduler knows it. The owner has one entry for each
// version, and only reads its fields.
type Entry struct {
	// Group is nil unless the reservation is pending.
	Group *Group
	// InCycle reports whether the reservation is a candidate of the cycle in flight.
	InCycle bool
	// Outcome is the newest outcome that found no capacity; nil if there is none. A cycle
	// tried TriedWorkers workers at TriedAt.
	Outcome      *model.Outcome
	TriedWorkers int
	TriedAt      time.Time

	reservation *model.Reservation // by which the group orders the entry
	// groupID is kept, since constraints never change. blamesTask is whether the task was at fault then.
	groupID    string
	blamesTask bool
	// refusedIn is the last cycle, if that cycle found no capacity for the reservation as it
	// was at revision refusedMod. The next cycle then sends only its name.
	refusedIn, refusedMod int64
}

// Group is one strict queue of pending reservations.
type Group struct {
	ID string
	// Workers is the number of workers of all reservations in the group.
	Workers int

	order core.Ordered[*Entry]
	// depth bounds the candidates of the group in a cycle, including the head. If it is 0,
	// only the bounds of the cycle apply.
	depth int
}

// Len returns the number of reservations in the group, which is at least 1.
func (g *Group) Len() int { return g.order.Len() }

// Head returns the first reservation, and the outcome that says why it did not fit; nil
// if no cycle tried it.
func (g *Group) Head() (head *model.Reservation, outcome *model.Outcome) {
	e := g.order.At(0)
	return e.reservation, e.Outcome
}

// After returns the reservations of a group that are tried after a reservation, in order; nil
// stands for the place before the head. The reservation need not be in the group any more; see
// ParsePlace. The sequence is valid as long as the group does not change. If there is no group
// with the ID, the sequence is empty.
func (s *Scheduler) After(group string, last *model.Reservation) iter.Seq[*model.Reservation] {
	return func(yield func(*model.Reservation) bool) {
		g := s.groups[group]
		if g == nil {
			return
		}
		entries := g.order.All()
		if last != nil {
			entries = g.order.From(&Entry{reservation: last})
		}
		for e := range entries {
			if last != nil && s.Compare(e.reservation, last) == 0 {
				continue
			}
			if !yield(e.reservation) {
				return
			}
		}
	}
}

// Position returns the place of an entry in its group, which is 1 for the head.
func (e *Entry) Position() int { return e.Group.order.Rank(e) + 1 }

// GroupID returns the ID of the group that the entry's reservation belongs to. The group of
// a reservation with a volume changes with its first worker index, when it is split. The group of a
// reservation for cells changes when its cell is chosen, and that of a reservation whose task is at fault
// when it has another task.
func (e *Entry) GroupID(r *model.Reservation) string {
	blames := r.BlamesTask()
	if e.groupID == "" || e.blamesTask != blames || r.Spec.Volume != nil || r.Spec.Constraints.Cells {
		e.groupID, e.blamesTask = r.Group(), blames
	}
	return e.groupID
}

// Groups returns the groups that are not empty, in order of their IDs.
func (s *Scheduler) Groups() []*Group {
	return slices.AppendSeq(make([]*Group, 0, s.byID.Len()), s.byID.All())
}

// GroupsAfter returns the groups whose IDs are greater than an ID, in order of their IDs. The
// sequence is valid as long as no reservation is added or removed.
func (s *Scheduler) GroupsAfter(id string) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		for g := range s.byID.From(&Group{ID: id}) {
			if g.ID != id && !yield(g) {
				return
			}
		}
	}
}

// Add adds a reservation to its group. A new head is due at once.
func (s *Scheduler) Add(e *Entry, r *model.Reservation) {
	id := e.GroupID(r)
	g := s.groups[id]
	if g == nil {
		g = &Group{ID: id, order: core.NewOrdered(s.compareEntries)}
		s.groups[id] = g
		s.byID.Insert(g)
		s.pending.Groups++
	}
	e.Group, e.reservation = g, r
	g.order.Insert(e)
	g.Workers += r.Workers.Len()
	s.pending.Reservations++
	s.pending.Workers += r.Workers.Len()
	if g.order.At(0) == e {
		s.makeDue(g)
	}
}

func (s *Scheduler) compareEntries(a, b *Entry) int { return s.Compare(a.reservation, b.reservation) }

// Remove removes a reservation from its group, if it is in one. If it was the head, the
// next head is due at once.
func (s *Scheduler) Remove(e *Entry) {
	g := e.Group
	if g == nil {
		return
	}
	wasHead := g.order.At(0) == e
	g.order.Delete(e)
	g.Workers -= e.reservation.Workers.Len()
	s.pending.Reservations--
	s.pending.Workers -= e.reservation.Workers.Len()
	e.Group, e.reservation = nil, nil
	switch {
	case g.order.Len() == 0:
		core.Drop(&s.groups, g.ID)
		s.byID.Remove(g)
		s.pending.Groups--
		delete(s.due, g.ID)
	case wasHead:
		s.makeDue(g)
	}
}
