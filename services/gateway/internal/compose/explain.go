package compose

import (
	"context"
	"fmt"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
)

// ExplainReservation returns the reservation's position in the queue from the registry. If
// the reservation is queued, it also returns from executor-state how many of its workers
// would fit now. If executor-state does not answer, the explanation has no
// executorRevision, and its message contains the reason. If the registry returns an error,
// such as NotFound for an unknown reservation, ExplainReservation returns this error. A job
// service does not learn which reservation is the head of the queue unless it is its own.
func (s *Server) ExplainReservation(ctx context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation,
	error) {
	e, err := s.queue.Standing(ctx, q)
	if err != nil || e.GetPosition() == 0 {
		return e, err
	}
	if id := access.CallerIn(ctx).Identity; id != nil && !id.CoversJob(e.GetHead().GetJob()) {
		e.Head, e.HeadAge = nil, nil
	}
	e.Needed = max(e.GetNeeded(), e.GetReservation().GetCount())

	part, cancel := brief(ctx)
	defer cancel()
	request := &controlv1.ExplainFitRequest{Constraints: e.GetReservation().GetConstraints(), Needed: e.GetNeeded(),
		Uid: e.GetReservation().GetUid()}
	for _, avoided := range e.GetReservation().GetAvoided() {
		request.AvoidFailed = append(request.AvoidFailed, avoided.GetExecutor())
		if avoided.GetRefused() {
			request.RefusedBy = append(request.RefusedBy, avoided.GetExecutor())
		}
	}
	fit, err := s.inventory.ExplainFit(part, request)
	if err != nil {
		unknownFit(e, rpc.FromStatus(err))
		return e, ended(ctx)
	}
	addFit(e, fit)
	return e, nil
}

// addFit adds the answer of executor-state. The reason of the registry is as old as its last
// scheduling cycle, so for the head of a queue addFit uses the newer reason of
// executor-state. For other reservations, and while the registry is not ready, it keeps the
// reason of the registry. If the workers were queued again after a failure and only wait for
// capacity, the failure is the reason; the message also says why they wait.
func addFit(e *berthv1.Explanation, fit *controlv1.ExplainFitAnswer) {
	e.Fitting, e.Missing = fit.GetFitting(), max(0, e.GetNeeded()-fit.GetFitting())
	e.Checks, e.ExecutorRevision = fit.GetChecks(), fit.GetRevision()
	e.ScarcestResource = fit.GetScarcestResource()
	if e.GetPosition() > 1 || e.GetReason() == string(fault.ReasonRegistryNotReady) {
		return
	}
	reason, message := fit.GetReason(), fit.GetMessage()
	if e.GetMissing() == 0 {
		reason = string(fault.ReasonNotTried)
		message = fmt.Sprintf("all %d workers would fit now; the next scheduling cycle tries them", e.GetNeeded())
	}
	switch fault.Reason(reason) {
	case fault.ReasonNotTried, fault.ReasonInsufficientCapacity:
		if e.GetFailure() != "" {
			reason, message = e.GetFailure(), reason+": "+message
		}
	}
	if e.GetRequeued() != "" {
		message = e.GetRequeued() + "; " + message
	}
	e.Reason, e.Message = reason, message
}

// unknownFit adds the reason why executor-state did not answer.
func unknownFit(e *berthv1.Explanation, why *fault.Error) {
	message := "the number of workers that fit now is not known: " + why.Message
	if e.GetMessage() != "" {
		message = strings.TrimSuffix(e.GetMessage(), ".") + "; " + message
	}
	e.Message = message
}
