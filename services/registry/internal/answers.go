package internal

import (
	"fmt"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// What other services answer is checked here before the core sees any of it. An
// answer that is invalid counts as a definite error: it grants and takes nothing. What
// was granted or taken all the same shows in the records.

var errPanicked = fault.New(fault.Internal, fault.ReasonInternal, "the handling of the answer panicked")

// maxAnswerText bounds a reason or a message of an answer, in bytes.
const maxAnswerText = 4 << 10

// refusedCycle is what a definite error leaves of a cycle: it grants nothing, and every
// candidate waits for the next cycle. A nil error leaves no outcomes.
func refusedCycle(cycle model.Cycle, err error) scheduler.CycleDone {
	done := scheduler.CycleDone{Cycle: cycle.Number}
	if err == nil {
		return done
	}
	for _, e := range cycle.Candidates {
		done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.Behind, Reason: fault.Of(err).Reason, Message: err.Error()})
	}
	return done
}

// cycleOf reads the answer to a cycle. With an error it is as that of a refused cycle.
func cycleOf(cycle model.Cycle, answer *controlv1.CycleAnswer) (scheduler.CycleDone, error) {
	if err := checkCycle(cycle, answer); err != nil {
		return refusedCycle(cycle, err), err
	}
	done := scheduler.CycleDone{Cycle: cycle.Number}
	for _, o := range answer.GetOutcomes() {
		done.Outcomes = append(done.Outcomes, model.Outcome{
			UID: o.GetUid(), Lease: o.GetLease(),
			Result: model.Result(o.GetResult()), //nolint:gosec // checkPass has refused others
			Reason: fault.Reason(o.GetReason()), Message: o.GetMessage(), Fitting: int(o.GetFitting()),
		})
	}
	return done, nil
}

func checkCycle(cycle model.Cycle, answer *controlv1.CycleAnswer) error {
	if got, most := len(answer.GetOutcomes()), len(cycle.Candidates); got > most {
		return badAnswer("outcomes", "must be at most %d, got %d", most, got)
	}
	sent := make(map[string]bool, len(cycle.Candidates))
	for _, e := range cycle.Candidates {
		sent[e.UID] = true
	}
	for i, o := range answer.GetOutcomes() {
		field := fmt.Sprintf("outcomes[%d]", i)
		_, known := controlv1.CandidateOutcome_Result_name[int32(o.GetResult())]
		switch {
		case !sent[o.GetUid()]:
			return badAnswer(field+".uid", "%.64q was not sent, or is answered twice", o.GetUid())
		case !known || o.GetResult() == controlv1.CandidateOutcome_RESULT_UNSPECIFIED:
			return badAnswer(field+".result", "%d is not a result", int32(o.GetResult()))
		case o.GetResult() == controlv1.CandidateOutcome_GRANTED && o.GetLease() <= 0:
			return badAnswer(field+".lease", "must be positive where it is granted, got %d", o.GetLease())
		case o.GetFitting() < 0:
			return badAnswer(field+".fitting", "must not be negative, got %d", o.GetFitting())
		case len(o.GetReason())+len(o.GetMessage()) > maxAnswerText:
			return badAnswer(field+".message", "must have at most %d bytes with its reason", maxAnswerText)
		}
		delete(sent, o.GetUid())
	}
	return nil
}

// refusedDispatch is what a definite error leaves of a dispatch: no task is taken. A nil
// error leaves no outcomes.
func refusedDispatch(dispatch model.Dispatch, err error) queue.DispatchDone {
	var done queue.DispatchDone
	if err == nil {
		return done
	}
	for _, task := range dispatch.Tasks {
		done.Outcomes = append(done.Outcomes, model.DispatchOutcome{UID: task.UID, Reason: fault.Of(err).Reason})
	}
	return done
}

// dispatchOf reads the answer to a dispatch. With an error it is as that of a refused
// one.
func dispatchOf(dispatch model.Dispatch, answer *controlv1.CreateTasksAnswer) (queue.DispatchDone, error) {
	if err := checkDispatch(dispatch, answer); err != nil {
		return refusedDispatch(dispatch, err), err
	}
	var done queue.DispatchDone
	for _, o := range answer.GetOutcomes() {
		done.Outcomes = append(done.Outcomes, model.DispatchOutcome{
			UID: o.GetUid(), Taken: o.GetResult() == controlv1.CreateOutcome_TAKEN, Reason: fault.Reason(o.GetReason()),
		})
	}
	return done, nil
}

func checkDispatch(dispatch model.Dispatch, answer *controlv1.CreateTasksAnswer) error {
	if got, asked := len(answer.GetOutcomes()), len(dispatch.Tasks); got != asked {
		return badAnswer("outcomes", "must be %d, got %d", asked, got)
	}
	asked := make(map[string]bool, len(dispatch.Tasks))
	for _, task := range dispatch.Tasks {
		asked[task.UID] = true
	}
	for i, o := range answer.GetOutcomes() {
		field := fmt.Sprintf("outcomes[%d]", i)
		switch {
		case !asked[o.GetUid()]:
			return badAnswer(field+".uid", "%.64q was not asked for, or is answered twice", o.GetUid())
		case o.GetResult() != controlv1.CreateOutcome_TAKEN && o.GetResult() != controlv1.CreateOutcome_REFUSED:
			return badAnswer(field+".result", "%d is not a result", int32(o.GetResult()))
		case len(o.GetReason()) > maxAnswerText:
			return badAnswer(field+".reason", "must have at most %d bytes", maxAnswerText)
		}
		delete(asked, o.GetUid())
	}
	return nil
}

// badAnswer is an answer that a service of another version, or a defect, has sent. It
// is an internal error, and not one of whoever asked.
func badAnswer(field, format string, args ...any) error {
	f := fault.BadField(fault.ReasonInternal, field, format, args...)
	f.Kind = fault.Internal
	return f
}
