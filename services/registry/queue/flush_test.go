package queue

import (
	"fmt"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// A flush of many reservations takes several effects, and each effect fits in a
// transaction. If the leader fails after some of them, a repeat of the flush ends the
// remaining reservations and stores the mark of the call.
func TestFlushOfManyContinuesAfterAFailover(t *testing.T) {
	const many = 3*effectReservations + 7
	w := started()
	for i := range many {
		w.input(ask(fmt.Sprintf("j%03d", i), 1))
	}
	flush := request.Flush{Group: request.WithDefaults(ask("j", 1)).Spec.Constraints.Group(), RequestID: "f"}
	w.hold = true
	if effects := actionsOf[model.Effect](w.input(flush)); len(effects) != 4 {
		t.Fatalf("%d effects", len(effects))
	}
	for _, effect := range w.held {
		if ops := len(effect.Puts) + len(effect.Events); ops > 120 || len(effect.Expect) != len(effect.Puts) {
			t.Errorf("an effect of %d operations and %d compares", ops, len(effect.Expect))
		}
	}
	w.apply(w.held[0])
	w.hold, w.held = false, nil
	w.successor(20)
	for _, want := range []int{many - effectReservations, many - effectReservations} {
		replies := actionsOf[model.Reply](w.input(flush))
		if len(replies) != 1 || replies[0].Value != (Cancelled{Count: want}) {
			t.Fatalf("%+v", replies)
		}
	}
	stats := w.core.Stats()
	if len(stats.Groups) != 0 || stats.States[model.Cancelled] != many {
		t.Errorf("left: %+v", stats)
	}
	if view, _ := w.core.Get(ask("j000", 1).Key); view.Reason != fault.ReasonFlushed || view.Message == "" {
		t.Errorf("%+v", view)
	}
}

// If the assigner creates the task of a version while the registry decides a flush, the
// version does not end. The compare of the effect fails, and the repeated flush skips the
// version.
func TestFlushKeepsDispatchedReservations(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	w.input(ask("b", 1))
	w.foreign(w.leaseOf("a-1"))
	task := &model.TaskHeader{UID: "a-1", Complete: true}
	unseen := model.Changed{Ref: task.Ref(), Record: task}
	w.write(unseen)
	flush := request.Flush{Group: request.WithDefaults(ask("a", 1)).Spec.Constraints.Group()}
	if actions := w.input(flush); len(actionsOf[model.Abandoned](actions)) != 1 {
		t.Fatalf("not abandoned:\n%s", show(actions))
	}
	unseen.Create, unseen.Mod = w.revision, w.revision
	w.show(unseen)
	if replies := actionsOf[model.Reply](w.input(flush)); len(replies) != 1 || replies[0].Value != (Cancelled{Count: 1}) {
		t.Fatalf("%+v", replies)
	}
	if view, _ := w.core.GetUID("a-1"); view.Reservation.State != model.Active {
		t.Errorf("a is %s", view.Reservation.State)
	}
}
