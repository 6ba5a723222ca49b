package wire

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The limits of an agent's reports. Each limit is far above what an agent of this version
// sends.
const (
	// MaxReportedWorkers is the maximum number of workers in one report.
	MaxReportedWorkers = 100_000
	// maxReportedError is the maximum length of one worker's error, in bytes.
	maxReportedError = 64 << 10
	// MaxStartRequests is the maximum number of workers that one request to an agent starts.
	MaxStartRequests = 256
	// maxSequence is the highest sequence of an agent. No agent that counts from 1 reaches
	// it.
	maxSequence = 1 << 53

	maxExecutorID = 253
	maxWorkerName = 128
	maxWorkerUID  = 128
	maxWorkerHost = 255
)

// WorkerState converts a worker state from a peer. A number that is not a state becomes
// WorkerUnset.
func WorkerState(s berthv1.Assignment_State) model.WorkerState {
	if _, known := berthv1.Assignment_State_name[int32(s)]; !known {
		return model.WorkerUnset
	}
	return enum[model.WorkerState](s)
}

// ListedState converts the state to which a request restricts a list; 0 means no
// restriction. It refuses a number that is not a state, because the number could become
// another state when it is converted to 8 bits.
func ListedState[M ~uint8](state protoreflect.Enum) (M, error) {
	number := state.Number()
	if state.Descriptor().Values().ByNumber(number) == nil {
		return 0, fault.BadField(fault.ReasonInvalid, "state", "must be a known state, got %d", number)
	}
	return enum[M](number), nil
}

// AgentState converts the state of a worker that an agent sent. It refuses states that
// an agent cannot report.
func AgentState(field string, s berthv1.Assignment_State) (model.WorkerState, error) {
	state := WorkerState(s)
	if !state.Reportable() {
		return state, fault.BadField(fault.ReasonInvalid, field, "%d is not a state that an agent reports", int32(s))
	}
	return state, nil
}

// EndReason returns the reason that an agent sent for a worker. It drops every reason except
// START_TIMEOUT and CELL_WORKER_LOST of a FAILED worker, because Berth derives all other reasons itself, and a
// newer agent may have more reasons.
func EndReason(state model.WorkerState, reason string) fault.Reason {
	r := fault.Reason(reason)
	if state == model.WorkerFailed && (r == fault.ReasonStartTimeout || r == fault.ReasonCellWorkerLost) {
		return r
	}
	return ""
}

// maxSignal is higher than the number of any signal.
const maxSignal = 128

// CheckOutcome checks what an agent sent about one worker, except the worker's name: the
// sequence of the answer, the exit code, the signal and the error.
func CheckOutcome(sequence int64, state model.WorkerState, exitCode *int32, signal int32, problem string) error {
	switch {
	case signal < 0 || signal > maxSignal || signal > 0 && !state.Terminal():
		return fault.BadField(fault.ReasonInvalid, "signal",
			"must be between 0 and %d, and 0 while the worker runs, got %d for %s", maxSignal, signal, state)
	case sequence < 0 || sequence > maxSequence:
		return fault.BadField(fault.ReasonInvalid, "sequence", "must be between 0 and %d, got %d", int64(maxSequence),
			sequence)
	case exitCode != nil && !state.Terminal():
		return fault.BadField(fault.ReasonInvalid, "exit_code", "must be absent while the worker is %s", state)
	case len(problem) > maxReportedError:
		return fault.BadField(fault.ReasonTooLarge, "error", "must have at most %d bytes, has %d", maxReportedError,
			len(problem))
	}
	return nil
}

// CheckExecutor checks the executor ID and the incarnation that an agent sent.
func CheckExecutor(field, id, incarnationField string, incarnation int64) error {
	switch {
	case !model.ValidName(id, maxExecutorID):
		return fault.BadField(fault.ReasonBadName, field, "%.64q is not an executor ID", id)
	case incarnation <= 0:
		return fault.BadField(fault.ReasonInvalid, incarnationField, "must be positive, got %d", incarnation)
	}
	return nil
}

