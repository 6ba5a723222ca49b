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

// ExplainReservation returns the reservation's position in the queue, from the registry, and if
// it is queued, which of its workers would fit now, from executor-state. If executor-state
// does not answer, the explanation has no executorRevision, and its message contains the
// reason. The error is the registry's: NotFound if the reservation does not exist.
func (s *Server) ExplainReservation(ctx context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation,
	error) {
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

// addFit adds the answer of executor-state. The registry's reason is as old as its last
// scheduling cycle. For the head of a queue, the reason of executor-state is newer. For other
// reservations, and while the registry is not ready, the registry's reason applies.
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

// unknownFit adds the reason why executor-state did not answer.
func unknownFit(e *berthv1.Explanation, why *fault.Error) {
	message := "the number of workers that fit now is not known: " + why.Message
	if e.GetMessage() != "" {
		message = strings.TrimSuffix(e.GetMessage(), ".") + "; " + message
	}
	e.Message = message
}
