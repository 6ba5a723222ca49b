package queue

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// An earlier version of Berth stored request marks without a fingerprint. Such a mark
// matches any call with its request ID.
func TestAnOldRequestMarkMatchesAnyCall(t *testing.T) {
	w := newWorld(Config{})
	w.successor(10)
	key := model.Key{Job: "j", Stage: "s", Name: "main"}
	w.input(model.Upsert{Key: key, Count: 2, RequestID: "old"})
	v := w.core.byKey[key][0]
	for _, mark := range v.r.Requests {
		if mark.Call == 0 {
			t.Error("a new mark has no fingerprint")
		}
	}
	old := *v.r
	old.Requests = []model.RequestMark{{ID: "old", Change: model.Created}}
	w.foreign(model.Changed{Ref: old.Ref(), Record: &old})
	replies := w.input(model.Upsert{Key: key, Count: 3, RequestID: "old"})
	reply := replies[len(replies)-1].(model.Reply)
	if u, ok := reply.Value.(Upserted); !ok || u.Change != model.Created || u.Reservation.UID != v.uid {
		t.Errorf("answered %+v", reply)
	}
}

// A request ID belongs to one call. The registry rejects another body under the same ID.
func TestAnotherCallUnderARequestIDIsRefused(t *testing.T) {
	w := newWorld(Config{})
	w.successor(10)
	key := model.Key{Job: "j", Stage: "s", Name: "main"}
	w.input(model.Upsert{Key: key, Count: 3, RequestID: "new"})
	refused := w.input(model.Upsert{Key: key, Count: 4, RequestID: "new"})
	f := fault.Of(refused[len(refused)-1].(model.Reply).Err)
	if f == nil || f.Kind != fault.Conflict || f.Reason != fault.ReasonDuplicate ||
		f.Message != `requestId: "new" was used for another call` {
		t.Errorf("refused with %v", f)
	}
}
