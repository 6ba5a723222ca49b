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

// run is the segments of one service that are certain to be kept with all after
// them: from its newest down to the first that has gone.
type run struct {
	service string
	marks   []mark // the oldest first
	// floor is the revision from which on nothing that the service wrote was
	// dropped; 0 when nothing ever was.
	floor int64
}

// mark of a segment: its number, its first revision, and the one from which on
// nothing was dropped where it is the oldest.
type mark struct{ number, created, kept int64 }

// runs reads the keys that tell of segments, as of a revision. A service that
// has no newest segment never told of anything.
func runs(keys keyspace.Space, kvs []store.KV, revision int64) []run {
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
			// The revision of a mark counts, whatever is in it.
			marks[service][number] = mark{number, kv.Create, cmp.Or(max(0, segment.GetKeptFrom()), kv.Create)}
		}
	}
	for service, numbered := range marks {
		if newest[service] == 0 { // it cannot be read: the highest mark is as good
			for number := range numbered {
				newest[service] = max(newest[service], number)
			}
		}
	}
	list := make([]run, len(services))
	for i, service := range services {
		r := run{service: service}
		for m, kept := marks[service][newest[service]]; kept; m, kept = marks[service][m.number-1] {
			r.marks = append(r.marks, m)
		}
		slices.Reverse(r.marks)
		switch {
		case len(r.marks) == 0:
			// Its newest segment has run out. Until its leader begins another,
			// nothing but now is certain.
			r.floor = revision
		case r.marks[0].number > 1:
			r.floor = r.marks[0].kept
		}
		list[i] = r
	}
	return list
}

// at is the number of the segment that holds what the service wrote at a
// revision; that of the oldest for what is older.
func (r run) at(revision int64) int64 {
	number := r.marks[0].number
	for _, m := range r.marks {
		if m.created <= revision {
			number = m.number
		}
	}
	return number
}

// floorOf is the first revision that the floor of a job and a service leaves.
func floorOf(kv store.KV) (int64, error) {
	var floor recordv1.EventFloor
	if err := proto.Unmarshal(kv.Value, &floor); err != nil {
		return 0, fault.New(fault.Internal, fault.ReasonInternal, "%s holds no floor", kv.Key).Because(err)
	}
	return floor.GetRevision(), nil
}
