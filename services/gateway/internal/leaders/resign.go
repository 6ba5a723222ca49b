package leaders

import (
	"context"
	"slices"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
)

// Resign makes the leader of a service give up its term. If the request names a term that
// has already ended, Resign succeeds and changes nothing.
func (s *Server) Resign(ctx context.Context, req *berthv1.ResignRequest) (*berthv1.ResignAnswer, error) {
	switch {
	case !slices.Contains(model.Services, req.GetService()):
		return nil, fault.BadField(fault.ReasonInvalid, "service", "must be one of %s, got %q",
			strings.Join(model.Services, ", "), req.GetService())
	case req.GetTerm() < 0:
		return nil, fault.BadField(fault.ReasonInvalid, "term", "must not be negative, got %d", req.GetTerm())
	}
	at, leader, reach := s.leader(ctx, req.GetService())
	answer := &berthv1.ResignAnswer{Service: req.GetService(), Term: req.GetTerm()}
	switch {
	case req.GetTerm() != 0 && leader.GetTerm() > req.GetTerm():
		return answer, nil
	case leader == nil:
		return nil, reach.Fault(req.GetService())
	case req.GetTerm() > leader.GetTerm():
		return nil, fault.BadField(fault.ReasonInvalid, "term", "must be at most %d, the current term of %s, got %d",
			leader.GetTerm(), req.GetService(), req.GetTerm())
	}
	answer.Term = leader.GetTerm()
	_, err := controlv1.NewReplicasClient(at.conn).Resign(ctx, &controlv1.ResignRequest{Term: leader.GetTerm()})
	switch {
	case err == nil:
		answer.Replica = leader.GetId()
	case rpc.FromStatus(err).Reason == fault.ReasonNotLeader:
		// The term has ended in the meantime.
	default:
		return nil, err
	}
	return answer, nil
}

// leader returns the replica that leads a service, and which replicas answer. leader is nil if no
// replica leads the service.
func (s *Server) leader(ctx context.Context, service string) (at replica, leader *berthv1.Replica, reach rpc.Reach) {
	answers := s.askAll(ctx)
	for i, r := range answers {
		leads := s.replicas[i].service == service && r.GetRole() == berthv1.Replica_LEADER
		if leads && r.GetTerm() > leader.GetTerm() {
			at, leader = s.replicas[i], r
		}
	}
	return at, leader, s.reach(service, answers)
}
