package inventory

import (
	"slices"
	"testing"

	"berth.dev/pkg/model"
)

func again(e model.Candidate) model.Candidate {
	return model.Candidate{UID: e.UID, Mod: e.Mod, Group: e.Group, Unchanged: true}
}

// take sends the candidates in the cycle with number n and returns the outcomes.
func (r *rig) take(t *testing.T, n int64, entries ...model.Candidate) []model.Outcome {
	t.Helper()
	value, err := r.do(model.Cycle{Term: r.registryTerm(), Number: n, Cut: r.rev, Candidates: entries})
	if err != nil {
		t.Fatal(err)
	}
	return value.([]model.Outcome)
}

// refusedOnce returns a rig with a candidate of five workers. The first cycle could place
// none of them, and now there is free capacity for two.
func refusedOnce(t *testing.T) (*rig, model.Candidate) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 500, 1))
	e := r.queue("big", 5, cpu(1000))
	r.take(t, 1, e)
	r.ready(small("h2", 2000, 2))
	return r, e
}

func of(outcomes []model.Outcome, uid string) []model.Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o model.Outcome) bool { return o.UID != uid })
}

// If the answer to a cycle with new outcomes is lost, the answer to the repeated cycle
// contains the outcomes again.
func TestRepeatedCycleReportsItsChangesAgain(t *testing.T) {
	r, e := refusedOnce(t)
	first, second := r.take(t, 2, again(e)), r.take(t, 2, again(e))
	if len(first) != 1 || first[0].Fitting != 2 || !slices.Equal(first, second) {
		t.Errorf("first %+v, then %+v", first, second)
	}
	if third := r.take(t, 3, again(e)); len(third) != 0 {
		t.Errorf("nothing is new, but %+v", third)
	}
}

// The same holds if another grant of the cycle depends on a record that has changed. The
// effects of the cycle are then abandoned, and the cycle is sent again.
func TestAbandonedCycleReportsItsChanges(t *testing.T) {
	r, e := refusedOnce(t)
	o := r.queue("other", 1, cpu(100))
	r.write(&model.Reservation{Key: keyOf("other"), UID: "other", State: model.Cancelled,
		Workers: model.WorkerSet{{Last: 0, Number: 1}}})
	if outcomes := r.take(t, 2, again(e), o); len(of(outcomes, "big")) != 1 {
		t.Errorf("no word of big: %+v", outcomes)
	}
}

// If a candidate is sent by its name and its record is quarantined, it is refused by its
// name. The candidates behind it are decided.
func TestANamedCandidateWithAQuarantinedRecord(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 500, 1))
	e := r.queue("x", 1, cpu(1000))
	r.drop(model.Ref{Kind: model.KindReservation, Key: keyOf("x"), ID: "x"})
	r.catchUp()
	r.step(model.Quarantined{Ref: model.Ref{Kind: model.KindReservation, Key: keyOf("x"), ID: "x"}})
	o := r.queue("y", 5, cpu(1000))
	whole := r.take(t, 1, e, o)
	if named := r.take(t, 2, again(e), again(o)); !slices.Equal(of(named, "x"), of(whole, "x")) {
		t.Errorf("%+v, and whole %+v", named, whole)
	}
}
