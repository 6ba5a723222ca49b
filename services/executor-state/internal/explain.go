package internal

import (
	"context"
	"slices"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// ExplainFit implements control.v1.Inventory.
func (s *Inventory) ExplainFit(ctx context.Context, req *controlv1.ExplainFitRequest) (*controlv1.ExplainFitAnswer,
	error) {
	needed := req.GetNeeded()
	if needed < 1 || needed > model.MaxWorkers {
		return nil, fault.BadField(fault.ReasonInvalid, "needed", "must be between 1 and %d, got %d", model.MaxWorkers,
			needed)
	}
	k := wire.ConstraintsOf(req.GetConstraints())
	k.Resources, k.AvoidFailed, k.RefusedBy = k.Resources.WithSlots(), req.GetAvoidFailed(), req.GetRefusedBy()
	answer := &controlv1.ExplainFitAnswer{}
	err := s.loop.Read(ctx, false, func(c *inventory.Core) {
		if k.Cells {
			o, _ := c.ExplainCells(req.GetUid())
			answer.Fitting, answer.Reason, answer.Message, answer.Revision = int32(o.Fitting), string(o.Reason), o.Message,
				c.Revision()
			return
		}
		e := c.Explain(req.GetUid(), k, int(needed))
		answer.Fitting, answer.Reason, answer.Message, answer.Revision = int32(e.Fitting), string(e.Reason), e.Message,
			c.Revision()
		answer.ScarcestResource = e.Scarcest
		for _, check := range e.Checks {
			attribute, _ := strings.CutPrefix(check.Name, "attributes.")
			answer.Checks = append(answer.Checks, &berthv1.FailedCheck{
				Check: check.Name, Want: check.Want, Have: check.Have, Count: int32(check.Executors),
				ByDefault: attribute != check.Name && slices.Contains(k.Defaults, attribute),
			})
		}
		if o, ok := c.ExplainVolumes(req.GetUid()); ok {
			answer.Fitting, answer.Reason, answer.Message = int32(o.Fitting), string(o.Reason), o.Message
		}
	})
	return answer, err
}
