package show

import (
	"fmt"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/wire"
)

// SKUs returns the table of SKUs, with the bounds of idle and of all executors, the
// cooldown and the rest of the hold.
func SKUs(list []*berthv1.Sku, now time.Time, wide bool) *Table {
	t := table("SKU", "RESOURCES", "IDLE", "SIZE", "COOLDOWN", "HELD-FOR", "UPDATED").more(wide, "ATTRIBUTES")
	for _, s := range list {
		row := []string{s.GetName(), resources(s.GetResources()), "", "", "", "", since(s.GetUpdatedAt(), now)}
		if rule := s.GetScale(); rule != nil {
			row[2], row[3] = bounds(rule.MinIdle, rule.MaxIdle), bounds(rule.MinSize, rule.MaxSize)
			if rule.GetCooldown().AsDuration() > 0 {
				row[4] = Age(rule.GetCooldown().AsDuration())
			}
		}
		if until := heldUntil(s, now); !until.IsZero() {
			row[5] = Age(until.Sub(now))
		}
		t.add(append(row, pairs(s.GetAttributes()))...)
	}
	return t
}

// heldUntil returns when the hold of a SKU's scaling ends, or the zero time if no hold is
// in force.
func heldUntil(s *berthv1.Sku, now time.Time) time.Time {
	if until := wire.Time(s.GetScale().GetHoldUntil()); now.Before(until) {
		return until
	}
	return time.Time{}
}

// bounds formats a range: `2-8`, or `2+` without an upper bound.
func bounds(least int32, most *int32) string {
	if most == nil {
		return fmt.Sprintf("%d+", least)
	}
	return fmt.Sprintf("%d-%d", least, *most)
}

// Pools returns the table of pools.
func Pools(list []*berthv1.Pool, now time.Time, _ bool) *Table {
	t := table("POOL", "ATTRIBUTES", "LOST-AFTER", "UPDATED")
	for _, p := range list {
		lostAfter := ""
		if p.GetLostAfter() != nil {
			lostAfter = Age(p.GetLostAfter().AsDuration())
		}
		t.add(p.GetName(), pairs(p.GetAttributes()), lostAfter, since(p.GetUpdatedAt(), now))
	}
	return t
}
