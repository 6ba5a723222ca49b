package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// waitingWorld returns a cluster that waits for its first MarkReady.
func waitingWorld(grace time.Duration) *world {
	w := newWorld(Config{Readiness: ReadyOnSignal, ReadinessGrace: grace})
	delete(w.records, (&model.Ready{}).Ref())
	w.successor(10)
	return w
}

// Before the mark is stored, the registry tries, dispatches and counts nothing, whatever is
// requested, granted, lost or failed over. After the mark is stored, the registry tries
// every head.
func TestNothingIsLeasedBeforeReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := waitingWorld(0)
		refuse := func(actions []model.Action) {
			if len(actionsOf[model.Cycle](actions)) > 0 || len(actionsOf[model.Dispatch](actions)) > 0 {
				t.Fatalf("before the registry is ready:\n%s", show(actions))
			}
		}
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				refuse(w.successor(20 + int64(i)))
			case 1:
				w.failing = true
				refuse(w.input(MarkReady{}))
				w.failing = false
			case 2:
				e := &model.Executor{ID: "x"}
				refuse(w.foreign(model.Changed{Ref: e.Ref(), Record: e}))
			case 3:
				w.others(t)
			default:
				refuse(w.input(drawRequest(t)))
			}
			refuse(w.step(nil))
			if groups, err := w.allPending(); groups != nil || fault.Of(err).Reason != fault.ReasonRegistryNotReady {
				t.Fatalf("pending: %v, %v", groups, err)
			}
			if next := w.core.NextDeadline(); !next.IsZero() && !next.After(w.now) {
				t.Fatalf("stepped at %v, next deadline %v", w.now, next)
			}
		}
		tried := map[string]bool{}
		for _, cycle := range actionsOf[model.Cycle](w.input(MarkReady{})) {
			for _, entry := range cycle.Candidates {
				tried[entry.UID] = true
			}
		}
		for _, g := range w.core.scheduler.Groups() {
			if head, _ := g.Head(); !tried[head.UID] {
				t.Fatalf("%s is the head of %s, and is not tried", head.UID, g.ID)
			}
		}
		if w.core.leased.Len() > 0 && w.core.dispatching == nil {
			t.Fatal("what holds a lease is not dispatched")
		}
	})
}

// The first mark never changes, whichever replica leads and however often MarkReady is
// repeated.
func TestReadyIsMarkedOnce(t *testing.T) {
	w := waitingWorld(time.Minute)
	begun := w.now
	w.now = w.now.Add(time.Second)
	since := w.now
	for term := range int64(3) {
		reply := actionsOf[model.Reply](w.input(MarkReady{}))
		if len(reply) != 1 || !reply[0].Value.(MarkedReady).Since.Equal(since) {
			t.Fatalf("term %d: %+v", term, reply)
		}
		w.now = w.now.Add(time.Hour)
		w.successor(20 + term)
	}
	if r := w.core.ready; *r != (model.Ready{Since: since, By: "signal", Begun: begun}) {
		t.Errorf("%+v", r)
	}
	// A restore deletes the mark. Afterwards the registry requires a new mark.
	w.foreign(model.Changed{Ref: (&model.Ready{}).Ref()})
	if w.core.isReady() || !w.core.ready.Begun.Equal(w.now) {
		t.Errorf("after the mark was deleted: %+v", w.core.ready)
	}
}
