package dispatch

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Only the agent that registered an executor lists members for it, and only of gangs that
// have a worker there.
func TestMayListMembers(t *testing.T) {
	w := prepare(t, 3)
	w.dispatched(t, "u1", 0, 1)
	w.dispatched(t, "u2", 2)
	e := *w.records[executorRef("e1")].record.(*model.Executor)
	e.Nonce, e.SecretHash, e.Incarnation = "n", "hash", 4
	w.write(e.Ref(), &e)
	for _, c := range []struct {
		name        string
		executor    string
		incarnation int64
		nonce       Nonce
		of          string
		reason      fault.Reason
	}{
		{"its agent", "e1", 4, "n", "u1", ""},
		{"without a secret", "e0", 1, "", "u1", ""},
		{"another nonce", "e1", 4, "m", "u1", fault.ReasonPermissionDenied},
		{"another incarnation", "e1", 3, "n", "u1", fault.ReasonOtherIncarnation},
		{"an unknown executor", "e7", 1, "", "u1", fault.ReasonNotFound},
		{"no worker of the gang", "e1", 4, "n", "u2", fault.ReasonNotFound},
		{"no such gang", "e1", 4, "n", "u3", fault.ReasonNotFound},
	} {
		err := w.core.MayListMembers(c.executor, c.incarnation, c.nonce, key(c.of))
		if c.reason == "" && err != nil || c.reason != "" && !fault.Is(err, c.reason) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A gang that is being stopped has no members, and its agents need no error.
	w.reservation("u1", model.Cancelling, 3)
	w.progress()
	if err := w.core.MayListMembers("e1", 4, "n", key("u1")); err != nil || len(w.core.Members(key("u1")).List) > 0 {
		t.Errorf("a gang that is being stopped: %v", err)
	}
}

// The core forgets the reservations of callers that have left when there are many.
func TestWatchedReservationsAreBounded(t *testing.T) {
	c := New(Config{})
	last := model.Key{}
	for i := range int32(maxWatched + 10) {
		last = model.Key{Job: "job", Stage: model.WorkerID{Index: i}.String(), Name: model.MainName}
		c.Watch(last, func(key model.Key) bool { return key == last })
	}
	if len(c.watched) > maxWatched || !c.watched[last] {
		t.Errorf("%d reservations", len(c.watched))
	}
}
