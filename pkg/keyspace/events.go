package keyspace

import (
	"fmt"
	"strconv"
	"strings"
)

// Job events are kept in segments: what one service wrote on one etcd lease.
// Its segments are numbered 1, 2, 3 and so on, over all terms. The order of
// keys within a job and a service is that in which the events were written.

// MaxSegment is the highest number of a segment: with more, keys would not be in
// order. maxEvent is the largest event, as etcd may be configured to take.
const (
	MaxSegment = 1<<32 - 1
	maxEvent   = 1 << 24
)

// EventKey is what the key of one event says of it.
type EventKey struct {
	Job, Service string
	// Segment is the number of the segment that it is in.
	Segment int64
	// Number is its number among all that the service wrote in the term.
	Number int64
	// Size of the value in bytes. With it, keys alone tell how much is kept.
	Size int
}

// Events is the prefix of all job events.
func (s Space) Events() string { return s.prefix + "events/" }

// JobEvents is the prefix of a job's events, and of their floors.
func (s Space) JobEvents(job string) string { return s.Events() + job + "/" }

// EventFloor is the key that says which events of a job its service deleted. It
// comes before all of those.
func (s Space) EventFloor(job, service string) string { return s.JobEvents(job) + service }

// SegmentEvents are the keys of a job's events in one segment, from the first
// on and before the second.
func (s Space) SegmentEvents(job, service string, segment int64) (from, to string) {
	stem := fmt.Sprintf("%s/%08x", s.EventFloor(job, service), segment)
	return stem + "-", stem + "."
}

// ServiceEvents are the keys of a job's events of one service, from a segment
// on.
func (s Space) ServiceEvents(job, service string, segment int64) (from, to string) {
	from, _ = s.SegmentEvents(job, service, segment)
	return from, s.EventFloor(job, service) + "0"
}

// Event is the key of one event.
func (s Space) Event(e EventKey) string {
	return fmt.Sprintf("%s/%08x-%012x-%x", s.EventFloor(e.Job, e.Service), e.Segment, e.Number, e.Size)
}

// ParseEvent reads a key below Events: of an event, or of the floor of a job and
// a service, which has no segment.
func (s Space) ParseEvent(key string) (e EventKey, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || len(rest) > maxKey {
		return EventKey{}, false
	}
	if rest, ok = strings.CutPrefix(rest, "events/"); !ok {
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

// Segments is the prefix of what says which segments are kept.
func (s Space) Segments() string { return s.prefix + "segments/" }

// NewestSegment is the key that names the newest segment of a service. It is on
// no etcd lease.
func (s Space) NewestSegment(service string) string { return s.Segments() + service }

// Segment is the key that marks a segment, on the etcd lease of its events and
// written no later than they: it was created at the segment's first revision,
// and goes with them.
func (s Space) Segment(service string, number int64) string {
	return fmt.Sprintf("%s/%08x", s.NewestSegment(service), number)
}

// ParseSegment reads a key below Segments; the number of NewestSegment is 0.
func (s Space) ParseSegment(key string) (service string, number int64, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok {
		return "", 0, false
	}
	if rest, ok = strings.CutPrefix(rest, "segments/"); !ok {
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
