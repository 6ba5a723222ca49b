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

// TestGangsOfTheParent checks that the members of a reservation that the agent of a cell made are those that
// the agent sets. A leader that does not know them lists none, so that no worker starts alone, and counts
// at least two workers, so that agents ask.
func TestGangsOfTheParent(t *testing.T) {
	w := prepare(t, 2)
	w.reservation("u1", model.Queued, 3, func(r *model.Reservation) {
		r.Spec.Labels = map[string]string{model.GangLabel: "parent"}
		r.Workers = model.WorkerSet{{Number: 1}}
	})
	w.progress()
	k := key("u1")
	size := func() int { return w.core.gangSize(&task{uid: "u1", header: &model.TaskHeader{}}) }
	if m := w.core.GangMembers(k); m.Workers != 0 || size() != 2 {
		t.Errorf("members that are not known: %+v, size %d", m, size())
	}
	if known, err := w.core.SetMembers(k, "v1", nil); known || err != nil {
		t.Errorf("a version that is not known: %v, %v", known, err)
	}
	list := model.NewMembers(8, []model.Member{{ID: model.WorkerID{Index: 7, Number: 3}, Executor: "e", Host: "h"}},
		model.Unplaced{})
	if known, err := w.core.SetMembers(k, "v1", list); !known || err != nil {
		t.Fatalf("set: %v, %v", known, err)
	}
	for version, want := range map[string]bool{"v1": true, "v2": false} {
		if known, _ := w.core.SetMembers(k, version, nil); known != want {
			t.Errorf("version %s is known: %v", version, known)
		}
	}
	if m := w.core.GangMembers(k); m != list || size() != 8 || w.core.Members(k).Workers != 1 {
		t.Errorf("members %+v, size %d, own %+v", m, size(), w.core.Members(k))
	}
	w.reservation("u1", model.Cancelled, 3)
	w.reservation("u2", model.Queued, 3)
	w.progress()
	if m := w.core.GangMembers(k); m.Workers != 0 || len(w.core.given)+len(w.core.givenVersions) > 0 {
		t.Errorf("a reservation that has ended: %+v", m)
	}
	for uid, reason := range map[string]fault.Reason{"u1": fault.ReasonNotFound, "u2": fault.ReasonInvalid} {
		if _, err := w.core.SetMembers(key(uid), "v1", list); !fault.Is(err, reason) {
			t.Errorf("set members of %s: %v, want %s", uid, err, reason)
		}
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
