package queue

import (
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Stats are the values of metrics: the current queues, and the counts of this leader. The
// results of an effect are counted when the effect is durable.
type Stats struct {
	// Ready reports whether the registry is ready.
	Ready bool
	// Groups are those that are not empty.
	Groups []GroupStats
	// States counts the records by stored state.
	States [model.Replaced + 1]int
	// Leased counts the reservations with a lease that are to be dispatched.
	Leased int
	Counts
}

// GroupStats is the length of one queue, and since when its head waits.
type GroupStats struct {
	ID                    string
	Reservations, Workers int
	HeadSince             time.Time
}

// Counts are what a leader counts from its election on.
type Counts struct {
	scheduler.Counts
	// Upserts counts the answered ones by change; a repeat counts as its first answer.
	Upserts [model.ChangeReplaced + 1]uint64
	// Events counts the events of reservations by kind.
	Events [model.EventReservationReordered + 1]uint64
	// Taken and Refused count what the assigner answered to dispatches.
	Taken, Refused uint64
	// TimeInQueue is from the creation of a version to its lease.
	TimeInQueue model.Histogram
}

// Stats returns the current values.
func (c *Core) Stats() Stats {
	groups := c.scheduler.Groups()
	stats := Stats{
		Ready: c.isReady(), Groups: make([]GroupStats, 0, len(groups)),
		States: c.states, Leased: c.leased.Len(), Counts: c.counts,
	}
	stats.Counts.Counts = c.scheduler.Counts
	for _, g := range groups {
		head, _ := g.Head()
		stats.Groups = append(stats.Groups, GroupStats{g.ID, g.Len(), g.Workers, head.CreatedAt})
	}
	return stats
}

// countEvents counts the events of an effect that became durable.
func (c *Counts) countEvents(events []model.JobEvent) {
	for _, event := range events {
		if int(event.Kind) < len(c.Events) {
			c.Events[event.Kind]++
		}
	}
}
