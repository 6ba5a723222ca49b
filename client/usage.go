package client

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
)

// Usage returns how many executors of each SKU are used and how many more are requested.
// All numbers are from the same revision. If sku is not empty, Usage returns only this
// SKU. Until the registry is ready, the error is Unavailable with reason
// REGISTRY_NOT_READY.
func (c *Client) Usage(ctx context.Context, sku string) (*berthv1.GetUsageAnswer, error) {
	return invoke(ctx, c, c.usage.GetUsage, &berthv1.GetUsageRequest{Sku: sku})
}

// Idle lists executors without a worker, with the reason why each of them is idle.
func (c *Client) Idle(ctx context.Context,
	request *berthv1.ListIdleExecutorsRequest) (*berthv1.ListIdleExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.ListIdleExecutors, request)
}

// ClaimForScaleDown selects idle executors of a SKU and disables them atomically, so that
// they get no workers before they are removed. A repeat with the same request ID returns
// the same executors.
func (c *Client) ClaimForScaleDown(ctx context.Context,
	request *berthv1.ClaimForScaleDownRequest) (*berthv1.ClaimForScaleDownAnswer, error) {
	return invoke(ctx, c, c.executors.ClaimForScaleDown, identified(request))
}
