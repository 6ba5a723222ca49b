package queue

import (
	"testing"

	"berth.dev/pkg/model"
)

// The versions that a request creates, and their events, have the trace of that request.
// The next request has its own trace.
func TestEventsHaveTheTraceOfTheirRequest(t *testing.T) {
	const first, second = model.Trace("first"), model.Trace("second")
	w := newWorld(Config{})
	w.step(model.Elected{Term: 1, Revision: w.revision})
	events := map[model.EventKind]model.Trace{}
	w.measure = func(e model.Effect) {
		for _, event := range e.Events {
			events[event.Kind] = event.Trace
		}
	}
	key := model.Key{Job: "j", Stage: "s", Name: model.MainName}
	w.input(model.Upsert{Key: key, Count: 2, Trace: first})
	if entry := w.cycle.Candidates[0]; entry.Trace != first || events[model.EventReservationQueued] != first {
		t.Errorf("the cycle has the trace %q, the events %v", entry.Trace, events)
	}
	w.input(model.Upsert{Key: key, Count: 1, Trace: second})
	if events[model.EventReservationReplaced] != first || events[model.EventReservationQueued] != second {
		t.Errorf("the events of a replacement have the traces %v", events)
	}
}
