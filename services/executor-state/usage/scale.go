package usage

import "berth.dev/pkg/model"

// Wanted returns the number of executors that a scale rule recommends. total is the
// number of executors, idle is how many of them are idle, and pending is how many
// executors the pending reservations need.
//
//	idle − pending < minIdle:  total + pending + minIdle − idle   (more)
//	idle − pending > maxIdle:  total − (idle − pending − maxIdle) (fewer)
//	else:                      total
//
// Placing demand on idle executors reduces idle and pending by the same number, so the
// result is the same before and after. minSize and maxSize limit the result. If the rule
// recommends more executors, maxSize never makes the result smaller than total. minSize
// takes precedence over all other settings: the result is at least minSize, however many
// executors are idle. A nil rule returns total.
func Wanted(rule *model.ScaleRule, total, idle, pending int64) int64 {
	if rule == nil {
		return total
	}
	spare := idle - pending
	switch {
	case spare < int64(rule.MinIdle):
		return max(total, limit(rule, total+int64(rule.MinIdle)-spare))
	case rule.MaxIdle != nil && spare > int64(*rule.MaxIdle):
		return max(min(total, limit(rule, total-(spare-int64(*rule.MaxIdle)))), int64(rule.MinSize))
	}
	return max(total, int64(rule.MinSize))
}

// limit returns a size within the bounds of a rule.
func limit(rule *model.ScaleRule, size int64) int64 {
	if rule.MaxSize != nil {
		size = min(size, int64(*rule.MaxSize))
	}
	return max(size, int64(rule.MinSize))
}
