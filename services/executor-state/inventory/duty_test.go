package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// If a release is abandoned, the core repeats it without any other change.
func TestAbandonedReleaseIsDoneAgain(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 2, cpu(1000))))
	r.dispatch("u")
	r.end("u", model.WorkerCompleted, 0)
	r.catchUp()
	for range 2 {
		if len(r.effects) != 1 {
			t.Fatalf("%d effects, want the release", len(r.effects))
		}
		r.effects = nil
		r.step(model.Abandoned{})
		r.step(nil)
	}
}

// A lease keeps its create revision when some of its workers have ended.
func TestReleaseKeepsTheLeasesRevision(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	e := r.queue("u", 2, cpu(1000))
	granted := r.cycle(e)[0]
	r.dispatch("u")
	r.end("u", model.WorkerCompleted, 0)
	r.catchUp()
	r.settle()
	if again := r.cycle(e)[0]; again.Result != model.Granted || again.Lease != granted.Lease || len(r.leased("u")) != 1 {
		t.Fatalf("granted %+v, then %+v", granted, again)
	}
}

// If a worker with the same ID ends on another executor, the worker in the lease does not
// end.
func TestAWorkerElsewhereFreesNothing(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.write(&model.TaskHeader{UID: "u"})
	r.apply(&model.TaskChunk{UID: "u", Workers: []model.TaskWorker{{ID: model.WorkerID{Number: 1}, Ordinal: 2,
		State: model.WorkerLost}}})
	if len(r.leased("u")) != 1 {
		t.Fatal("freed by the end of another worker")
	}
}

// If a reservation was written and deleted while the view was disconnected, the view never
// shows it. Its lease is orphaned as soon as the view has passed the revision of the grant.
func TestLeaseOfANeverSeenReservationIsDeleted(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	r.write(&model.Reservation{Key: keyOf("u"), UID: "u", State: model.Queued, Workers: model.WorkerSet{{Number: 1}}})
	expectGranted(t, r.cycle(r.entry("u")))
	if len(r.leased("u")) != 1 {
		t.Fatal("deleted before the view shows the reservation")
	}
	r.drop(refOf("u"))
	r.unseen = nil
	r.step(model.Progress{Revision: r.rev})
	r.settle()
	if len(r.leased("u")) != 0 {
		t.Fatal("the orphan stays")
	}
}

// A standby may have seen long ago that an executor became absent. After its election, it
// gives the executor another LostAfter to return.
func TestLostClockStartsWithTheElection(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	standby := New(DefaultConfig())
	for ref, k := range r.keys {
		standby.Step(r.now, model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	standby.Step(r.now, model.Changed{Ref: model.Ref{Kind: model.KindLive, ID: "h1"}, Mod: r.rev + 1})
	elected := r.now.Add(10 * time.Minute)
	if actions := standby.Step(elected, model.Elected{Term: r.rev + 2, Revision: r.rev + 2}); len(actions) > 0 {
		t.Fatalf("LOST at once: %+v", actions)
	}
	if v, _ := standby.Executor("h1"); v.State != model.ExecutorUnreachable || !v.StateSince.Equal(r.now) {
		t.Fatalf("%v since %v", v.State, v.StateSince)
	}
	if due := standby.NextDeadline(); !due.Equal(elected.Add(time.Minute)) {
		t.Fatalf("due at %v", due)
	}
}

// With LostAfter 0, an executor becomes LOST at once. The compare on its presence must not
// be in the transaction that deletes the presence.
func TestLostAfterZeroWaitsForTheDeletion(t *testing.T) {
	cfg := DefaultConfig()
	cfg.LostAfter = 0
	r := lead(cfg)
	r.log = func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); len(line) > 14 && line[:14] == "compare failed" {
			t.Fatal(line)
		}
	}
	if _, err := r.do(smallAgent("h1", "n1")); err != nil {
		t.Fatal(err)
	}
	v, _ := r.core.Executor("h1")
	r.ask(Announce{"h1", v.Incarnation, 7, 0, false, ""})
	r.settle()
	r.ask(smallAgent("h1", "n2"))
	r.step(nil)
	if len(r.effects) != 1 {
		t.Fatalf("%d effects, want only the registration", len(r.effects))
	}
	r.settle()
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorLost {
		t.Fatalf("state %v", v.State)
	}
}

func smallAgent(id, nonce string) Register {
	g := small(id, 1000, 1)
	g.Address, g.Nonce = id+":7200", nonce
	return g
}

// If new executors register, a mass loss can become ordinary losses. The absent executors
// then get another LostAfter, and become LOST when that time ends.
func TestMassLossEndsWhenTheFleetGrows(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 6 {
		r.ready(small(fmt.Sprintf("h%d", i), 1, 1))
	}
	for i := range 3 {
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: fmt.Sprintf("h%d", i)})
	}
	r.pause(5 * time.Minute)
	if f := r.core.Findings(r.now); len(f) != 1 || f[0].Kind != FindingMassLoss {
		t.Fatalf("%+v", f)
	}
	for i := range 10 {
		r.ready(small(fmt.Sprintf("n%d", i), 1, 1))
	}
	if s := r.core.Stats(); s.Lost != 0 || len(r.core.Findings(r.now)) != 0 {
		t.Fatalf("%+v %+v", s, r.core.Findings(r.now))
	}
	r.pause(r.core.cfg.LostAfter)
	if s := r.core.Stats(); s.Lost != 3 || len(r.core.Findings(r.now)) != 0 {
		t.Fatalf("%+v %+v", s, r.core.Findings(r.now))
	}
}
