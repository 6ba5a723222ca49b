package loop

import (
	"time"

	"berth.dev/api/fault"
)

// EventLimits say how much of the job events is kept. Whichever of them is
// reached first has the oldest go. The services of a cluster are given the same.
type EventLimits struct {
	// Retention is how long an event is kept at least while no other limit is
	// reached; it goes up to a sixth of that later.
	Retention time.Duration
	// PerJob is how many events of one job are kept, of all services together.
	PerJob int
	// Bytes is how much is kept of all jobs, keys and values together.
	Bytes int
}

// DefaultEventLimits are an hour, 100,000 events of a job, and 512 MiB in all.
func DefaultEventLimits() EventLimits {
	return EventLimits{Retention: time.Hour, PerJob: 100_000, Bytes: 512 << 20}
}

// Check refuses what cannot be kept to, by the name of the option.
func (l EventLimits) Check() error {
	switch {
	case l.Retention < 10*time.Second || l.Retention > 7*24*time.Hour:
		return fault.BadField(fault.ReasonInvalid, "event-retention", "%v is not within 10s and 168h", l.Retention)
	case l.PerJob < 100 || l.PerJob > 10_000_000:
		return fault.BadField(fault.ReasonInvalid, "event-max-per-job", "%d is not within 100 and 10000000", l.PerJob)
	case l.Bytes < 1<<20:
		return fault.BadField(fault.ReasonInvalid, "event-max-bytes", "%d is less than 1048576", l.Bytes)
	}
	return nil
}

// A segment goes whole, so it is a small part of what may be kept; and an etcd
// lease with very many keys would stall etcd when it ends.
const mostInSegment = 5000

// segmentTTL is that of a segment's etcd lease: every event that it takes is kept
// for the retention.
func (l EventLimits) segmentTTL() time.Duration { return l.Retention + l.segmentAge() }

// segmentAge is how long a segment takes events.
func (l EventLimits) segmentAge() time.Duration { return l.Retention / 6 }

// segmentEvents and segmentBytes are how much a segment takes.
func (l EventLimits) segmentEvents() int { return min(mostInSegment, max(1, l.PerJob/8)) }
func (l EventLimits) segmentBytes() int  { return max(1, l.Bytes/64) }

// beyond is when a service no longer waits for the owner of what is oldest,
// which may be without a leader, and lets go of its own.
func beyond(limit int) int { return limit + limit/8 }
