package queue

import (
	"time"

	"berth.dev/pkg/model"
)

// WakeCause is why heads were tried.
type WakeCause uint8

// The causes. Those from WakeCancel on wake at once.
const (
	// WakeInventory: executors came or changed, or a lease holds less.
	WakeInventory WakeCause = iota
	// WakeTimer: Config.RetryEvery has passed.
	WakeTimer
	// WakeCancel: what was first in a queue was cancelled or flushed.
	WakeCancel
	// WakeSuccess: what was first in a queue was granted.
	WakeSuccess
	// WakeReady: the registry became ready, or a leader has begun.
	WakeReady
	// WakeChange: what is first in a queue came, changed or expired.
	WakeChange

	wakeCauses
)

var wakeNames = [...]string{"inventory", "timer", "cancel", "success", "ready", "change"}

func (w WakeCause) String() string { return wakeNames[w] }

// Stats is what metrics show: how the queues stand, and what this leader has
// counted. What an effect is the cause of is counted when that is durable.
type Stats struct {
	// Ready says that the registry is.
	Ready bool
	// Groups are the queues that are not empty, in no order.
	Groups []GroupStats
	// States counts the records by stored state.
	States [model.Replaced + 1]int
	// Leased counts the reservations that hold a lease and are to be dispatched.
	Leased int
	Counts
}

// GroupStats is the depth of one queue, and since when its head waits.
type GroupStats struct {
	ID                    string
	Reservations, Workers int
	HeadSince             time.Time
}

// Counts are what a leader counts from its election on.
type Counts struct {
	// Upserts counts those answered, by change; a repeat counts as its first
	// answer did.
	Upserts [model.ChangeReplaced + 1]uint64
	// Events counts the events of reservations, by kind: what was queued, queued
	// again, cancelled, expired and so on.
	Events [model.EventReservationReordered + 1]uint64
	// Cycles counts the scheduling cycles, Candidates their candidates by result.
	Cycles     uint64
	Candidates [model.Later + 1]uint64
	// WakeUps counts the cycles that each cause had a part in.
	WakeUps [wakeCauses]uint64
	// Taken and Refused count what the assigner answered to dispatches.
	Taken, Refused uint64
	// TimeInQueue is from the creation of a version to its lease.
	TimeInQueue model.Histogram
}

// Stats counts.
func (c *Core) Stats() Stats {
	stats := Stats{
		Ready: c.isReady(), Groups: make([]GroupStats, 0, len(c.groups)),
		States: c.states, Leased: c.leased.Len(), Counts: c.counts,
	}
	for id, g := range c.groups {
		stats.Groups = append(stats.Groups, GroupStats{id, g.order.Len(), g.workers, g.order.At(0).CreatedAt})
	}
	return stats
}

// countEvents counts an effect that became durable by what it tells.
func (c *Counts) countEvents(kinds []model.EventKind) {
	for _, kind := range kinds {
		if int(kind) < len(c.Events) {
			c.Events[kind]++
		}
	}
}
