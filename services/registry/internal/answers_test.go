package internal

import (
	"testing"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
)

// An invalid answer to a cycle grants nothing. Its candidates stay queued for the next
// cycle.
func TestInvalidAnswerToACycleGrantsNothing(t *testing.T) {
	cycle := model.Cycle{Number: 4, Candidates: []model.Candidate{{UID: "a"}, {UID: "b"}}}
	granted := func(uid string) *controlv1.CandidateOutcome {
		return &controlv1.CandidateOutcome{Uid: uid, Result: controlv1.CandidateOutcome_GRANTED, Lease: 9}
	}
	for name, answer := range map[string]*controlv1.CycleAnswer{
		"too many":       {Outcomes: []*controlv1.CandidateOutcome{granted("a"), granted("b"), granted("c")}},
		"unknown uid":    {Outcomes: []*controlv1.CandidateOutcome{granted("a"), granted("x")}},
		"twice":          {Outcomes: []*controlv1.CandidateOutcome{granted("a"), granted("a")}},
		"nil outcome":    {Outcomes: []*controlv1.CandidateOutcome{granted("a"), nil}},
		"no result":      {Outcomes: []*controlv1.CandidateOutcome{{Uid: "a"}}},
		"unknown result": {Outcomes: []*controlv1.CandidateOutcome{{Uid: "a", Result: 257}}},
		"no lease":       {Outcomes: []*controlv1.CandidateOutcome{{Uid: "a", Result: controlv1.CandidateOutcome_GRANTED}}},
		"negative fitting": {Outcomes: []*controlv1.CandidateOutcome{{Uid: "a", Result: controlv1.CandidateOutcome_NO_FIT,
			Fitting: -1}}},
		"long message": {Outcomes: []*controlv1.CandidateOutcome{{Uid: "a", Result: controlv1.CandidateOutcome_NO_FIT,
			Message: string(make([]byte, maxAnswerText+1))}}},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := cycleOf(cycle, answer, nil)
			if err == nil || done.Cycle != 4 || len(done.Outcomes) != 2 {
				t.Fatalf("%+v, %v", done, err)
			}
			for _, o := range done.Outcomes {
				if o.Result != model.Behind || o.Lease != 0 {
					t.Errorf("%+v", o)
				}
			}
		})
	}
	done, err := cycleOf(cycle, &controlv1.CycleAnswer{Outcomes: []*controlv1.CandidateOutcome{granted("b")}}, nil)
	if err != nil || len(done.Outcomes) != 1 || done.Outcomes[0].Result != model.Granted || done.Outcomes[0].Lease != 9 {
		t.Errorf("a good answer is %+v, %v", done, err)
	}
	if done, err := cycleOf(cycle, nil, nil); err != nil || len(done.Outcomes) != 0 {
		t.Errorf("no outcomes are %+v, %v", done, err)
	}
}

// If the answer to a dispatch is invalid, the registry treats no task as accepted.
func TestInvalidAnswerToADispatchAcceptsNothing(t *testing.T) {
	dispatch := model.Dispatch{Tasks: []model.DispatchTask{{UID: "a"}, {UID: "b"}}}
	taken := func(uid string) *controlv1.CreateOutcome {
		return &controlv1.CreateOutcome{Uid: uid, Result: controlv1.CreateOutcome_TAKEN}
	}
	for name, outcomes := range map[string][]*controlv1.CreateOutcome{
		"none": nil, "too few": {taken("a")}, "too many": {taken("a"), taken("b"), taken("c")},
		"unknown uid": {taken("a"), taken("x")}, "twice": {taken("a"), taken("a")}, "nil": {taken("a"), nil},
		"no result": {taken("a"), {Uid: "b"}}, "unknown result": {taken("a"), {Uid: "b", Result: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := dispatchOf(dispatch, &controlv1.CreateTasksAnswer{Outcomes: outcomes}, nil)
			if err == nil || len(done.Outcomes) != 2 || done.Outcomes[0].Accepted || done.Outcomes[1].Accepted {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
	done, err := dispatchOf(dispatch, &controlv1.CreateTasksAnswer{Outcomes: []*controlv1.CreateOutcome{taken("b"),
		taken("a")}}, nil)
	if err != nil || len(done.Outcomes) != 2 || !done.Outcomes[0].Accepted || done.Outcomes[0].UID != "b" {
		t.Errorf("a good answer is %+v, %v", done, err)
	}
}
