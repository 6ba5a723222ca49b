package internal

import (
	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// The answers of agents are untrusted. Only this file checks them. An invalid answer does
// not show whether the worker was started, so its outcome is Inconclusive, which counts as a
// failed attempt on that executor.

// outcomesOf returns the outcomes of an answer to several start requests. It rejects an
// answer of another length, because its outcomes cannot be matched with the requests.
func outcomesOf(requests int, m *controlv1.SubmitTasksAnswer) ([]*controlv1.SubmitOutcome, error) {
	if got := len(m.GetOutcomes()); got != requests {
		return nil, fault.BadField(fault.ReasonInvalid, "outcomes", "must be %d, got %d", requests, got)
	}
	return m.GetOutcomes(), nil
}

// startOf returns the outcome of one of several start requests.
func startOf(a dispatch.Submit, m *controlv1.SubmitOutcome) any {
	if len(m.GetFailure()) > 0 {
		return refusalOf(rpc.Unpack(m.GetFailure()))
	}
	if m == nil {
		m = &controlv1.SubmitOutcome{}
	}
	return acceptedOf(a, m.GetSequence(), &controlv1.WorkerReport{State: m.GetState(), ExitCode: m.ExitCode,
		Signal: m.GetSignal(), Error: m.GetError(), Reason: m.GetReason(), NeverStarted: m.GetNeverStarted(),
		BadTask: m.GetBadTask()})
}

// acceptedOf returns the outcome of a start request that the agent has not refused: an
// Accepted, or an Inconclusive if the answer is invalid.
func acceptedOf(a dispatch.Submit, sequence int64, w *controlv1.WorkerReport) any {
	status, err := statusOf(sequence, w)
	if err != nil {
		return invalid(err)
	}
	return dispatch.Accepted{Status: status, Incarnation: a.Incarnation, Sequence: sequence}
}

// stopOf returns the outcome of a stop request that the agent has not refused: an Ended or
// a Stopping, or an Inconclusive if the answer is invalid.
func stopOf(m *controlv1.StopTaskAnswer) any {
	status, err := statusOf(m.GetSequence(), m.GetWorker())
	switch {
	case err != nil:
		return invalid(err)
	case status.State.Terminal():
		return dispatch.Ended(status)
	case status.State == model.WorkerEvicting:
		return dispatch.Stopping{}
	}
	return invalid(fault.BadField(fault.ReasonInvalid, "worker.state", "%s does not answer a stop request", status.State))
}

// statusOf checks and returns the status of the worker in an answer.
func statusOf(sequence int64, w *controlv1.WorkerReport) (dispatch.Status, error) {
	if w == nil {
		return dispatch.Status{}, fault.BadField(fault.ReasonRequired, "worker", "is required")
	}
	state, err := wire.AgentState("worker.state", w.GetState())
	if err != nil {
		return dispatch.Status{}, err
	}
	status := dispatch.Status{State: state, ExitCode: w.ExitCode, Signal: w.GetSignal(), Error: w.GetError(),
		Reason: wire.EndReason(state, w.GetReason()), NeverStarted: w.GetNeverStarted(), BadTask: w.GetBadTask()}
	return status, wire.CheckOutcome(sequence, state, status.ExitCode, status.Signal, status.Error)
}

func invalid(err error) any {
	return dispatch.Inconclusive{Message: "the agent's answer is invalid: " + fault.Of(err).Message}
}

// failureOf returns the outcome of a call that failed. An error of gRPC or of another program at
// the address is not an answer of the agent.
func failureOf(err error) any {
	outcome := refusalOf(rpc.FromStatus(err))
	if i, inconclusive := outcome.(dispatch.Inconclusive); inconclusive && !rpc.IsFault(err) {
		return dispatch.Unknown(i)
	}
	return outcome
}

// refusalOf returns the outcome of an answer that is an error. Only an error by which the agent
// refuses the request is a refusal. Errors of a failing agent do not show whether the worker was
// started.
func refusalOf(f *fault.Error) any {
	switch f.Kind {
	case fault.Denied:
		return dispatch.Refused{Reason: fault.ReasonPermissionDenied, Message: f.Message}
	case fault.Invalid, fault.Precondition, fault.Conflict:
		if f.Reason != fault.ReasonUnsupported {
			return dispatch.Refused{Reason: reasonOf(f.Reason), Message: f.Message, BadTask: blamesTask(f)}
		}
	}
	return dispatch.Inconclusive{Message: f.Message}
}

// blamesTask reports whether an agent refuses a start because of the task. Agents of all versions
// refuse with these reasons what their lists do not allow and what they cannot run. Other
// failures of a task are known only from agents that say so.
func blamesTask(f *fault.Error) bool {
	switch f.Reason {
	case fault.ReasonNotAllowed, fault.ReasonRequired, fault.ReasonBadName:
		return true
	}
	return f.Meta[fault.MetaBadTask] != ""
}

// maxReason is the maximum length of a reason that an agent chooses.
const maxReason = 64

// reasonOf returns the reason of an agent's refusal, or INVALID if the reason is malformed.
// The reason becomes a metric label and part of records.
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
