package wire

import (
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The limits of reading the output of a worker.
const (
	// MaxOutput is the maximum size of the data in an answer, in bytes.
	MaxOutput = 256 << 10
	// MaxTail is the maximum of ReadOutputRequest.tail, and DefaultTail its default.
	MaxTail     = 1 << 20
	DefaultTail = 64 << 10
	// OutputWait is the maximum time that a request with follow waits for output. Calls in
	// progress delay the orderly stop of a process, so it is short.
	OutputWait = 3 * time.Second
)

// CheckReadOutput returns an error that names the first invalid field of a request.
func CheckReadOutput(r *berthv1.ReadOutputRequest) error {
	_, stream := berthv1.ReadOutputRequest_Stream_name[int32(r.GetStream())]
	switch {
	case !model.ValidName(r.GetJob(), 128):
		return fault.BadField(fault.ReasonBadName, "job", "%q is not a name", r.GetJob())
	case !model.ValidName(r.GetStage(), 128):
		return fault.BadField(fault.ReasonBadName, "stage", "%q is not a name", r.GetStage())
	case r.GetIndex() < 0:
		return fault.BadField(fault.ReasonInvalid, "index", "must not be negative, got %d", r.GetIndex())
	case r.GetNumber() < 0:
		return fault.BadField(fault.ReasonInvalid, "number", "must not be negative, got %d", r.GetNumber())
	case r.GetEpoch() < 0:
		return fault.BadField(fault.ReasonInvalid, "epoch", "must not be negative, got %d", r.GetEpoch())
	case r.GetExecutor() != "" && !model.ValidName(r.GetExecutor(), 253):
		return fault.BadField(fault.ReasonBadName, "executor", "%q is not a name", r.GetExecutor())
	case !stream:
		return fault.BadField(fault.ReasonInvalid, "stream", "must be STDOUT or STDERR, got %d", r.GetStream())
	case r.GetTail() < 0 || r.GetTail() > MaxTail:
		return fault.BadField(fault.ReasonInvalid, "tail", "must be between 0 and %d, got %d", MaxTail, r.GetTail())
	case r.GetOffset() < 0:
		return fault.BadField(fault.ReasonInvalid, "offset", "must not be negative, got %d", r.GetOffset())
	case r.Offset != nil && r.Tail != nil:
		return fault.BadField(fault.ReasonInvalid, "offset", "excludes tail: set only one of them")
	}
	return nil
}
