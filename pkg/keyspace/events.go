package keyspace

import (
	"fmt"
	"strconv"
	"strings"
)

// Job events are stored in segments. A segment contains the events that one service
// attached to one etcd lease. A service numbers its segments 1, 2, 3 and so on, across
// all terms. The keys of the events of one job and one service are in the order in which
// the service wrote the events.

// MaxSegment is the highest number of a segment. With higher numbers, keys would not be
// in order. maxEvent is the size of the largest event that etcd accepts in any
// configuration.
const (
	MaxSegment = 1<<32 - 1
	maxEvent   = 1 << 24
)

// EventKey has the parts of the key of one event.
type EventKey struct {
	Job, Service string
	// Segment is the number of the event's segment.
	Segment int64
	// Number is the number of the event among all events that the service wrote in the term.
	Number int64
	// Size is the size of the value in bytes. Because it is in the key, the keys alone show
	// the total size of all events.
	Size int
}

// Events returns the prefix of all job events.
func (s Space) Events() string { return s.prefix + "events/" }

// JobEvents returns the prefix of a job's events and floors.
func (s Space) JobEvents(job string) string { return s.Events() + job + "/" }

// EventFloor returns the key that records which events of a job the service deleted. This
// key sorts before the keys of all these events.
func (s Space) EventFloor(job, service string) string { return s.JobEvents(job) + service }

// SegmentEvents returns the key range [from, to) of a job's events in one segment.
func (s Space) SegmentEvents(job, service string, segment int64) (from, to string) {
	stem := fmt.Sprintf("%s/%08x", s.EventFloor(job, service), segment)
	return stem + "-", stem + "."
}

// ServiceEvents returns the key range [from, to) of the events that one service wrote for
// a job, in the given segment and all later ones.
func (s Space) ServiceEvents(job, service string, segment int64) (from, to string) {
	from, _ = s.SegmentEvents(job, service, segment)
	return from, s.EventFloor(job, service) + "0"
}

// Event returns the key of one event.
func (s Space) Event(e EventKey) string {
	return fmt.Sprintf("%s/%08x-%012x-%x", s.EventFloor(e.Job, e.Service), e.Segment, e.Number, e.Size)
}

// ParseEvent parses the key of an event or of a floor. For a floor, Segment is 0.
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

// NewestSegment returns the key whose value names the newest segment of a service. This
// key has no etcd lease.
func (s Space) NewestSegment(service string) string { return s.Segments() + service }

// Segment returns the key that marks a segment. The key is created at the first revision
// of the segment. It is attached to the etcd lease of the events, and etcd deletes it
// together with the events.
func (s Space) Segment(service string, number int64) string {
	return fmt.Sprintf("%s/%08x", s.NewestSegment(service), number)
}

// ParseSegment parses a key under Segments. For the key of NewestSegment, number is 0.
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
