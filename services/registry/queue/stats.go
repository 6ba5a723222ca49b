package queue

import (
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Stats holds the values of metrics: the current queues, and the counts of this leader.
// An effect is counted when it is durable.
type Stats struct {
	// Ready reports whether the registry is ready.
	Ready bool
	// Groups lists the non-empty queues.
	Groups []GroupStats
	// States counts the records by stored state.
	States [model.Replaced + 1]int
	// Leased counts the reservations whose lease is still to be dispatched.
	Leased int
	Counts
}

// GroupStats holds the length of one queue, and since when its head has waited.
type GroupStats struct {
	ID                    string
	Reservations, Workers int
	HeadSince             time.Time
}

// Counts holds what a leader counts from its election on.
type Counts struct {
	scheduler.Counts
	// Upserts counts the answered upserts by change. A repeat counts like its first answer.
	Upserts [model.ChangeReplaced + 1]uint64
	// Events counts the events of reservations by kind.
	Events [model.EventReservationReordered + 1]uint64
	// Taken and Refused count the assigner's answers to dispatches.
	Taken, Refused uint64
	// TimeInQueue is the time from the creation of a version to its lease.
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
