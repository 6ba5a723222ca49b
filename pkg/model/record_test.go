package model

import "testing"

func TestRefsAreUnique(t *testing.T) {
	key := Key{"etl", "map", "main"}
	seen := map[Ref]Record{}
	for _, r := range []struct {
		record Record
		kind   Kind
	}{
		{&Reservation{Key: key, UID: "a-1"}, KindReservation},
		{&Reservation{Key: key, UID: "a-2"}, KindReservation},
		{&Stage{Job: "etl", Stage: "map"}, KindStage},
		{&Executor{ID: "a-1"}, KindExecutor},
		{&Live{ID: "a-1"}, KindLive},
		{&LeaseChunk{UID: "a-1"}, KindLeaseChunk},
		{&LeaseChunk{UID: "a-1", Chunk: 1}, KindLeaseChunk},
		{&TaskHeader{UID: "a-1"}, KindTaskHeader},
		{&TaskChunk{UID: "a-1"}, KindTaskChunk},
		{&TaskChunk{UID: "a-1", Chunk: 1}, KindTaskChunk},
		{&Poison{Service: ServiceRegistry, ID: "a-1"}, KindPoison},
		{&Poison{Service: ServiceAssigner, ID: "a-1"}, KindPoison},
	} {
		ref := r.record.Ref()
		if ref.Kind != r.kind {
			t.Errorf("%T has kind %d", r.record, ref.Kind)
		}
		if other, taken := seen[ref]; taken {
			t.Errorf("%+v and %+v share %+v", r.record, other, ref)
		}
		seen[ref] = r.record
	}
	if LeaderRef(ServiceRegistry) == LeaderRef(ServiceAssigner) {
		t.Error("two services share one election key")
	}
}
