package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// SKU returns the details of a SKU: its shape, its scale rule and its usage. missing is why
// the usage is not known, or empty.
func SKU(s *berthv1.Sku, usage *berthv1.GetUsageAnswer, missing string, now time.Time) string {
	var b strings.Builder
	field(&b, "SKU", s.GetName())
	field(&b, "Resources", resources(s.GetResources()))
	field(&b, "Attributes", pairs(s.GetAttributes()))
	if rule := s.GetScale(); rule != nil {
		field(&b, "Idle", bounds(rule.MinIdle, rule.MaxIdle))
		field(&b, "Size", bounds(rule.MinSize, rule.MaxSize))
		if rule.GetCooldown().AsDuration() > 0 {
			field(&b, "Cooldown", Age(rule.GetCooldown().AsDuration()))
		}
	}
	if until := heldUntil(s, now); !until.IsZero() {
		field(&b, "Held", "until "+clock(until, now))
	}
	field(&b, "Updated", instant(s.GetUpdatedAt(), now))
	b.WriteString("\nUsage\n")
	if missing != "" {
		b.WriteString("  not known: " + missing + "\n")
		return b.String()
	}
	b.WriteString(cmp.Or(Usage(usage, now, false).text("  "), "  none\n"))
	return b.String()
}

// Pool returns the details of a pool, with the number of its executors in each state.
func Pool(p *berthv1.Pool, executors []*berthv1.Executor, now time.Time) string {
	var b strings.Builder
	field(&b, "Pool", p.GetName())
	field(&b, "Attributes", pairs(p.GetAttributes()))
	if p.GetLostAfter() != nil {
		field(&b, "Lost after", Age(p.GetLostAfter().AsDuration()))
	}
	field(&b, "Updated", instant(p.GetUpdatedAt(), now))
	b.WriteString("\nExecutors\n")
	counts := map[string]int{}
	for _, e := range executors {
		counts[executorState(e)]++
	}
	t := table("STATE", "EXECUTORS")
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		t.add(state, fmt.Sprint(counts[state]))
	}
	b.WriteString(cmp.Or(t.text("  "), "  none\n"))
	return b.String()
}