// CheckVolumeList checks the list of volumes that an agent sent.
func CheckVolumeList(m *controlv1.VolumeList) error {
	if sequence := m.GetSequence(); sequence < 1 || sequence > maxSequence {
		return fault.BadField(fault.ReasonInvalid, "volumes.sequence", "must be between 1 and %d, got %d",
			int64(maxSequence), sequence)
	}
	for _, list := range []struct {
		field string
		ids   []string
	}{{"volumes.ids", m.GetIds()}, {"volumes.gone", m.GetGone()}} {
		if len(list.ids) > model.MaxListedVolumes {
			return fault.BadField(fault.ReasonTooLarge, list.field, "must be at most %d, got %d", model.MaxListedVolumes,
				len(list.ids))
		}
		for _, id := range list.ids {
			if !model.ValidName(id, model.MaxVolumeID) {
				return fault.BadField(fault.ReasonBadName, list.field, "%.64q is not the ID of a volume", id)
			}
		}
	}
	return nil
}

// CheckReportAnswer checks the assigner's answer to a report with this number of
// workers.
func CheckReportAnswer(a *controlv1.ExecutorReportAnswer, workers int) error {
	switch {
	case a.GetOrphans() < 0:
		return fault.BadField(fault.ReasonInvalid, "orphans", "must not be negative, got %d", a.GetOrphans())
	case a.GetTerm() < 0:
		return fault.BadField(fault.ReasonInvalid, "term", "must not be negative, got %d", a.GetTerm())
	case len(a.GetEnded()) > workers:
		return fault.BadField(fault.ReasonInvalid, "ended", "must be at most %d, got %d", workers, len(a.GetEnded()))
	}
	return nil
}

// CheckReport checks a report of an agent. Callers must check a report before they use
// any part of it. CheckReport accepts a worker in an unknown state, because a newer agent
// may have more states.
func CheckReport(r *controlv1.ExecutorReport) error {
	if r == nil {
		return fault.BadField(fault.ReasonRequired, "report", "is required")
	}
	if err := CheckExecutor("report.executor", r.GetExecutor(), "report.incarnation", r.GetIncarnation()); err != nil {
		return err
	}
	switch {
	case r.GetSequence() < 0 || r.GetSequence() > maxSequence:
		return fault.BadField(fault.ReasonInvalid, "report.sequence", "must be between 0 and %d, got %d", int64(maxSequence),
			r.GetSequence())
	case len(r.GetWorkers()) > MaxReportedWorkers:
		return fault.BadField(fault.ReasonTooLarge, "report.workers", "must be at most %d, got %d", MaxReportedWorkers,
			len(r.GetWorkers()))
	}
	for i, w := range r.GetWorkers() {
		if field, problem := checkWorker(w); problem != "" {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("report.workers[%d]%s", i, field), "%s", problem)
		}
	}
	return nil
}

// checkWorker returns the first invalid field of a worker and the problem of this field.
func checkWorker(w *controlv1.WorkerReport) (field, problem string) {
	state := WorkerState(w.GetState())
	switch {
	case w == nil:
		return "", "is required"
	case !model.ValidName(w.GetJob(), maxWorkerName):
		return ".job", fmt.Sprintf("%.64q is not a name", w.GetJob())
	case !model.ValidName(w.GetStage(), maxWorkerName):
		return ".stage", fmt.Sprintf("%.64q is not a name", w.GetStage())
	case w.GetIndex() < 0:
		return ".index", fmt.Sprintf("must not be negative, got %d", w.GetIndex())
	case w.GetNumber() < 0:
		return ".number", fmt.Sprintf("must not be negative, got %d", w.GetNumber())
	case w.GetEpoch() <= 0:
		return ".epoch", fmt.Sprintf("must be positive, got %d", w.GetEpoch())
	case len(w.GetUid()) > maxWorkerUID:
		return ".uid", fmt.Sprintf("must have at most %d bytes, has %d", maxWorkerUID, len(w.GetUid()))
	case w.GetSignal() < 0 || w.GetSignal() > maxSignal:
		return ".signal", fmt.Sprintf("must be between 0 and %d, got %d", maxSignal, w.GetSignal())
	case len(w.GetError()) > maxReportedError:
		return ".error", fmt.Sprintf("must have at most %d bytes, has %d", maxReportedError, len(w.GetError()))
	case len(w.GetHost()) > maxWorkerHost:
		return ".host", fmt.Sprintf("must have at most %d bytes, has %d", maxWorkerHost, len(w.GetHost()))
	case w.ExitCode != nil && !state.Terminal() && state != model.WorkerUnset:
		return ".exit_code", fmt.Sprintf("must be absent while the worker is %s", state)
	}
	return "", ""
}
