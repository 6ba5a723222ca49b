package compose

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
)

// ListTenants implements berth.v1.Tenants. The registry lists the tenants. The server adds
// the number of event streams that each tenant has at this gateway.
func (s *Server) ListTenants(ctx context.Context, req *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	answer, err := s.tenants.ListTenants(ctx, req)
	if err != nil || s.streams == nil {
		return answer, err
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
