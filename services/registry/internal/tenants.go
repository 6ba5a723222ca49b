package internal

import (
	"context"
	"math"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
)

// Tenants serves berth.v1.Tenants from the loop.
type Tenants struct {
	berthv1.UnimplementedTenantsServer
	loop    loop.Owner[*queue.Core]
	tenants func() *model.Tenants
}

// NewTenants returns a server that answers from the loop's core. tenants returns the
// current tenants; a nil function returns none.
func NewTenants(l loop.Owner[*queue.Core], tenants func() *model.Tenants) *Tenants {
	return &Tenants{loop: l, tenants: tenants}
}

// current returns the current tenants.
func current(tenants func() *model.Tenants) *model.Tenants {
	if tenants == nil {
		return nil
	}
	return tenants()
}

// ListTenants implements berth.v1.Tenants. Gateways add the open streams of events.
func (s *Tenants) ListTenants(ctx context.Context, _ *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	tenants := current(s.tenants)
	var uses []queue.TenantUse
	if err := s.loop.Read(ctx, false, func(c *queue.Core) { uses = c.UseOf(tenants) }); err != nil {
		return nil, err
	}
	answer := &berthv1.ListTenantsAnswer{}
	for i, t := range tenants.All() {
		limits := t.Limits
		answer.Tenants = append(answer.Tenants, &berthv1.Tenant{
			Name: t.Name, Prefix: t.Prefix,
			Limits: &berthv1.TenantLimits{
				QueuedReservations: clamp(limits.QueuedReservations), Workers: clamp(limits.Workers),
				Batch: clamp(limits.Batch), StoredBytes: limits.StoredBytes,
				EventStreams: clamp(limits.EventStreams), RequestsPerSecond: limits.RequestsPerSecond,
				HighestPriority: berthv1.PriorityClass(limits.HighestPriority), Skus: limits.SKUs, Pools: limits.Pools,
			},
			Use: &berthv1.TenantUse{
				QueuedReservations: clamp(uses[i].Queued), Workers: clamp(uses[i].Workers), StoredBytes: uses[i].Bytes,
			},
		})
	}
	return answer, nil
}

// clamp converts a number that may be too large for the API.
func clamp(n int) int32 { return int32(min(n, math.MaxInt32)) }
