package client

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
)

// SKUs lists the SKUs of the catalog, ordered by name.
func (c *Client) SKUs(ctx context.Context) (*berthv1.ListSkusAnswer, error) {
	return invoke(ctx, c, c.catalog.ListSkus, &berthv1.ListSkusRequest{})
}

// SKU reads one SKU. The error is NotFound if the SKU does not exist.
func (c *Client) SKU(ctx context.Context, name string) (*berthv1.Sku, error) {
	return invoke(ctx, c, c.catalog.GetSku, &berthv1.GetSkuRequest{Name: name})
}

// PutSKU creates or replaces a SKU and returns the stored SKU. For an invalid SKU the
// error is Invalid and names the invalid fields.
func (c *Client) PutSKU(ctx context.Context, sku *berthv1.Sku) (*berthv1.Sku, error) {
	return invoke(ctx, c, c.catalog.PutSku, &berthv1.PutSkuRequest{Sku: sku})
}

// DeleteSKU deletes a SKU. It succeeds if the SKU does not exist.
func (c *Client) DeleteSKU(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, c.catalog.DeleteSku, &berthv1.DeleteSkuRequest{Name: name})
	return err
}

// Pools lists the pools of the catalog, ordered by name.
func (c *Client) Pools(ctx context.Context) (*berthv1.ListPoolsAnswer, error) {
	return invoke(ctx, c, c.catalog.ListPools, &berthv1.ListPoolsRequest{})
}

// Pool reads one pool. The error is NotFound if the pool does not exist.
func (c *Client) Pool(ctx context.Context, name string) (*berthv1.Pool, error) {
	return invoke(ctx, c, c.catalog.GetPool, &berthv1.GetPoolRequest{Name: name})
}

// PutPool creates or replaces a pool and returns the stored pool. For an invalid pool the
// error is Invalid and names the invalid fields.
func (c *Client) PutPool(ctx context.Context, pool *berthv1.Pool) (*berthv1.Pool, error) {
	return invoke(ctx, c, c.catalog.PutPool, &berthv1.PutPoolRequest{Pool: pool})
}

// DeletePool deletes a pool. It succeeds if the pool does not exist.
func (c *Client) DeletePool(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, c.catalog.DeletePool, &berthv1.DeletePoolRequest{Name: name})
	return err
}
