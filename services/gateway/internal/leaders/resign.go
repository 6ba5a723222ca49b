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

// Resign asks the replica that leads a service to give its term up.
func (s *Server) Resign(ctx context.Context, req *berthv1.ResignRequest) (*berthv1.ResignAnswer, error) {
	switch {
	case !slices.Contains(model.Services, req.GetService()):
		return nil, fault.BadField(fault.ReasonInvalid, "service", "%q is none of %s", req.GetService(), strings.Join(model.Services, ", "))
	case req.GetTerm() < 0:
		return nil, fault.BadField(fault.ReasonInvalid, "term", "is negative")
	}
	at, leader := s.leader(ctx, req.GetService())
	over := &berthv1.ResignAnswer{Service: req.GetService(), Term: req.GetTerm()}
	switch {
	case req.GetTerm() != 0 && leader.GetTerm() > req.GetTerm():
		return over, nil
	case leader == nil:
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s has no leader that answers", req.GetService())
	case req.GetTerm() > leader.GetTerm():
		return nil, fault.BadField(fault.ReasonInvalid, "term", "%d is yet to come: %s is in term %d", req.GetTerm(), req.GetService(), leader.GetTerm())
	}
	over.Term = leader.GetTerm()
	_, err := controlv1.NewReplicasClient(at.conn).Resign(ctx, &controlv1.ResignRequest{Term: leader.GetTerm()})
	switch {
	case err == nil:
		over.Replica = leader.GetId()
	case rpc.FromStatus(err).Reason == fault.ReasonNotLeader:
		// The term ended by itself meanwhile.
	default:
		return nil, err
	}
	return over, nil
}

// leader finds the replica that leads a service; nil when none says so.
func (s *Server) leader(ctx context.Context, service string) (at replica, leader *berthv1.Replica) {
	for i, answer := range s.askAll(ctx) {
		leads := s.replicas[i].service == service && answer.GetRole() == berthv1.Replica_LEADER
		if leads && answer.GetTerm() > leader.GetTerm() {
			at, leader = s.replicas[i], answer
		}
	}
	return at, leader
}
