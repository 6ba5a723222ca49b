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

// EventIndex counts the job events of all services in etcd: per job and per segment. It
// learns of them from the view, and at the start from a count of their keys. It holds no
// event, and needs no memory for a single one.
//
// Events are deleted by the segment, or by a job's part of one, never singly. So there are
// three kinds of changes: an event was put, a segment's mark was put or deleted, and the
// floor of a job was raised.
type EventIndex struct {
	space keyspace.Space
	// marks and all are the prefixes of the keys that the index covers.
	marks, all string
	perJob     int // limit on the events of one job

	mu       sync.Mutex
	newest   map[string]int64 // number of the newest segment, by service
	expired  map[string]int64 // revision at which that segment expired
	byID     map[segmentID]*segment
	segments []*segment // the oldest first
	jobs     map[string]*jobEvents
	// aboveLimit are the jobs that had too many events when they were last examined.
	aboveLimit map[*jobEvents]struct{}
	events     int
	bytes      int

	// snapshot is the revision of the view's snapshot. Count counts the events up to it.
	// Until that is done, floors are remembered, since Count may read events below them.
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
	// lease is the segment's etcd lease, created its first revision.
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

// reset clears the index. A snapshot at that revision follows.
func (k *EventIndex) reset(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest, k.expired = map[string]int64{}, map[string]int64{}
	k.byID, k.segments = map[segmentID]*segment{}, nil
	k.jobs, k.aboveLimit = map[string]*jobEvents{}, map[*jobEvents]struct{}{}
	k.events, k.bytes = 0, 0
	k.snapshot, k.counted, k.lastCounted, k.floors = revision, false, "", map[floorID]int64{}
}

// Count counts the events that existed before the snapshot. No event is deleted until it
// has returned without an error. After an error it continues where it stopped.
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

// Total returns the number of events and the bytes of their keys and values. Counted is
// false until the count is complete.
func (k *EventIndex) Total() (events, bytes int, counted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.events, k.bytes, k.counted
}

// apply applies a change of a mark, an event or a floor. It reports whether the change is
// one of these.
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

// highestSegment bounds the number that counts as a service's newest segment, so that
// there are numbers above it.
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
			k.newest[service] = max(k.newest[service], number) // in case the key that names it is wrong
		}
		s := &segment{segmentID: id, lease: c.Lease, created: c.Create, parts: map[*jobEvents]part{}}
		k.byID[id] = s
		// A snapshot has them in the order of their keys.
		at, _ := slices.BinarySearchFunc(k.segments, s, func(a, b *segment) int { return cmp.Compare(a.created, b.created) })
		k.segments = slices.Insert(k.segments, at, s)
	}
}

func (k *EventIndex) applyEvent(c store.Change) {
	if c.Deleted {
		return // counted when its segment or floor changes
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
		// A clone: the name is part of a key and would keep all of it in memory.
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

// remove removes a segment, if it is known.
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
