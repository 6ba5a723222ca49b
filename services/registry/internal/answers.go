package internal

import (
	"fmt"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// This file checks the answers of other services before the core sees any of them. An
// invalid answer counts as a definite error: it grants and accepts nothing. If the other
// service granted or accepted something all the same, its records show it.

var errPanicked = fault.New(fault.Internal, fault.ReasonInternal, "the handling of the answer panicked")

// maxAnswerText bounds a reason or a message of an answer, in bytes.
const maxAnswerText = 4 << 10

// refusedCycle returns the outcome of a cycle that ended with a definite error: it grants
// nothing, and every candidate waits for the next cycle.
func refusedCycle(cycle model.Cycle, err error) scheduler.CycleDone {
	done := scheduler.CycleDone{Cycle: cycle.Number}
	for _, e := range cycle.Candidates {
		done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.Behind, Reason: fault.Of(err).Reason,
			Message: err.Error()})
	}
	return done
}

// cycleOf returns the outcome of a cycle. With an error, or if the answer is invalid, it
// returns the outcome of a refused cycle and the error.
func cycleOf(cycle model.Cycle, answer *controlv1.CycleAnswer, err error) (scheduler.CycleDone, error) {
	done := scheduler.CycleDone{Cycle: cycle.Number}
	if err == nil {
		done.Outcomes, err = outcomesOf(cycle, answer)
	}
	if err != nil {
		return refusedCycle(cycle, err), err
	}
	return done, nil
}

func outcomesOf(cycle model.Cycle, answer *controlv1.CycleAnswer) ([]model.Outcome, error) {
	if got, most := len(answer.GetOutcomes()), len(cycle.Candidates); got > most {
		return nil, badAnswer("outcomes", "must be at most %d, got %d", most, got)
	}
	sent := make(map[string]bool, len(cycle.Candidates))
	for _, e := range cycle.Candidates {
		sent[e.UID] = true
	}
	var outcomes []model.Outcome
	for i, o := range answer.GetOutcomes() {
		field := fmt.Sprintf("outcomes[%d]", i)
		_, known := controlv1.CandidateOutcome_Result_name[int32(o.GetResult())]
		switch {
		case !sent[o.GetUid()]:
			return nil, badAnswer(field+".uid", "must be sent and answered once, got %.64q", o.GetUid())
		case !known || o.GetResult() == controlv1.CandidateOutcome_RESULT_UNSPECIFIED:
			return nil, badAnswer(field+".result", "must be a known result, got %d", int32(o.GetResult()))
		case o.GetResult() == controlv1.CandidateOutcome_GRANTED && o.GetLease() <= 0:
			return nil, badAnswer(field+".lease", "must be positive for a granted candidate, got %d", o.GetLease())
		case o.GetFitting() < 0:
			return nil, badAnswer(field+".fitting", "must not be negative, got %d", o.GetFitting())
		case len(o.GetReason())+len(o.GetMessage()) > maxAnswerText:
			return nil, badAnswer(field+".message", "must have at most %d bytes with its reason", maxAnswerText)
		}
		delete(sent, o.GetUid())
		outcomes = append(outcomes, model.Outcome{
			UID: o.GetUid(), Lease: o.GetLease(),
			Result: model.Result(o.GetResult()), //nolint:gosec // others are rejected above
			Reason: fault.Reason(o.GetReason()), Message: o.GetMessage(), Fitting: int(o.GetFitting()),
		})
	}
	return outcomes, nil
}

// refusedDispatch returns the outcome of a dispatch that ended with a definite error: the
// assigner accepted no task.
func refusedDispatch(dispatch model.Dispatch, err error) queue.DispatchDone {
	var done queue.DispatchDone
	for _, task := range dispatch.Tasks {
		done.Outcomes = append(done.Outcomes, model.DispatchOutcome{UID: task.UID, Reason: fault.Of(err).Reason})
	}
	return done
}

// dispatchOf returns the outcome of a dispatch. With an error, or if the answer is
// invalid, it returns the outcome of a refused dispatch and the error.
func dispatchOf(dispatch model.Dispatch, answer *controlv1.CreateTasksAnswer, err error) (done queue.DispatchDone,
	_ error) {
	if err == nil {
		done.Outcomes, err = tasksOf(dispatch, answer)
	}
	if err != nil {
		return refusedDispatch(dispatch, err), err
	}
	return done, nil
}

func tasksOf(dispatch model.Dispatch, answer *controlv1.CreateTasksAnswer) ([]model.DispatchOutcome, error) {
	if got, want := len(answer.GetOutcomes()), len(dispatch.Tasks); got != want {
		return nil, badAnswer("outcomes", "must be %d, got %d", want, got)
	}
	sent := make(map[string]bool, len(dispatch.Tasks))
	for _, task := range dispatch.Tasks {
		sent[task.UID] = true
	}
	var outcomes []model.DispatchOutcome
	for i, o := range answer.GetOutcomes() {
		field := fmt.Sprintf("outcomes[%d]", i)
		switch {
		case !sent[o.GetUid()]:
			return nil, badAnswer(field+".uid", "must be sent and answered once, got %.64q", o.GetUid())
		case o.GetResult() != controlv1.CreateOutcome_TAKEN && o.GetResult() != controlv1.CreateOutcome_REFUSED:
			return nil, badAnswer(field+".result", "must be a known result, got %d", int32(o.GetResult()))
		case len(o.GetReason()) > maxAnswerText:
			return nil, badAnswer(field+".reason", "must have at most %d bytes", maxAnswerText)
		}
		delete(sent, o.GetUid())
		outcomes = append(outcomes, model.DispatchOutcome{
			UID: o.GetUid(), Accepted: o.GetResult() == controlv1.CreateOutcome_TAKEN, Reason: fault.Reason(o.GetReason()),
		})
	}
	return outcomes, nil
}

// badAnswer returns the error for an answer that a defect or another version of Berth has
// sent. It is an internal error, and not an error of the caller.
func badAnswer(field, format string, args ...any) error {
	f := fault.BadField(fault.ReasonInternal, field, format, args...)
	f.Kind = fault.Internal
	return f
}
