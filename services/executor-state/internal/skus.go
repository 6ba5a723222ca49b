package internal

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// ListSkus implements berth.v1.Catalog.
func (s *Catalog) ListSkus(ctx context.Context, _ *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error) {
	answer := &berthv1.ListSkusAnswer{}
	err := s.loop.Read(ctx, false, func(c *inventory.Core) { answer.Skus = skus(c) })
	return answer, err
}

// GetSku implements berth.v1.Catalog.
func (s *Catalog) GetSku(ctx context.Context, req *berthv1.GetSkuRequest) (*berthv1.Sku, error) {
	sku, err := find(ctx, s.loop, (*inventory.Core).SKU, req.GetName(), "there is no SKU %s in the catalog")
	if err != nil {
		return nil, err
	}
	return wire.SKU(&sku), nil
}

// PutSku implements berth.v1.Catalog.
func (s *Catalog) PutSku(ctx context.Context, req *berthv1.PutSkuRequest) (*berthv1.Sku, error) {
	if err := checkTime("scale.holdUntil", req.GetSku().GetScale().GetHoldUntil()); err != nil {
		return nil, err
	}
	value, err := put(ctx, s, "SKUs", req.GetSku(), skus, inventory.PutSKU{SKU: *wire.SKUOf(req.GetSku())})
	if err != nil {
		return nil, err
	}
	sku := value.(model.SKU)
	return wire.SKU(&sku), nil
}

// DeleteSku implements berth.v1.Catalog.
func (s *Catalog) DeleteSku(ctx context.Context, req *berthv1.DeleteSkuRequest) (*berthv1.DeleteSkuAnswer, error) {
	value, err := s.loop.Do(ctx, inventory.DeleteSKU{Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	return &berthv1.DeleteSkuAnswer{Unknown: wire.IfTrue(value.(inventory.SKUDeleted).Unknown)}, nil
}
