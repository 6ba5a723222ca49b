package loop

import (
	"time"

	"berth.dev/api/fault"
)

// EventLimits limits the job events in the store. When any of the limits is exceeded,
// services delete the oldest events. All services of a cluster must have the same limits.
type EventLimits struct {
	// Retention is the minimum time for which an event remains while no other limit is
	// exceeded. After that time the event is deleted within a sixth of Retention.
	Retention time.Duration
	// PerJob is the maximum number of events of one job, from all services together.
	PerJob int
	// Bytes is the maximum total size of the keys and values of all events.
	Bytes int
}

// DefaultEventLimits returns a retention of one hour, 100,000 events for each job, and
// 512 MiB in total.
func DefaultEventLimits() EventLimits {
	return EventLimits{Retention: time.Hour, PerJob: 100_000, Bytes: 512 << 20}
}

// Check returns an error if a limit is out of range. The error names the command-line
// option.
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

// maxSegmentEvents is the maximum number of events in a segment. A service deletes a
// whole segment at once, so a segment must be a small part of the limits. An etcd lease
// with very many keys would also stall etcd when the lease ends.
const maxSegmentEvents = 5000

// segmentTTL returns the TTL of a segment's etcd lease. It is long enough that the last
// event of the segment remains for the retention.
func (l EventLimits) segmentTTL() time.Duration { return l.Retention + l.segmentAge() }

// segmentAge returns how long a service adds events to a segment.
func (l EventLimits) segmentAge() time.Duration { return l.Retention / 6 }

// segmentEvents and segmentBytes return the maximum number and the maximum size of the
// events in a segment.
func (l EventLimits) segmentEvents() int { return min(maxSegmentEvents, max(1, l.PerJob/8)) }
func (l EventLimits) segmentBytes() int  { return max(1, l.Bytes/64) }

// beyond returns the size above which a service no longer waits for the owner of the
// oldest segment and deletes its own oldest segment. The owner may have no leader.
func beyond(limit int) int { return limit + limit/8 }
