package keyspace

import (
	"testing"

	"berth.dev/pkg/model"
)

// At most one parser accepts a key. The parsed value produces exactly the same key again.
func FuzzKeys(f *testing.F) {
	space := New("default")
	key := model.Key{Job: "etl", Stage: "map", Name: "main"}
	for _, text := range []string{
		space.Key(model.Ref{Kind: model.KindReservation, Key: key, ID: "a-1"}),
		space.Key(model.LeaderRef(model.ServiceRegistry)),
		space.Key(model.Ref{Kind: model.KindTaskChunk, ID: "a-1", Chunk: 12}),
		space.Key(model.Ref{Kind: model.KindPoison, ID: "registry/1f"}),
		space.Key(model.Ref{Kind: model.KindVolumeChunk, Key: model.Key{Job: "etl", Stage: "map"}, Chunk: 3}),
		space.Event(EventKey{Job: "etl", Service: "registry", Segment: 7, Number: 1, Size: 200}),
		space.EventFloor("etl", "registry"),
		space.NewestSegment("registry"), space.Segment("registry", 300), space.Prefix(), "",
		"/berth/default/executors/leases/a/-0001",
		space.Segments() + "registry/7fffffffffffffff", space.Events() + "j/s/-1--1--1", space.Prefix() + "chain/chain",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, isRecord := space.Parse(text)
		if isRecord && (ref.Kind == model.KindUnset || space.Key(ref) != text) {
			t.Errorf("Parse(%q) = %+v, whose key is %q", text, ref, space.Key(ref))
		}
		event, isEvent := space.ParseEvent(text)
		switch {
		case !isEvent:
		case event.Segment == 0 && space.EventFloor(event.Job, event.Service) != text, event.Segment != 0 &&
			space.Event(event) != text:
			t.Errorf("ParseEvent(%q) = %+v", text, event)
		}
		service, number, isSegment := space.ParseSegment(text)
		switch {
		case !isSegment:
		case number == 0 && space.NewestSegment(service) != text, number != 0 && space.Segment(service, number) != text:
			t.Errorf("ParseSegment(%q) = %q, %d", text, service, number)
		}
		if isEvent && isSegment || isRecord && (isEvent && event.Segment != 0) {
			t.Errorf("%q is of two kinds", text)
		}
	})
}
