package loop

import (
	"time"

	"berth.dev/api/fault"
)

// EventLimits bound the job events that are kept. The first limit that is reached deletes
// the oldest events. All services of a cluster have the same limits.
type EventLimits struct {
	// Retention is the minimum time an event is kept while no other limit is reached. It
	// is deleted at most a sixth of that later.
	Retention time.Duration
	// PerJob bounds the events of one job, of all services together.
	PerJob int
	// Bytes bounds the keys and values of all events.
	Bytes int
}

// DefaultEventLimits returns an hour, 100,000 events of a job, and 512 MiB in all.
func DefaultEventLimits() EventLimits {
	return EventLimits{Retention: time.Hour, PerJob: 100_000, Bytes: 512 << 20}
}

// Check validates the limits. The error names the option.
func (l EventLimits) Check() error {
	switch {
	case l.Retention < 10*time.Second || l.Retention > 7*24*time.Hour:
		return fault.BadField(fault.ReasonInvalid, "event-retention", "must be between 10s and 168h, got %v", l.Retention)
	case l.PerJob < 100 || l.PerJob > 10_000_000:
		return fault.BadField(fault.ReasonInvalid, "event-max-per-job", "must be between 100 and 10000000, got %d", l.PerJob)
	case l.Bytes < 1<<20:
		return fault.BadField(fault.ReasonInvalid, "event-max-bytes", "must be at least 1048576, got %d", l.Bytes)
	}
	return nil
}

// maxSegmentEvents bounds a segment. A segment is deleted whole, so it is a small part of
// the limits; and an etcd lease with very many keys would stall etcd when it ends.
const maxSegmentEvents = 5000

// segmentTTL is the TTL of a segment's etcd lease: the last event that the segment takes
// is kept for the retention.
func (l EventLimits) segmentTTL() time.Duration { return l.Retention + l.segmentAge() }

// segmentAge is how long a segment takes events.
func (l EventLimits) segmentAge() time.Duration { return l.Retention / 6 }

// segmentEvents and segmentBytes bound a segment.
func (l EventLimits) segmentEvents() int { return min(maxSegmentEvents, max(1, l.PerJob/8)) }
func (l EventLimits) segmentBytes() int  { return max(1, l.Bytes/64) }

// beyond is the size above which a service no longer waits for the owner of the oldest
// segment, which may have no leader, and deletes its own.
func beyond(limit int) int { return limit + limit/8 }
