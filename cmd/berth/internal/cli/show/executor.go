package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Executor returns the details of an executor: its properties, its used resources, the
// requests that disable it, until when matching skips it, its leases, its workers that have
// not ended, and its volumes.
func Executor(e *berthv1.Executor, assignments []*berthv1.Assignment, volumes []*berthv1.Volume,
	now time.Time) string {
	var b strings.Builder
	field(&b, "Executor", e.GetId())
	field(&b, "State", executorState(e))
	field(&b, "Since", instant(e.GetSince(), now))
	field(&b, "Kind", state(e.GetKind()))
	field(&b, "SKU", e.GetSku())
	field(&b, "Pool", e.GetPool())
	field(&b, "Address", e.GetAddress())
	field(&b, "Host", e.GetHost())
	field(&b, "Generation", number(e.GetGeneration()))
	field(&b, "Incarnation", number(e.GetIncarnation()))
	field(&b, "Attributes", pairs(e.GetAttributes()))
	for _, mark := range e.GetDisabled() {
		field(&b, "Disabled", disabled(mark, now))
	}
	if until := e.GetSkippedUntil(); until != nil {
		field(&b, "Skipped", "until "+clock(until.AsTime(), now)+": starts fail on the executor")
	}

	if len(e.GetResources()) > 0 { // a cell has none
		b.WriteString("\nResources\n" + shares(e).text("  "))
	}
	if len(e.GetLeases()) > 0 {
		t := table("RESERVATION", "UID", "WORKERS", "HELD")
		for _, l := range e.GetLeases() {
			t.add(Key(l.GetJob(), l.GetStage(), l.GetReservation()), l.GetUid(), number(l.GetWorkers()), yes(l.GetHeld()))
		}
		b.WriteString("\nLeases\n" + t.text("  "))
	}
	active := slices.DeleteFunc(slices.Clone(assignments),
		func(a *berthv1.Assignment) bool { return a.GetState() >= berthv1.Assignment_COMPLETED })
	b.WriteString("\nWorkers\n")
	b.WriteString(cmp.Or(Assignments(active, now, false).text("  "), "  none\n"))
	if len(volumes) > 0 {
		b.WriteString("\nVolumes\n" + Volumes(volumes, now, false).text("  "))
	}
	return b.String()
}

// disabled formats a request to disable an executor.
func disabled(mark *berthv1.DisableMark, now time.Time) string {
	text := "by request " + mark.GetRequestId()
	if mark.GetExpireTime() != nil {
		text += " until " + clock(mark.GetExpireTime().AsTime(), now)
	}
	if mark.GetReason() != "" {
		text += ": " + mark.GetReason()
	}
	return text
}

// shares returns the table of an executor's resources, with a column for each role that has
// reserved resources.
func shares(e *berthv1.Executor) *Table {
	roles := slices.Sorted(maps.Keys(e.GetReserved()))
	t := table("RESOURCE", "TOTAL", "USED")
	for _, role := range roles {
		t.head = append(t.head, fmt.Sprintf("FOR %s", role))
	}
	for _, name := range slices.Sorted(maps.Keys(e.GetResources())) {
		row := []string{name, amount(name, e.GetResources()[name]), amount(name, e.GetUsed()[name])}
		for _, role := range roles {
			row = append(row, amount(name, e.GetReserved()[role].GetResources()[name]))
		}
		t.add(row...)
	}
	return t
}
