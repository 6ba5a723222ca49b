package usage

import (
	"fmt"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Advice is the number of executors that a scale rule recommends, and the reason.
type Advice struct {
	WantedSize    int64
	WantedReason  fault.Reason
	WantedMessage string
}

// Advise returns [Wanted], subject to the hold and the cooldown of the rule. During a hold
// it returns total. During the cooldown it returns at least total. The cooldown starts at
// neededAt, when at most maxIdle executors were spare for the last time.
//
// The core sees spare executors when it counts executors and when usage is read. In
// between, demand that gets no executor may come and go without a trace; no reader has
// seen advice for such demand. neededAt is not stored, because it changes with every lease.
// So a new leader starts all cooldowns: it may recommend fewer executors too late, but not
// too early.
func Advise(rule *model.ScaleRule, now, neededAt time.Time, total, idle, pending int64) Advice {
	if rule == nil {
		return Advice{total, fault.ReasonNoScaleRule, "the SKU has no scale rule"}
	}
	a := uncooled(rule, total, idle, pending)
	if until := neededAt.Add(rule.Cooldown); a.WantedSize < total && now.Before(until) {
		a = Advice{total, fault.ReasonCooldown, fmt.Sprintf("%s; the wanted size does not fall before %s (cooldown: %v)",
			a.WantedMessage, stamp(until), rule.Cooldown)}
	}
	if rule.Held(now) {
		a = Advice{total, fault.ReasonScalingHeld, fmt.Sprintf("scaling is held until %s; without the hold, the wanted size is %d",
			stamp(rule.HoldUntil), a.WantedSize)}
	}
	return a
}

// uncooled returns the advice of a rule without its hold and cooldown.
func uncooled(rule *model.ScaleRule, total, idle, pending int64) Advice {
	spare := idle - pending
	a := Advice{Wanted(rule, total, idle, pending), fault.ReasonIdleInRange, fmt.Sprintf("spare executors: %d", spare)}
	unlimited := total
	switch {
	case spare < int64(rule.MinIdle):
		unlimited += int64(rule.MinIdle) - spare
		a.WantedReason = fault.ReasonTooFewIdle
		a.WantedMessage += fmt.Sprintf(", minIdle: %d", rule.MinIdle)
	case rule.MaxIdle == nil:
		a.WantedMessage += fmt.Sprintf(", minIdle: %d, no maxIdle", rule.MinIdle)
	case spare > int64(*rule.MaxIdle):
		unlimited -= spare - int64(*rule.MaxIdle)
		a.WantedReason = fault.ReasonTooManyIdle
		a.WantedMessage += fmt.Sprintf(", maxIdle: %d", *rule.MaxIdle)
	default:
		a.WantedMessage += fmt.Sprintf(", minIdle: %d, maxIdle: %d", rule.MinIdle, *rule.MaxIdle)
	}
	switch {
	case a.WantedSize > unlimited:
		a.WantedReason = fault.ReasonMinSize
		a.WantedMessage += fmt.Sprintf("; minSize: %d", rule.MinSize)
	case a.WantedSize < unlimited:
		a.WantedReason = fault.ReasonMaxSize
		a.WantedMessage += fmt.Sprintf("; maxSize: %d", *rule.MaxSize)
	}
	return a
}

// stamp formats a time for messages, in whole seconds. It rounds up, so that nothing is
// announced too early.
func stamp(t time.Time) string {
	return t.Add(time.Second - 1).Truncate(time.Second).UTC().Format(time.RFC3339)
}

// Wanted returns the number of executors that the bounds of a scale rule recommend. total
// is the number of executors, idle is how many of them are idle, and pending is how many
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
