package inventory

import (
	"maps"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// PutSKU is the request to create or replace a SKU's specification. The name is compared
// without regard to case and keeps its first spelling. The reply's Value is the model.SKU
// as recorded.
type PutSKU struct{ SKU model.SKU }

// DeleteSKU is the request to delete a SKU's specification. The executors of the SKU
// stay. Deleting a missing specification succeeds. The reply's Value is a [SKUDeleted].
type DeleteSKU struct{ Name string }

// SKUDeleted is the reply to DeleteSKU. Unknown is set if there was no specification.
type SKUDeleted struct{ Unknown bool }

func (c *Core) putSKU(p PutSKU) (model.SKU, error) {
	if err := checkSKU(c.now, p.SKU); err != nil {
		return model.SKU{}, err
	}
	next := p.SKU
	next.Resources, next.Attributes = next.Resources.WithSlots(), maps.Clone(next.Attributes)
	next.UpdatedAt = c.now
	if known, ok := c.usage.SKU(p.SKU.Name); ok {
		next.Name = known.Name
		if equalSKU(known, next) {
			return known, nil
		}
	} else if n := len(c.usage.SKUs()); n >= c.cfg.MaxCatalog {
		return model.SKU{}, policy.CatalogFull("SKUs", n, c.cfg.MaxCatalog)
	}
	c.decide(model.Effect{Puts: []model.Record{&next}})
	return next, nil
}

func (c *Core) deleteSKU(d DeleteSKU) (SKUDeleted, error) {
	known, ok := c.usage.SKU(d.Name)
	if ok {
		c.decide(model.Effect{Deletes: []model.Ref{known.Ref()}})
	}
	return SKUDeleted{Unknown: !ok}, nil
}

func equalSKU(a, b model.SKU) bool {
	return a.Resources.Equal(b.Resources) && maps.Equal(a.Attributes, b.Attributes) && equalRule(a.Scale, b.Scale)
}

func equalRule(a, b *model.ScaleRule) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.MinIdle == b.MinIdle && a.MinSize == b.MinSize && equalBound(a.MaxIdle, b.MaxIdle) &&
		equalBound(a.MaxSize, b.MaxSize) && a.Cooldown == b.Cooldown && a.HoldUntil.Equal(b.HoldUntil)
}

func equalBound(a, b *int32) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// The limits of a scale rule.
const (
	maxCooldown = 24 * time.Hour
	maxHoldDays = 30
)

// checkSKU rejects a malformed specification. Its error names every wrong field. A hold
// that has ended is valid, so that a file can be applied again.
func checkSKU(now time.Time, s model.SKU) error {
	var bad model.Violations
	bad.Name("name", s.Name, model.MaxName)
	if len(s.Resources) == 0 {
		bad.Add(fault.ReasonRequired, "resources", "is required: what an executor of the SKU has")
	}
	bad.Resources(s.Resources)
	bad.Attributes("attributes", s.Attributes)
	if rule := s.Scale; rule != nil {
		checkBounds(&bad, "scale.minIdle", rule.MinIdle, "scale.maxIdle", rule.MaxIdle)
		checkBounds(&bad, "scale.minSize", rule.MinSize, "scale.maxSize", rule.MaxSize)
		if rule.Cooldown < 0 || rule.Cooldown > maxCooldown {
			bad.Add(fault.ReasonInvalid, "scale.cooldown", "must be between 0 and 24h, got %v", rule.Cooldown)
		}
		if rule.HoldUntil.After(now.Add(maxHoldDays * 24 * time.Hour)) {
			bad.Add(fault.ReasonInvalid, "scale.holdUntil", "must be at most %d days in the future, got %s", maxHoldDays,
				rule.HoldUntil.UTC().Format(time.RFC3339))
		}
	}
	return bad.Err()
}

// checkBounds checks the two ends of a range.
func checkBounds(v *model.Violations, minField string, least int32, maxField string, most *int32) {
	if least < 0 {
		v.Add(fault.ReasonInvalid, minField, "must not be negative, got %d", least)
	}
	if most != nil && *most < max(0, least) {
		v.Add(fault.ReasonInvalid, maxField, "must be at least %d, got %d", max(0, least), *most)
	}
}
