package keyspace

import (
	"testing"

	"berth.dev/pkg/model"
)

// TestKeyAndParse checks that every kind of record has one key, and that no two records
// share a key. Parsing a key must return the reference of its record.
func TestKeyAndParse(t *testing.T) {
	space := New("default")
	key := model.Key{Job: "etl", Stage: "map", Name: "main"}
	refs := map[model.Ref]string{
		{Kind: model.KindLeader, ID: model.ServiceRegistry}:     "/berth/default/leaders/registry",
		{Kind: model.KindChain, ID: model.ServiceExecutorState}: "/berth/default/executor-state/chain",
		{Kind: model.KindReservation, Key: key,
			ID: "a-1"}: "/berth/default/registry/reservations/etl/map/main/a-1",
		{Kind: model.KindStage, Key: model.Key{Job: "etl", Stage: "map"}}: "/berth/default/registry/stages/etl/map",
		{Kind: model.KindExecutor, ID: "host-1"}:                          "/berth/default/executors/records/host-1",
		{Kind: model.KindLive, ID: "host-1"}:                              "/berth/default/executors/live/host-1",
		{Kind: model.KindLeaseChunk, ID: "a-1", Chunk: 3}:                 "/berth/default/executors/leases/a-1/00003",
		{Kind: model.KindTaskHeader, ID: "a-1"}:                           "/berth/default/assigner/tasks/a-1",
		{Kind: model.KindTaskChunk, ID: "a-1", Chunk: 12}:                 "/berth/default/assigner/tasks/a-1/00012",
		{Kind: model.KindReady}:                                           "/berth/default/registry/ready",
		{Kind: model.KindSKU, ID: "small"}:                                "/berth/default/executors/skus/small",
		{Kind: model.KindPool, ID: "night"}:                               "/berth/default/executors/pools/night",
		{Kind: model.KindDisable, ID: "d-1"}:                              "/berth/default/executors/disables/d-1",
		{Kind: model.KindPoison, ID: "registry/1f2e"}:                     "/berth/default/registry/poison/1f2e",
		{Kind: model.KindForgotten}:                                       "/berth/default/executors/forgotten",
		{Kind: model.KindOffer, ID: "1a-3"}:                               "/berth/default/executors/offers/1a-3",
		{Kind: model.KindRefusal, ID: "host-1"}:                           "/berth/default/assigner/refusals/host-1",
		{Kind: model.KindVolumeChunk, Key: model.Key{Job: "etl", Stage: "map"},
			Chunk: 1<<24 - 1}: "/berth/default/executors/volumes/etl/map/16777215",
	}
	for ref, want := range refs {
		got := space.Key(ref)
		if got != want {
			t.Errorf("Key(%+v) = %q, want %q", ref, got, want)
		}
		if back, ok := space.Parse(got); !ok || back != ref {
			t.Errorf("Parse(%q) = %+v, %v", got, back, ok)
		}
	}
}

// TestParseRefuses checks that Parse rejects keys of events, keys of other clusters and
// malformed keys.
func TestParseRefuses(t *testing.T) {
	space := New("default")
	for _, key := range []string{
		space.Event(EventKey{Job: "etl", Service: model.ServiceRegistry, Segment: 7, Number: 1}),
		space.EventFloor("etl", model.ServiceRegistry),
		space.NewestSegment(model.ServiceRegistry),
		space.Segment(model.ServiceRegistry, 1),
		"/berth/other/leaders/registry",
		"/berth/default/",
		"/berth/default/executors/leases/a-1/x",
		"/berth/default/executors/leases/a-1/3",
		"/berth/default/executors/leases/a-1/+0003",
		"/berth/default/executors/leases/a-1/-0003",
		"/berth/default/executors/leases/a-1/000003",
		"/berth/default/executors/leases/a-1/99999999999",
		"/berth/default/executors/leases//00003",
		"/berth/default/executors/volumes/etl/00003",
		"/berth/default/executors/volumes/etl/map/3",
		"/berth/default/executors/records/",
		"/berth/default/executors/records/host 1",
		"/berth/default/executors/records/host\xff",
		"/berth/default/registry/reservations////",
		"/berth/default/leaders/",
		"/berth/default/registry/reservations/etl/map/main",
	} {
		if ref, ok := space.Parse(key); ok {
			t.Errorf("Parse(%q) = %+v, want none", key, ref)
		}
	}
}

// TestWriters checks that every stored kind of record has exactly one writer.
func TestWriters(t *testing.T) {
	for kind := model.KindReservation; kind <= model.KindVolumeChunk; kind++ {
		if Writer(kind) == "" && kind != model.KindPoison { // the key of a poison record names its writer
			t.Errorf("kind %d has no writer", kind)
		}
	}
}
