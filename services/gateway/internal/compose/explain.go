package compose

import (
	"context"
	"fmt"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// ExplainReservation asks the registry where the reservation stands and, when
// it queues, executor-state what of it would fit now. Without an answer of
// executor-state the explanation has no executorRevision, and its message says
// why. The error is that of the registry, NotFound when there is no such
// reservation.
func (s *Server) ExplainReservation(ctx context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
	e, err := s.queue.Standing(ctx, q)
	if err != nil || e.GetPosition() == 0 {
		return e, err
	}
	e.Needed = max(e.GetNeeded(), e.GetReservation().GetCount())

	part, cancel := brief(ctx)
	defer cancel()
	request := &controlv1.ExplainFitRequest{Constraints: e.GetReservation().GetConstraints(), Needed: e.GetNeeded()}
	for _, avoided := range e.GetReservation().GetAvoided() {
		request.AvoidFailed = append(request.AvoidFailed, avoided.GetExecutor())
	}
	fit, err := s.inventory.ExplainFit(part, request)
	if err != nil {
		unknownFit(e, rpc.FromStatus(err))
		return e, ended(ctx)
	}
	addFit(e, fit)
	return e, nil
}

// addFit completes an explanation. The reason of the registry is as old as its
// last cycle; for the head of a queue executor-state's is newer. Behind a head,
// and before the registry is ready, that is the reason, whatever would fit.
func addFit(e *berthv1.Explanation, fit *controlv1.ExplainFitAnswer) {
	e.Fitting, e.Missing = fit.GetFitting(), max(0, e.GetNeeded()-fit.GetFitting())
	e.Checks, e.ExecutorRevision = fit.GetChecks(), fit.GetRevision()
	e.ScarcestResource = fit.GetScarcestResource()
	switch {
	case e.GetPosition() > 1 || e.GetReason() == string(fault.ReasonRegistryNotReady):
	case e.GetMissing() == 0:
		e.Reason = string(fault.ReasonNotTried)
		e.Message = fmt.Sprintf("all %d would fit now; it is in the next scheduling cycle", e.GetNeeded())
	default:
		e.Reason, e.Message = fit.GetReason(), fit.GetMessage()
	}
}

// unknownFit says what the explanation lacks, and why.
func unknownFit(e *berthv1.Explanation, why *fault.Error) {
	lacks := "what fits now is not known: " + why.Message
	if e.GetMessage() != "" {
		lacks = strings.TrimSuffix(e.GetMessage(), ".") + "; " + lacks
	}
	e.Message = lacks
}
