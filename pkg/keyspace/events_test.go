package keyspace

import (
	"slices"
	"strings"
	"testing"

	"berth.dev/pkg/model"
)

func TestKeysOfEventsAreRead(t *testing.T) {
	space := New("default")
	for _, e := range []EventKey{
		{Job: "etl", Service: model.ServiceRegistry, Segment: 1, Number: 1, Size: 200},
		{Job: "etl.2", Service: model.ServiceExecutorState, Segment: 1 << 31, Number: 1 << 40, Size: 1 << 20},
		{Job: "etl", Service: model.ServiceAssigner, Segment: 300, Number: 7},
	} {
		if got, ok := space.ParseEvent(space.Event(e)); !ok || got != e {
			t.Errorf("%q is read as %+v, %v", space.Event(e), got, ok)
		}
		if from, to := space.SegmentEvents(e.Job, e.Service, e.Segment); space.Event(e) < from || space.Event(e) >= to {
			t.Errorf("%q is not within %q and %q", space.Event(e), from, to)
		}
	}
	if got, ok := space.ParseEvent(space.EventFloor("etl", "registry")); !ok ||
		got != (EventKey{Job: "etl", Service: "registry"}) {
		t.Errorf("a floor is read as %+v, %v", got, ok)
	}
	for _, key := range []string{"/berth/other/events/j/registry", "/berth/default/leaders/x", "/berth/default/events/j",
		"/berth/default/events/j/registry/7-1", "/berth/default/events/j/registry/x-y-z",
		"/berth/default/events/j/registry/00000001-000000000001-7fffffff", "/berth/default/events/j/registry/1-1-1",
		"/berth/default/events/j/registry/-0000001-000000000001-1",
		"/berth/default/events/j/registry/100000000-000000000001-1",
		"/berth/default/events//registry", "/berth/default/events/j/"} {
		if got, ok := space.ParseEvent(key); ok {
			t.Errorf("%q is read as %+v", key, got)
		}
	}
}

// The keys of a service sort in the order of its writes. The keys of a segment are
// contiguous. A range delete of these keys does not include the floor.
func TestKeysOfEventsAreInOrder(t *testing.T) {
	space := New("default")
	var keys []string
	for _, at := range [][2]int64{{1, 1}, {1, 9}, {1, 10}, {15, 11}, {16, 12}, {16, 1 << 33}, {17, 1}} {
		keys = append(keys, space.Event(EventKey{Job: "j", Service: "registry", Segment: at[0], Number: at[1], Size: 300}))
	}
	if !slices.IsSorted(keys) {
		t.Errorf("not in order: %q", keys)
	}
	from, to := space.SegmentEvents("j", "registry", 16)
	var within []string
	for _, key := range append(keys, space.EventFloor("j", "registry"), space.EventFloor("j", "registry2")) {
		if from <= key && key < to {
			within = append(within, key)
		}
	}
	if !slices.Equal(within, keys[4:6]) {
		t.Errorf("the segment holds %q", within)
	}
	from, to = space.ServiceEvents("j", "registry", 16)
	other := space.Event(EventKey{Job: "j", Service: "registry-2", Segment: 20})
	if keys[3] >= from || keys[4] < from || keys[6] >= to || other >= from && other < to ||
		!strings.HasPrefix(from, space.JobEvents("j")) {
		t.Errorf("from segment 16 on: %q to %q", from, to)
	}
}

func TestKeysOfSegmentsAreRead(t *testing.T) {
	space := New("default")
	if service, number, ok := space.ParseSegment(space.Segment("registry", 300)); !ok || service != "registry" ||
		number != 300 {
		t.Error(service, number, ok)
	}
	if service, number, ok := space.ParseSegment(space.NewestSegment("registry")); !ok || service != "registry" ||
		number != 0 {
		t.Error(service, number, ok)
	}
	for _, key := range []string{"/berth/other/segments/registry", "/berth/default/registry/chain",
		"/berth/default/segments/registry/x",
		"/berth/default/segments/", "/berth/default/segments//00000001", "/berth/default/segments/registry/1",
		"/berth/default/segments/registry/-0000001", "/berth/default/segments/registry/7fffffffffffffff"} {
		if service, number, ok := space.ParseSegment(key); ok {
			t.Errorf("%q: %q %d", key, service, number)
		}
	}
}
