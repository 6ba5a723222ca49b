package stream

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// segments has the consecutive segments of one service that are certainly stored: the newest
// segment and the segments before it, down to the first segment whose mark is missing.
type segments struct {
	service string
	marks   []mark // oldest first
	// floor is the lowest revision from which on every event of the service is stored, or 0
	// if no event was ever deleted.
	floor int64
}

// mark is the mark of a segment: the segment's number and its first revision. If the segment
// is the oldest, kept is the revision from which on every event of the service is stored.
type mark struct{ number, created, kept int64 }

// segmentsOf returns the segments of each service that the keys list at a revision. A
// service without keys has never written an event.
func segmentsOf(keys keyspace.Space, kvs []store.KV, revision int64) []segments {
	newest, marks := map[string]int64{}, map[string]map[int64]mark{}
	var services []string
	for _, kv := range kvs {
		service, number, ok := keys.ParseSegment(kv.Key)
		if !ok {
			continue
		}
		if marks[service] == nil {
			services = append(services, service)
			marks[service] = map[int64]mark{}
		}
		var segment recordv1.EventSegment
		unread := proto.Unmarshal(kv.Value, &segment) != nil
		switch {
		case number == 0 && !unread && segment.GetNumber() >= 1 && segment.GetNumber() <= keyspace.MaxSegment:
			newest[service] = segment.GetNumber()
		case number != 0:
			// The revision of the mark counts even if its value cannot be decoded.
			marks[service][number] = mark{number, kv.Create, cmp.Or(max(0, segment.GetKeptFrom()), kv.Create)}
		}
	}
	list := make([]segments, len(services))
	for i, service := range services {
		if newest[service] == 0 { // the key cannot be decoded, so use the highest mark
			for number := range marks[service] {
				newest[service] = max(newest[service], number)
			}
		}
		s := segments{service: service}
		for m, exists := marks[service][newest[service]]; exists; m, exists = marks[service][m.number-1] {
			s.marks = append(s.marks, m)
		}
		slices.Reverse(s.marks)
		switch {
		case len(s.marks) == 0:
			// The newest segment has expired. Until the leader of the service begins
			// another segment, only events after revision are certain to be stored.
			s.floor = revision
		case s.marks[0].number > 1:
			s.floor = s.marks[0].kept
		}
		list[i] = s
	}
	return list
}

// at returns the number of the segment with the events of a revision. If the revision is
// older than all segments, at returns the oldest segment.
func (s segments) at(revision int64) int64 {
	number := s.marks[0].number
	for _, m := range s.marks {
		if m.created <= revision {
			number = m.number
		}
	}
	return number
}

// floorOf returns the revision in the stored floor of a job and a service.
func floorOf(kv store.KV) (int64, error) {
	var floor recordv1.EventFloor
	if err := proto.Unmarshal(kv.Value, &floor); err != nil {
		return 0, fault.New(fault.Internal, fault.ReasonInternal, "the value of %s is not a floor", kv.Key).Because(err)
	}
	return floor.GetRevision(), nil
}
