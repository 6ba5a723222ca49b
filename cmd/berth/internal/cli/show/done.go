package show

import (
	"fmt"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Applied returns the line that reports the result of an upsert or a bind.
func Applied(r *berthv1.Reservation) string {
	text := fmt.Sprintf("%s %s uid %s", reservationKey(r), r.GetChange(), r.GetUid())
	if r.GetPosition() > 0 {
		text = fmt.Sprintf("%s position %d", text, r.GetPosition())
	} else {
		text += " " + state(r.GetState())
	}
	now := applied(r, berthv1.FieldResult_NOW)
	if r.GetChange() == berthv1.UpsertReservationRequest_UPDATED && len(now) > 0 {
		text += "\n  applies now: " + strings.Join(now, ", ")
	}
	for _, line := range append(applied(r, berthv1.FieldResult_LATER), applied(r, berthv1.FieldResult_NO)...) {
		text += "\n  " + line
	}
	return text
}

// applied describes the fields of the latest request that apply to the given workers.
func applied(r *berthv1.Reservation, to berthv1.FieldResult_Applies) (lines []string) {
	for _, f := range r.GetFieldResults() {
		switch {
		case f.GetApplies() != to:
		case to == berthv1.FieldResult_NOW:
			lines = append(lines, f.GetField())
		case to == berthv1.FieldResult_LATER:
			lines = append(lines, f.GetField()+" applies later: "+f.GetMessage())
		case to == berthv1.FieldResult_NO:
			lines = append(lines, f.GetField()+" does not apply: "+f.GetMessage())
		}
	}
	return lines
}

// NotApplied describes the fields of the latest request that do not apply.
func NotApplied(r *berthv1.Reservation) []string { return applied(r, berthv1.FieldResult_NO) }

// Counted returns the line that reports how many objects a command changed.
func Counted(what, done string, count int, one, none string) string {
	if count == 0 {
		return fmt.Sprintf("%s: %s", what, none)
	}
	return fmt.Sprintf("%s: %s %s", what, done, plural(count, one))
}

// Signalled returns the lines that report which workers got a signal, and which did not.
func Signalled(what, signal string, answer *berthv1.SignalWorkersAnswer) string {
	text := Counted(what, "sent "+signal+" to", int(answer.GetSignalled()), "worker", "sent "+signal+" to no worker")
	for _, f := range answer.GetFailed() {
		text += fmt.Sprintf("\n  not sent to %d", f.GetWorker().GetIndex())
		if n := f.GetWorker().GetNumber(); n > 0 {
			text += fmt.Sprintf(".%d", n)
		}
		text += fmt.Sprintf(": %s: %s", f.GetReason(), oneLine(f.GetMessage()))
	}
	if more := int(answer.GetFailedCount()) - len(answer.GetFailed()); more > 0 {
		text += fmt.Sprintf("\n  not sent to %d more", more)
	}
	return text
}

// Resigned returns the line that reports the old and the new leader.
func Resigned(answer *berthv1.ResignAnswer, next *berthv1.ServiceLeadership) string {
	ended := fmt.Sprintf("%s resigned term %d", answer.GetReplica(), answer.GetTerm())
	if answer.GetReplica() == "" {
		ended = fmt.Sprintf("term %d had already ended", answer.GetTerm())
	}
	return fmt.Sprintf("%s: %s; %s leads in term %d", answer.GetService(), ended, next.GetLeader(), next.GetTerm())
}

// Ready returns the line that reports when the registry became ready.
func Ready(since, now time.Time) string {
	return fmt.Sprintf("the registry has been ready since %s (%s ago)", clock(since, now), Age(now.Sub(since)))
}

// Disabled returns the line that reports a request to disable executors.
func Disabled(answer *berthv1.DisableExecutorsAnswer, expire, now time.Time) string {
	text := fmt.Sprintf("request %s disables %s", answer.GetRequestId(), plural(int(answer.GetExecutors()), "executor"))
	if !expire.IsZero() {
		text += " until " + clock(expire, now)
	}
	return text
}

// Enabled returns the line that reports the number of undone requests.
func Enabled(count int) string {
	if count == 0 {
		return "nothing to undo"
	}
	return fmt.Sprintf("undid %s to disable or drain", plural(count, "request"))
}

// Held returns the line that reports until when the scaling of a SKU is held.
func Held(sku *berthv1.Sku, now time.Time) string {
	if until := heldUntil(sku, now); !until.IsZero() {
		return fmt.Sprintf("sku %s: scaling is held until %s", sku.GetName(), clock(until, now))
	}
	return fmt.Sprintf("sku %s: scaling is not held", sku.GetName())
}

// Draining returns the line that reports the progress of a drain, and the volumes that stay.
func Draining(e *berthv1.Executor) string {
	stay := ""
	if n := e.GetVolumes(); n > 0 {
		verb := "stay"
		if n == 1 {
			verb = "stays"
		}
		stay = fmt.Sprintf("; %s %s: berth get volumes --executor %s", plural(int(n), "volume"), verb, e.GetId())
	}
	if e.GetWorkers() == 0 {
		return fmt.Sprintf("%s: drained%s", e.GetId(), stay)
	}
	return fmt.Sprintf("%s: %s left%s", e.GetId(), plural(int(e.GetWorkers()), "worker"), stay)
}

// clock formats a time in the location of now.
func clock(at, now time.Time) string { return at.In(now.Location()).Format(time.RFC3339) }
