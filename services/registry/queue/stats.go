package queue

import (
	"cmp"
	"maps"
	"time"

	"berth.dev/api/fault"
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
	// Held counts the held reservations.
	Held int
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
	Upserts [model.Updated + 1]uint64
	// Events counts the events of reservations by kind.
	Events [model.EventReservationWithdrawn + 1]uint64
	// Taken and Refused count the assigner's answers to dispatches.
	Taken, Refused uint64
	// ExpiredQueued and ExpiredActive count the reservations that expired, by whether the
	// assigner had them. Restarts counts the requeues of reservations that restart or replace
	// their workers, by the reason of the worker's end, and the next rounds of gangs that restart.
	ExpiredQueued, ExpiredActive uint64
	Restarts                     map[fault.Reason]uint64
	// TimeInQueue is the time from the creation of a version to its lease.
	TimeInQueue model.Histogram
}

// Stats returns the current values.
func (c *Core) Stats() Stats {
	groups := c.scheduler.Groups()
	stats := Stats{
		Ready: c.isReady(), Groups: make([]GroupStats, 0, len(groups)),
		States: c.states, Leased: c.leased.Len(), Held: len(c.held), Counts: c.counts,
	}
	stats.Counts.Counts, stats.Restarts = c.scheduler.Counts, maps.Clone(c.counts.Restarts)
	for _, g := range groups {
		head, _ := g.Head()
		stats.Groups = append(stats.Groups, GroupStats{g.ID, g.Len(), g.Workers, head.QueuedAt()})
	}
	return stats
}

// count counts what an effect changed that became durable.
func (c *Counts) count(effect model.Effect) {
	for _, event := range effect.Events {
		if int(event.Kind) < len(c.Events) {
			c.Events[event.Kind]++
		}
		if event.Kind != model.EventReservationRequeued ||
			event.Reason != fault.ReasonRestarting && event.Reason != fault.ReasonGangRestarted {
			continue
		}
		reason := event.Reason
		if reason == fault.ReasonRestarting {
			reason = cmp.Or(event.Workers[0].Reason, fault.Reason(event.Workers[0].State.String()))
		}
		if c.Restarts == nil {
			c.Restarts = map[fault.Reason]uint64{}
		}
		c.Restarts[reason]++
	}
	for _, record := range effect.Puts {
		switch r, ok := record.(*model.Reservation); {
		case !ok || r.State != model.Expired:
		case len(r.WorkerCounts) > 0:
			c.ExpiredActive++
		default:
			c.ExpiredQueued++
		}
	}
}
