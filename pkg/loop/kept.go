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

// Kept is what a replica knows of the job events that etcd holds, of all
// services: how many there are, of which jobs and in which segments. It learns
// of them from the view, and at the start from a count of their keys; it holds
// none of them, and no memory for any single one.
//
// Events go by the segment or by a job's part of one, never singly. So what it
// is told of is: an event was put, a segment's mark came or went, the floor of a
// job was raised.
type Kept struct {
	space keyspace.Space
	// marks and all are the prefixes of the keys that it is told of.
	marks, all string
	most       int // events of one job

	mu       sync.Mutex
	newest   map[string]int64 // segment, by service
	ranOut   map[string]int64 // the revision that the newest one ended at
	byID     map[segmentID]*segment
	segments []*segment // the oldest first
	jobs     map[string]*jobEvents
	over     map[*jobEvents]struct{} // jobs that had too many when last looked at
	events   int
	bytes    int

	// since is the revision of the view's snapshot. Events up to it are counted
	// apart, and until that is done floors are remembered, which it might miss.
	since     int64
	counted   bool
	countedTo string // the last key that was
	floors    map[floorID]int64
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

// part is what a segment holds of one job.
type part struct{ events, bytes int }

type jobEvents struct {
	name   string
	events int
}

func newKept(space keyspace.Space, most int) *Kept {
	k := &Kept{space: space, marks: space.Segments(), all: space.Events(), most: most}
	k.reset(0)
	return k
}

// reset forgets everything: a snapshot of that revision follows.
func (k *Kept) reset(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest, k.ranOut = map[string]int64{}, map[string]int64{}
	k.byID, k.segments = map[segmentID]*segment{}, nil
	k.jobs, k.over = map[string]*jobEvents{}, map[*jobEvents]struct{}{}
	k.events, k.bytes = 0, 0
	k.since, k.counted, k.countedTo, k.floors = revision, false, "", map[floorID]int64{}
}

// Count counts the events that were there before the view was: until it has
// ended without an error, nothing is let go of. After one it may be tried again.
func (k *Kept) Count(ctx context.Context, s store.Store) error {
	err := store.Keys(ctx, s, k.all, func(kvs []store.KV) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, kv := range kvs {
			if kv.Key <= k.countedTo {
				continue
			}
			k.countedTo = kv.Key
			e, ok := k.space.ParseEvent(kv.Key)
			if ok && kv.Mod <= k.since && e.Segment > k.floors[floorID{e.Job, e.Service}] {
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

// Total is how many events are kept, and how many bytes of keys and values;
// false while they are being counted.
func (k *Kept) Total() (events, bytes int, counted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.events, k.bytes, k.counted
}

// told takes a change of a mark, an event or a floor; false when it is of
// something else.
func (k *Kept) told(c store.Change) bool {
	switch {
	case strings.HasPrefix(c.Key, k.marks):
		k.mark(c)
	case strings.HasPrefix(c.Key, k.all):
		k.event(c)
	default:
		return false
	}
	return true
}

// highestSegment bounds the number that a service believes to be its newest, so that
// it can go on above it.
const highestSegment = keyspace.MaxSegment / 2

func (k *Kept) mark(c store.Change) {
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
		if err := proto.Unmarshal(c.Value, &newest); err == nil && newest.GetNumber() >= 1 && newest.GetNumber() <= highestSegment {
			k.newest[service] = newest.GetNumber()
		}
	case c.Deleted:
		k.drop(k.byID[id])
		if number == k.newest[service] {
			k.ranOut[service] = c.Mod
		}
	case k.byID[id] == nil:
		if number <= highestSegment {
			k.newest[service] = max(k.newest[service], number) // should the key that names it be wrong
		}
		s := &segment{segmentID: id, lease: c.Lease, created: c.Create, parts: map[*jobEvents]part{}}
		k.byID[id] = s
		// In a snapshot they come in the order of their keys.
		at, _ := slices.BinarySearchFunc(k.segments, s, func(a, b *segment) int { return cmp.Compare(a.created, b.created) })
		k.segments = slices.Insert(k.segments, at, s)
	}
}

func (k *Kept) event(c store.Change) {
	if c.Deleted {
		return // with its segment, or by a floor
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
				k.cut(s, job)
			}
		}
	}
}

// add counts one event, unless its segment has gone.
func (k *Kept) add(e keyspace.EventKey, bytes int) {
	s := k.byID[segmentID{e.Service, e.Segment}]
	if s == nil {
		return
	}
	job := k.jobs[e.Job]
	if job == nil {
		// A clone: the name is part of a key, and would keep the whole of it.
		job = &jobEvents{name: strings.Clone(e.Job)}
		k.jobs[job.name] = job
	}
	p := s.parts[job]
	s.parts[job] = part{p.events + 1, p.bytes + bytes}
	s.bytes += bytes
	k.bytes += bytes
	k.events++
	if job.events++; job.events > k.most {
		k.over[job] = struct{}{}
	}
}

// cut takes a job's part out of a segment.
func (k *Kept) cut(s *segment, job *jobEvents) {
	p := s.parts[job]
	delete(s.parts, job)
	s.bytes -= p.bytes
	k.bytes -= p.bytes
	k.events -= p.events
	if job.events -= p.events; job.events == 0 {
		delete(k.jobs, job.name)
		delete(k.over, job)
	}
}

func (k *Kept) drop(s *segment) {
	if s == nil {
		return
	}
	for job := range s.parts {
		k.cut(s, job)
	}
	delete(k.byID, s.segmentID)
	k.segments = slices.DeleteFunc(k.segments, func(other *segment) bool { return other == s })
}
