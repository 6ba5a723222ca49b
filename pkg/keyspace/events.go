package keyspace

import (
	"fmt"
	"strconv"
	"strings"
)

// Job events are kept in segments. A segment contains the events that one service wrote on one
// etcd lease. A service numbers its segments 1, 2, 3 and so on, over all terms. The keys of a job
// and a service have the order in which the events were written.

// MaxSegment is the highest number of a segment. Above it, keys would not be in order. maxEvent
// is the size of the largest event that any configuration of etcd accepts.
const (
	MaxSegment = 1<<32 - 1
	maxEvent   = 1 << 24
)

// EventKey is the content of the key of one event.
type EventKey struct {
	Job, Service string
	// Segment is the number of its segment.
	Segment int64
	// Number counts the events that the service wrote in the term.
	Number int64
	// Size of the value in bytes. So the total size of all events follows from the keys.
	Size int
}

// Events returns the prefix of all job events.
func (s Space) Events() string { return s.prefix + "events/" }

// JobEvents returns the prefix of a job's events and floors.
func (s Space) JobEvents(job string) string { return s.Events() + job + "/" }

// EventFloor returns the key that records which events of a job the service deleted. It sorts
// before all of them.
func (s Space) EventFloor(job, service string) string { return s.JobEvents(job) + service }

// SegmentEvents returns the key range [from, to) of a job's events in one segment.
func (s Space) SegmentEvents(job, service string, segment int64) (from, to string) {
	stem := fmt.Sprintf("%s/%08x", s.EventFloor(job, service), segment)
	return stem + "-", stem + "."
}

// ServiceEvents returns the key range [from, to) of a job's events of one service, from a segment
// on.
func (s Space) ServiceEvents(job, service string, segment int64) (from, to string) {
	from, _ = s.SegmentEvents(job, service, segment)
	return from, s.EventFloor(job, service) + "0"
}

// Event returns the key of one event.
func (s Space) Event(e EventKey) string {
	return fmt.Sprintf("%s/%08x-%012x-%x", s.EventFloor(e.Job, e.Service), e.Segment, e.Number, e.Size)
}

// ParseEvent parses a key under Events: that of an event, or that of a floor, which has no
// segment.
func (s Space) ParseEvent(key string) (e EventKey, ok bool) {
	rest, ok := strings.CutPrefix(key, s.Events())
	if !ok || len(rest) > maxKey {
		return EventKey{}, false
	}
	if e.Job, rest, ok = strings.Cut(rest, "/"); !ok {
		return EventKey{}, false
	}
	name := ""
	e.Service, name, ok = strings.Cut(rest, "/")
	if !named(e.Job) || !named(e.Service) {
		return EventKey{}, false
	}
	if !ok {
		return e, true
	}
	segment, name, _ := strings.Cut(name, "-")
	number, size, _ := strings.Cut(name, "-")
	a, errA := strconv.ParseInt(segment, 16, 64)
	b, errB := strconv.ParseInt(number, 16, 64)
	c, errC := strconv.ParseInt(size, 16, 32)
	if errA != nil || errB != nil || errC != nil || a < 1 || a > MaxSegment || c > maxEvent {
		return EventKey{}, false
	}
	e.Segment, e.Number, e.Size = a, b, int(c)
	return e, s.Event(e) == key
}

// Segments returns the prefix of the marks of segments.
func (s Space) Segments() string { return s.prefix + "segments/" }

// NewestSegment returns the key that names the newest segment of a service. It has no etcd lease.
func (s Space) NewestSegment(service string) string { return s.Segments() + service }

// Segment returns the key that marks a segment. It is created at the segment's first revision, on
// the etcd lease of the events, and is deleted with them.
func (s Space) Segment(service string, number int64) string {
	return fmt.Sprintf("%s/%08x", s.NewestSegment(service), number)
}

// ParseSegment parses a key under Segments. The number of NewestSegment is 0.
func (s Space) ParseSegment(key string) (service string, number int64, ok bool) {
	rest, ok := strings.CutPrefix(key, s.Segments())
	if !ok {
		return "", 0, false
	}
	service, text, marks := strings.Cut(rest, "/")
	switch {
	case !named(service):
		return "", 0, false
	case !marks:
		return service, 0, true
	}
	number, err := strconv.ParseInt(text, 16, 64)
	if err != nil || number < 1 || number > MaxSegment || s.Segment(service, number) != key {
		return "", 0, false
	}
	return service, number, true
}
