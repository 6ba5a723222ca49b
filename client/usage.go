package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Usage says how much of each SKU is used and how much more is asked for, all
// as of one revision; of one SKU where it is named. Until the registry is ready
// the error is Unavailable with reason REGISTRY_NOT_READY.
func (c *Client) Usage(ctx context.Context, sku string) (*berthv1.GetUsageAnswer, error) {
	return invoke(ctx, c, c.usage.GetUsage, &berthv1.GetUsageRequest{Sku: sku})
}

// Idle lists executors without a worker, with the reason why each is idle.
func (c *Client) Idle(ctx context.Context, request *berthv1.ListIdleExecutorsRequest) (*berthv1.ListIdleExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.ListIdleExecutors, request)
}

// ClaimForScaleDown picks idle executors of a SKU and disables them in one
// step, so that nothing is allocated on them before they are removed. Repeat
// with the same request id to have the same ones.
func (c *Client) ClaimForScaleDown(ctx context.Context, request *berthv1.ClaimForScaleDownRequest) (*berthv1.ClaimForScaleDownAnswer, error) {
	q := proto.CloneOf(request)
	if q.RequestId == "" {
		q.RequestId = requestID()
	}
	return invoke(ctx, c, c.executors.ClaimForScaleDown, q)
}
