package internal

import (
	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// What agents answer is untrusted: it is checked here, and nowhere else. An answer
// that is invalid says nothing of whether the worker was started, so that it is an
// Unknown outcome: a failed attempt of that executor.

// answersOf gives the outcomes that an agent answered to several start requests. It
// refuses an answer of another length, which does not say what belongs to what.
func answersOf(asked int, m *controlv1.SubmitTasksAnswer) ([]*controlv1.SubmitOutcome, error) {
	if got := len(m.GetOutcomes()); got != asked {
		return nil, fault.BadField(fault.ReasonInvalid, "outcomes", "must be %d, got %d", asked, got)
	}
	return m.GetOutcomes(), nil
}

// startOf gives the outcome of one of several start requests.
func startOf(a dispatch.Submit, m *controlv1.SubmitOutcome) any {
	if len(m.GetFailure()) > 0 {
		return refusalOf(rpc.Unpack(m.GetFailure()))
	}
	if m == nil {
		m = &controlv1.SubmitOutcome{}
	}
	return acceptedOf(a, m.GetSequence(), &controlv1.WorkerReport{State: m.GetState(), ExitCode: m.ExitCode, Signal: m.GetSignal(), Error: m.GetError()})
}

// acceptedOf gives the outcome of a start request that the agent did not refuse.
func acceptedOf(a dispatch.Submit, sequence int64, w *controlv1.WorkerReport) any {
	state, err := workerOf(sequence, w)
	if err != nil {
		return invalid(err)
	}
	return dispatch.Accepted{
		State: state, Incarnation: a.Incarnation, Sequence: sequence, ExitCode: w.ExitCode, Signal: w.GetSignal(), Error: w.GetError(),
	}
}

// stopOf gives the result of a stop request that the agent did not refuse.
func stopOf(m *controlv1.StopTaskAnswer) any {
	w := m.GetWorker()
	state, err := workerOf(m.GetSequence(), w)
	switch {
	case err != nil:
		return invalid(err)
	case state.Terminal():
		return dispatch.Ended{State: state, ExitCode: w.ExitCode, Signal: w.GetSignal(), Error: w.GetError()}
	case state == model.WorkerEvicting:
		return dispatch.Stopping{}
	}
	return invalid(fault.BadField(fault.ReasonInvalid, "worker.state", "%s does not answer a stop request", state))
}

// workerOf checks what an answer says of its worker.
func workerOf(sequence int64, w *controlv1.WorkerReport) (model.WorkerState, error) {
	if w == nil {
		return model.WorkerUnset, fault.BadField(fault.ReasonRequired, "worker", "is required")
	}
	state, err := wire.AgentState("worker.state", w.GetState())
	if err != nil {
		return model.WorkerUnset, err
	}
	return state, wire.CheckOutcome(sequence, state, w.ExitCode, w.GetSignal(), w.GetError())
}

func invalid(err error) any {
	return dispatch.Unknown{Message: "the agent's answer is invalid: " + fault.Of(err).Message}
}

// refusalOf gives the outcome of a request that failed. Only the agent itself can
// refuse. What gRPC says in its place, an agent that is failing, or another program
// at its address that does not know the call, leaves open whether the worker was
// started.
func refusalOf(f *fault.Error) any {
	switch f.Kind {
	case fault.Denied:
		return dispatch.Refused{Reason: fault.ReasonPermissionDenied, Message: f.Message}
	case fault.Invalid, fault.Precondition, fault.Conflict:
		if f.Reason != fault.ReasonUnsupported {
			return dispatch.Refused{Reason: reasonOf(f.Reason), Message: f.Message}
		}
	}
	return dispatch.Unknown{Message: f.Message}
}

// maxReason bounds a reason that an agent makes up.
const maxReason = 64

// reasonOf bounds the reason of an agent's refusal: it becomes a label of metrics and
// a part of records.
func reasonOf(reason fault.Reason) fault.Reason {
	if reason == "" || len(reason) > maxReason {
		return fault.ReasonInvalid
	}
	for _, c := range []byte(reason) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return fault.ReasonInvalid
		}
	}
	return reason
}
