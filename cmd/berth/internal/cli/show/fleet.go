package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Executors returns the table of executors.
func Executors(list []*berthv1.Executor, now time.Time, wide bool) *Table {
	t := table("EXECUTOR", "SKU", "STATE", "WORKERS", "SLOTS", "CPU", "MEMORY", "SINCE").more(wide, "KIND", "POOL",
		"ADDRESS", "HOST", "INCARNATION", "ATTRIBUTES", "RESOURCES")
	for _, e := range list {
		t.add(e.GetId(), e.GetSku(), executorState(e), fmt.Sprint(e.GetWorkers()),
			used(e, "slots"), used(e, "cpu"), used(e, "memory"), since(e.GetSince(), now),
			state(e.GetKind()), e.GetPool(), e.GetAddress(), e.GetHost(), number(e.GetIncarnation()),
			pairs(e.GetAttributes()), resources(e.GetResources()))
	}
	return t
}

// executorState formats the state, and whether the executor is draining, drained, disabled or
// skipped because it fails starts. For a draining executor it omits DISABLED, because
// draining implies disabled.
func executorState(e *berthv1.Executor) string {
	word := state(e.GetState())
	switch {
	case e.GetDraining() && e.GetWorkers() == 0:
		return word + ",DRAINED"
	case e.GetDraining():
		return word + ",DRAINING"
	case len(e.GetDisabled()) > 0:
		return word + ",DISABLED"
	case e.GetSkippedUntil() != nil:
		return word + "," + string(fault.ReasonFailsStarts)
	}
	return word
}

// used formats the used part of a resource. It returns an empty string if the executor
// does not have the resource.
func used(e *berthv1.Executor, resource string) string {
	total, ok := e.GetResources()[resource]
	if !ok {
		return ""
	}
	return amount(resource, e.GetUsed()[resource]) + "/" + amount(resource, total)
}

// boundingReasons are the reasons of wanted sizes that idle executors and demand alone do
// not explain.
var boundingReasons = []fault.Reason{fault.ReasonScalingHeld, fault.ReasonCooldown, fault.ReasonMinSize,
	fault.ReasonMaxSize}

// Usage returns the table of the usage of each SKU. Below, a second table lists the
// demand that fits no SKU. A note explains a wanted size that the other numbers do not
// explain.
func Usage(u *berthv1.GetUsageAnswer, _ time.Time, wide bool) *Table {
	t := table("SKU", "TOTAL", "IDLE", "LEASED", "RUNNING", "UNAVAILABLE", "DISABLED", "PENDING", "WANTED").more(wide,
		"EFFECTIVE-IDLE", "RESERVATIONS", "WORKERS", "BATCHES", "REASON", "MESSAGE")
	for _, s := range u.GetSkus() {
		t.add(s.GetSku(), fmt.Sprint(s.GetTotal()), fmt.Sprint(s.GetIdle()), fmt.Sprint(s.GetLeased()),
			fmt.Sprint(s.GetRunning()),
			fmt.Sprint(s.GetUnavailable()), fmt.Sprint(s.GetDisabled()), fmt.Sprint(s.GetPendingExecutors()),
			fmt.Sprint(s.GetWantedSize()),
			fmt.Sprint(s.GetEffectiveIdle()), fmt.Sprint(s.GetPendingReservations()), fmt.Sprint(s.GetPendingWorkers()),
			batches(s.GetPendingBatches()), s.GetWantedReason(), s.GetWantedMessage())
		if !wide && slices.Contains(boundingReasons, fault.Reason(s.GetWantedReason())) {
			t.note(s.GetWantedReason() + ": " + s.GetWantedMessage())
		}
	}
	unmapped := table("GROUP", "QUEUED", "WORKERS", "REASON", "NEEDS").more(wide, "MESSAGE")
	for _, d := range u.GetUnmapped() {
		unmapped.add(d.GetGroup(), number(d.GetReservations()), number(d.GetWorkers()), d.GetReason(),
			constraints(d.GetConstraints()), d.GetMessage())
	}
	return t.above("Demand that fits no SKU:", unmapped)
}

// batches formats the number of pending batches of each size: `3x4,1x100` are three
// batches of 4 workers and one batch of 100.
func batches(list []*berthv1.PendingBatch) string {
	var parts []string
	for _, b := range list {
		parts = append(parts, fmt.Sprintf("%dx%d", b.GetCount(), b.GetWorkers()))
	}
	return strings.Join(parts, ",")
}
