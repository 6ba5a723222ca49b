package compose

import (
	"context"
	"slices"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
)

// ListTenants implements berth.v1.Tenants. The registry lists the tenants. The server adds
// the number of event streams that each tenant has at this gateway. A job service gets only
// the tenants of its jobs.
func (s *Server) ListTenants(ctx context.Context, req *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	answer, err := s.tenants.ListTenants(ctx, req)
	if err != nil || s.streams == nil {
		return answer, err
	}
	if id := access.CallerIn(ctx).Identity; id != nil && id.Role == identity.Job {
		answer.Tenants = slices.DeleteFunc(answer.GetTenants(), func(t *berthv1.Tenant) bool {
			return !model.Covers(t.GetPrefix(), id.Name) && !id.CoversJob(t.GetPrefix())
		})
	}
	streams := s.streams()
	for _, t := range answer.GetTenants() {
		if t.Use == nil {
			t.Use = &berthv1.TenantUse{}
		}
		t.Use.EventStreams = int32(streams[t.GetName()])
	}
	return answer, nil
}
