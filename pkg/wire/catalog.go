package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// SKU converts a SKU to protobuf.
func SKU(s *model.SKU) *berthv1.Sku {
	m := &berthv1.Sku{Name: s.Name, Resources: s.Resources, Attributes: s.Attributes, UpdatedAt: Timestamp(s.UpdatedAt)}
	if rule := s.Scale; rule != nil {
		m.Scale = &berthv1.ScaleRule{MinIdle: rule.MinIdle, MaxIdle: rule.MaxIdle, MinSize: rule.MinSize,
			MaxSize: rule.MaxSize, Cooldown: duration(rule.Cooldown), HoldUntil: Timestamp(rule.HoldUntil)}
	}
	return m
}

// SKUOf converts a SKU from protobuf.
func SKUOf(m *berthv1.Sku) *model.SKU {
	s := &model.SKU{Name: m.GetName(), Resources: resource.Vector(m.GetResources()), Attributes: m.GetAttributes(),
		UpdatedAt: Time(m.GetUpdatedAt())}
	if rule := m.GetScale(); rule != nil {
		s.Scale = &model.ScaleRule{MinIdle: rule.GetMinIdle(), MaxIdle: rule.MaxIdle, MinSize: rule.GetMinSize(),
			MaxSize: rule.MaxSize, Cooldown: rule.GetCooldown().AsDuration(), HoldUntil: Time(rule.GetHoldUntil())}
	}
	return s
}

// Pool converts a pool to protobuf.
func Pool(p *model.Pool) *berthv1.Pool {
	m := &berthv1.Pool{Name: p.Name, Attributes: p.Attributes, UpdatedAt: Timestamp(p.UpdatedAt)}
	if p.LostAfter != nil {
		m.LostAfter = durationpb.New(*p.LostAfter)
	}
	return m
}

// PoolOf converts a pool from protobuf.
func PoolOf(m *berthv1.Pool) *model.Pool {
	p := &model.Pool{Name: m.GetName(), Attributes: m.GetAttributes(), UpdatedAt: Time(m.GetUpdatedAt())}
	if m.GetLostAfter() != nil {
		lostAfter := time.Duration(m.GetLostAfter().AsDuration())
		p.LostAfter = &lostAfter
	}
	return p
}

// Shares converts the resources that are reserved for roles to protobuf.
func Shares(shares map[string]resource.Vector) map[string]*berthv1.ResourceShare {
	if len(shares) == 0 {
		return nil
	}
	m := make(map[string]*berthv1.ResourceShare, len(shares))
	for role, share := range shares {
		m[role] = &berthv1.ResourceShare{Resources: share}
	}
	return m
}

// SharesOf converts the resources that are reserved for roles from protobuf.
func SharesOf(m map[string]*berthv1.ResourceShare) map[string]resource.Vector {
	if len(m) == 0 {
		return nil
	}
	shares := make(map[string]resource.Vector, len(m))
	for role, share := range m {
		shares[role] = resource.Vector(share.GetResources())
	}
	return shares
}
