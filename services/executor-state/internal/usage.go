package internal

import (
	"cmp"
	"context"
	"math"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/executor-state/usage"
)

// The sizes of a list of idle executors.
const (
	defaultIdle = 100
	maxIdle     = 1000
)

// Usage implements berth.v1.Usage over the loop.
type Usage struct {
	berthv1.UnimplementedUsageServer
	loop loop.Owner[*inventory.Core]
}

// NewUsage returns a server that uses the loop's core.
func NewUsage(l loop.Owner[*inventory.Core]) *Usage { return &Usage{loop: l} }

// GetUsage implements berth.v1.Usage.
func (s *Usage) GetUsage(ctx context.Context, req *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error) {
	var u usage.Usage
	var refused error
	err := s.loop.Read(ctx, false, func(c *inventory.Core) { u, refused = c.Usage(s.loop.Now(), req.GetSku()) })
	if err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	answer := &berthv1.GetUsageAnswer{Revision: u.Revision}
	for _, row := range u.SKUs {
		answer.Skus = append(answer.Skus, skuUsage(row))
	}
	for _, u := range u.Unmapped {
		answer.Unmapped = append(answer.Unmapped, &berthv1.UnmappedDemand{
			Group: u.Group, Constraints: wire.Constraints(u.Constraints),
			Reservations: count(u.Reservations), Workers: count(u.Workers), Reason: string(u.Reason), Message: u.Message,
		})
	}
	return answer, nil
}

func skuUsage(row usage.SKUUsage) *berthv1.SkuUsage {
	m := &berthv1.SkuUsage{
		Sku: row.SKU, Total: count(row.Total), Idle: count(row.Idle), Leased: count(row.Leased), Running: count(row.Running),
		Unavailable: count(row.Unavailable), Disabled: count(row.Disabled),
		PendingReservations: count(row.PendingReservations), PendingWorkers: count(row.PendingWorkers),
		PendingExecutors: count(row.PendingExecutors), EffectiveIdle: count(row.EffectiveIdle),
		VolumesOnly: count(row.VolumesOnly),
		WantedSize:  count(row.WantedSize), WantedReason: string(row.WantedReason), WantedMessage: row.WantedMessage,
	}
	for _, b := range row.PendingBatches {
		m.PendingBatches = append(m.PendingBatches, &berthv1.PendingBatch{Workers: count(b.Workers), Count: count(b.Count)})
	}
	return m
}

// count converts a number to int32, and returns the largest int32 for greater numbers.
// More workers may be pending than a field of the message can count.
func count[N int | int64](n N) int32 { return int32(min(int64(n), math.MaxInt32)) }

// ListIdleExecutors implements berth.v1.Executors.
func (s *Executors) ListIdleExecutors(ctx context.Context,
	req *berthv1.ListIdleExecutorsRequest) (*berthv1.ListIdleExecutorsAnswer, error) {
	limit := int(req.GetMax())
	switch {
	case limit == 0:
		limit = defaultIdle
	case limit < 0:
		return nil, fault.BadField(fault.ReasonInvalid, "max", "must be at least 1, got %d", limit)
	case limit > maxIdle:
		return nil, fault.BadField(fault.ReasonTooLarge, "max", "must be at most %d, got %d", maxIdle, limit)
	}
	answer := &berthv1.ListIdleExecutorsAnswer{}
	var unknown error
	err := s.loop.Read(ctx, false, func(c *inventory.Core) {
		if req.GetSku() != "" {
			unknown = c.UnknownSKU(req.GetSku())
		}
		answer.Revision = c.Revision()
		for _, e := range c.IdleExecutors(req.GetSku(), limit) {
			answer.Executors = append(answer.Executors, &berthv1.IdleExecutor{
				Id: e.ID, Sku: e.SKU, Reason: string(e.Reason), Message: e.Message, Since: wire.Timestamp(e.Since),
			})
		}
	})
	if err = cmp.Or(err, unknown); err != nil {
		return nil, err
	}
	return answer, nil
}
