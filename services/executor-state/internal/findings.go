package internal

import (
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/services/executor-state/inventory"
)

// InventoryFindings implements control.v1.Inventory.
func (s *Inventory) InventoryFindings(ctx context.Context,
	_ *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	var findings []inventory.Finding
	if err := s.loop.Read(ctx, false, func(c *inventory.Core) { findings = c.Findings(time.Now()) }); err != nil {
		return nil, err
	}
	return replica.Findings(s.loop.Status(), model.ServiceExecutorState, findings), nil
}
