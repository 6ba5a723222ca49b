package internal

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/executor-state/policy"
)

// ListPools implements berth.v1.Catalog.
func (s *Catalog) ListPools(ctx context.Context, _ *berthv1.ListPoolsRequest) (*berthv1.ListPoolsAnswer, error) {
	answer := &berthv1.ListPoolsAnswer{}
	err := s.loop.Read(ctx, false, func(c *inventory.Core) { answer.Pools = pools(c) })
	return answer, err
}

// GetPool implements berth.v1.Catalog.
func (s *Catalog) GetPool(ctx context.Context, req *berthv1.GetPoolRequest) (*berthv1.Pool, error) {
	pool, err := find(ctx, s.loop, (*inventory.Core).Pool, req.GetName(), "there is no pool %s in the catalog")
	if err != nil {
		return nil, err
	}
	return wire.Pool(&pool), nil
}

// PutPool implements berth.v1.Catalog.
func (s *Catalog) PutPool(ctx context.Context, req *berthv1.PutPoolRequest) (*berthv1.Pool, error) {
	if d := req.GetPool().GetLostAfter(); d != nil && !d.IsValid() {
		return nil, fault.BadField(fault.ReasonInvalid, "lostAfter", "must be a valid duration")
	}
	value, err := put(ctx, s, "pools", req.GetPool(), pools, policy.PutPool{Pool: *wire.PoolOf(req.GetPool())})
	if err != nil {
		return nil, err
	}
	return wire.Pool(value.(*model.Pool)), nil
}

// DeletePool implements berth.v1.Catalog.
func (s *Catalog) DeletePool(ctx context.Context, req *berthv1.DeletePoolRequest) (*berthv1.DeletePoolAnswer, error) {
	value, err := s.loop.Do(ctx, policy.DeletePool{Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	return &berthv1.DeletePoolAnswer{Unknown: wire.IfTrue(value.(policy.PoolDeleted).Unknown)}, nil
}
