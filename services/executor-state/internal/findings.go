package internal

import (
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// InventoryFindings implements control.v1.Inventory.
func (s *Inventory) InventoryFindings(ctx context.Context, _ *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	answer := &berthv1.ListFindingsAnswer{Findings: s.loop.Status().Findings(model.ServiceExecutorState)}
	err := s.loop.Read(ctx, false, func(c *inventory.Core) {
		for _, f := range c.Findings(time.Now()) {
			answer.Findings = append(answer.Findings, &berthv1.Finding{
				Kind: f.Kind, Object: f.Object, Since: wire.Timestamp(f.Since), Message: f.Message, Action: f.Action,
				Service: model.ServiceExecutorState,
			})
		}
	})
	return answer, err
}
