package usage

import "berth.dev/pkg/model"

// Wanted is the advice of a scale rule: how many executors there should be,
// where there are total, of which so many idle, and the reservations that wait
// need so many.
//
//	idle − pending < minIdle:  total + pending + minIdle − idle   (more)
//	idle − pending > maxIdle:  total − (idle − pending − maxIdle) (fewer)
//	else:                      total
//
// Demand that is placed on idle executors takes as many from idle as from
// pending, so the advice is the same before and after. minSize and maxSize
// limit it: more is never less than there are, however small maxSize. minSize
// wins over all else, so while there are fewer the advice is minSize at least,
// however many are idle. The difference to total is what is to be done; a nil rule
// advises nothing.
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

// limit brings a size between the bounds of a rule.
func limit(rule *model.ScaleRule, size int64) int64 {
	if rule.MaxSize != nil {
		size = min(size, int64(*rule.MaxSize))
	}
	return max(size, int64(rule.MinSize))
}
