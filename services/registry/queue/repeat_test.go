package queue

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

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
