package loop

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// EventIndex counts the job events of all services in etcd, per job and per segment. It
// counts existing events once by their keys, and new events from the view. It stores only
// counts, not the events, so its memory does not depend on the number of events.
//
// Services never delete a single event. They delete a segment, or all events of one job
// in a segment. So there are three kinds of changes: an event was put, the mark of a
// segment was put or deleted, or the floor of a job was raised.
type EventIndex struct {
	space keyspace.Space
	// marks and all are the prefixes of the keys that the index covers.
	marks, all string
	perJob     int // maximum number of events of one job

	mu       sync.Mutex
	newest   map[string]int64 // number of the newest segment, by service
	expired  map[string]int64 // revision at which the newest segment expired, by service
	byID     map[segmentID]*segment
	segments []*segment // oldest first
	jobs     map[string]*jobEvents
	// aboveLimit has the jobs that had more than perJob events when the index last examined
	// them.
	aboveLimit map[*jobEvents]struct{}
	events     int
	bytes      int

	// snapshot is the revision of the view's snapshot. Count counts the events up to this
	// revision. Until Count is done, floors has the floor of each job, because Count may
	// read events below the floors.
	snapshot    int64
	counted     bool
	lastCounted string // key
	floors      map[floorID]int64
}

type segmentID struct {
	service string
	number  int64
}

type floorID struct{ job, service string }

type segment struct {
	segmentID
	// lease is the segment's etcd lease. created is the create revision of the segment's
	// mark.
	lease, created int64
	parts          map[*jobEvents]part
	bytes          int
}

// part counts the events of one job in a segment.
type part struct{ events, bytes int }

type jobEvents struct {
	name   string
	events int
}

func newEventIndex(space keyspace.Space, perJob int) *EventIndex {
	k := &EventIndex{space: space, marks: space.Segments(), all: space.Events(), perJob: perJob}
	k.reset(0)
	return k
}

// reset clears the index. The caller must then apply a snapshot at that revision.
func (k *EventIndex) reset(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest, k.expired = map[string]int64{}, map[string]int64{}
	k.byID, k.segments = map[segmentID]*segment{}, nil
	k.jobs, k.aboveLimit = map[string]*jobEvents{}, map[*jobEvents]struct{}{}
	k.events, k.bytes = 0, 0
	k.snapshot, k.counted, k.lastCounted, k.floors = revision, false, "", map[floorID]int64{}
}

// Count counts the events that existed at the snapshot. No event is deleted until Count
// has returned without an error. If it returns an error, the next call continues where
// this call stopped.
func (k *EventIndex) Count(ctx context.Context, s store.Store) error {
	err := store.Keys(ctx, s, k.all, func(kvs []store.KV) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, kv := range kvs {
			if kv.Key <= k.lastCounted {
				continue
			}
			k.lastCounted = kv.Key
			e, ok := k.space.ParseEvent(kv.Key)
			if ok && kv.Mod <= k.snapshot && e.Segment > k.floors[floorID{e.Job, e.Service}] {
				k.add(e, len(kv.Key)+e.Size)
			}
		}
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.counted, k.floors = true, nil
	}
	return err
}

// Total returns the number of events and the total size of their keys and values in
// bytes. counted is false until Count is done.
func (k *EventIndex) Total() (events, bytes int, counted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.events, k.bytes, k.counted
}

// apply applies the change of a mark, an event or a floor. It returns false if the change
// is of another key.
func (k *EventIndex) apply(c store.Change) bool {
	switch {
	case strings.HasPrefix(c.Key, k.marks):
		k.applyMark(c)
	case strings.HasPrefix(c.Key, k.all):
		k.applyEvent(c)
	default:
		return false
	}
	return true
}

// highestSegment is the highest number that the index accepts as a service's newest
// segment, so that higher numbers remain for new segments.
const highestSegment = keyspace.MaxSegment / 2

func (k *EventIndex) applyMark(c store.Change) {
	service, number, ok := k.space.ParseSegment(c.Key)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	id := segmentID{service, number}
	var newest recordv1.EventSegment
	switch {
	case number == 0:
		if err := proto.Unmarshal(c.Value, &newest); err == nil && newest.GetNumber() >= 1 &&
			newest.GetNumber() <= highestSegment {
			k.newest[service] = newest.GetNumber()
		}
	case c.Deleted:
		k.remove(k.byID[id])
		if number == k.newest[service] {
			k.expired[service] = c.Mod
		}
	case k.byID[id] == nil:
		if number <= highestSegment {
			k.newest[service] = max(k.newest[service], number) // in case the key of the newest segment has a wrong number
		}
		s := &segment{segmentID: id, lease: c.Lease, created: c.Create, parts: map[*jobEvents]part{}}
		k.byID[id] = s
		// A snapshot contains the marks in the order of their keys, not of their creation.
		at, _ := slices.BinarySearchFunc(k.segments, s, func(a, b *segment) int { return cmp.Compare(a.created, b.created) })
		k.segments = slices.Insert(k.segments, at, s)
	}
}

func (k *EventIndex) applyEvent(c store.Change) {
	if c.Deleted {
		return // the index subtracts it when its segment or floor changes
	}
	e, ok := k.space.ParseEvent(c.Key)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.Segment != 0 {
		k.add(e, len(c.Key)+e.Size)
		return
	}
	var floor recordv1.EventFloor
	if proto.Unmarshal(c.Value, &floor) != nil {
		return
	}
	if !k.counted {
		k.floors[floorID{e.Job, e.Service}] = floor.GetSegment()
	}
	if job := k.jobs[e.Job]; job != nil {
		for _, s := range k.segments {
			if s.service == e.Service && s.number <= floor.GetSegment() {
				k.removePart(s, job)
			}
		}
	}
}

// add counts one event, unless its segment was deleted.
func (k *EventIndex) add(e keyspace.EventKey, bytes int) {
	s := k.byID[segmentID{e.Service, e.Segment}]
	if s == nil {
		return
	}
	job := k.jobs[e.Job]
	if job == nil {
		// Without a clone the name would keep the whole key in memory.
		job = &jobEvents{name: strings.Clone(e.Job)}
		k.jobs[job.name] = job
	}
	p := s.parts[job]
	s.parts[job] = part{p.events + 1, p.bytes + bytes}
	s.bytes += bytes
	k.bytes += bytes
	k.events++
	if job.events++; job.events > k.perJob {
		k.aboveLimit[job] = struct{}{}
	}
}

// removePart removes a job's events from a segment.
func (k *EventIndex) removePart(s *segment, job *jobEvents) {
	p := s.parts[job]
	delete(s.parts, job)
	s.bytes -= p.bytes
	k.bytes -= p.bytes
	k.events -= p.events
	if job.events -= p.events; job.events == 0 {
		delete(k.jobs, job.name)
		delete(k.aboveLimit, job)
	}
}

// remove removes a segment. A nil segment is ignored.
func (k *EventIndex) remove(s *segment) {
	if s == nil {
		return
	}
	for job := range s.parts {
		k.removePart(s, job)
	}
	delete(k.byID, s.segmentID)
	k.segments = slices.DeleteFunc(k.segments, func(other *segment) bool { return other == s })
}
