package compose

import (
	"context"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/wire"
)

// ReadOutput returns a part of the output of a worker from the assigner, which reads it from
// the agent of the worker's executor. The assigner does not know the workers of a reservation
// that has ended, so ReadOutput looks for their executors in the events of the job.
func (s *Server) ReadOutput(ctx context.Context, req *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	if err := wire.CheckReadOutput(req); err != nil {
		return nil, err
	}
	answer, err := s.dispatch.ReadOutput(ctx, req)
	if f := rpc.FromStatus(err); err == nil || f.Kind != fault.NotFound || f.Meta["executor"] != "" ||
		req.GetExecutor() != "" || s.events == nil {
		return answer, err
	}
	found, lookup := s.lastPlace(ctx, req)
	if lookup != nil {
		return nil, lookup
	}
	if found == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound,
			"%s/%s has no worker %d with an assignment, and no stored event names its executor", req.GetJob(), req.GetStage(),
			req.GetIndex())
	}
	return s.dispatch.ReadOutput(ctx, found)
}

// lastPlace returns the request with the executor of the newest worker that matches, or nil
// if no stored event names it.
func (s *Server) lastPlace(ctx context.Context, req *berthv1.ReadOutputRequest) (found *berthv1.ReadOutputRequest,
	err error) {
	err = s.events.Stored(ctx, req.GetJob(), func(e *berthv1.Event) {
		if e.GetStage() != req.GetStage() {
			return
		}
		for _, w := range e.GetWorkers() {
			if w.GetIndex() != req.GetIndex() || w.GetExecutor() == "" ||
				req.GetNumber() != 0 && w.GetNumber() != req.GetNumber() {
				continue
			}
			// An event about an earlier worker may follow the assignment of a later one. Numbers
			// begin again at 1 if a job is deleted and created again.
			if found == nil || w.GetNumber() >= found.GetNumber() || e.GetKind() == berthv1.Event_WORKER_ASSIGNED {
				found = proto.CloneOf(req)
				found.Executor, found.Number = w.GetExecutor(), w.GetNumber()
			}
		}
	})
	return found, err
}
