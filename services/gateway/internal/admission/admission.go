// Package admission answers who a caller is and what it may call, and lists the audited calls of
// this gateway.
package admission

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/access"
	"berth.dev/pkg/replica"
)

// Server answers berth.v1.Callers and berth.v1.AuditLog on the public listener.
type Server struct {
	berthv1.UnimplementedCallersServer
	berthv1.UnimplementedAuditLogServer

	// Cluster is the name of the cluster, and Gateway the ID of this gateway.
	Cluster, Gateway string
	// Version is the version of the program.
	Version string
	// Audit must keep entries in memory.
	Audit *access.Audit
}

// GetCaller implements berth.v1.Callers.
func (s *Server) GetCaller(ctx context.Context, _ *berthv1.GetCallerRequest) (*berthv1.Caller, error) {
	c := access.CallerIn(ctx)
	answer := &berthv1.Caller{Trusted: c.Trusted, Methods: c.Methods(access.Public), Cluster: s.Cluster,
		Gateway: s.Gateway, Version: s.Version, Session: c.Session}
	if id := c.Identity; id != nil {
		answer.Identity, answer.Role, answer.Name = id.String(), id.Role.String(), id.Name
	}
	return answer, nil
}

// ListAuditEntries implements berth.v1.AuditLog.
func (s *Server) ListAuditEntries(_ context.Context,
	req *berthv1.ListAuditEntriesRequest) (*berthv1.ListAuditEntriesAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	page, err := s.Audit.Page(req.GetPageToken(), size)
	if err != nil {
		return nil, err
	}
	answer := &berthv1.ListAuditEntriesAnswer{NextPageToken: page.Next, Gateway: s.Gateway,
		Since: timestamppb.New(page.Since)}
	for _, e := range page.Entries {
		answer.Entries = append(answer.Entries, &berthv1.AuditEntry{
			Time: timestamppb.New(e.Time), Caller: e.Caller, Peer: e.Peer, Listener: e.Listener, Method: e.Method,
			Object: e.Object, RequestId: e.RequestID, Outcome: e.Outcome, Reason: e.Reason, Message: e.Message,
			Revision: e.Revision, Skipped: e.Skipped,
		})
	}
	return answer, nil
}
