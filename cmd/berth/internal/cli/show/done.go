package show

import (
	"fmt"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Applied is the line that says what an upsert did.
func Applied(r *berthv1.Reservation) string {
	text := fmt.Sprintf("%s %s uid %s", reservationKey(r), r.GetChange(), r.GetUid())
	if r.GetPosition() > 0 {
		return fmt.Sprintf("%s position %d", text, r.GetPosition())
	}
	return text + " " + state(r.GetState())
}

// Counted is the line that says how many objects a command changed, or that there was
// none.
func Counted(what, done string, count int, one, none string) string {
	if count == 0 {
		return fmt.Sprintf("%s: %s", what, none)
	}
	return fmt.Sprintf("%s: %s %s", what, done, plural(count, one))
}

// Resigned is the line that says who gave way to whom.
func Resigned(answer *berthv1.ResignAnswer, next *berthv1.ServiceLeadership) string {
	if answer.GetReplica() == "" {
		return fmt.Sprintf("%s: term %d was over already; %s leads in term %d", answer.GetService(), answer.GetTerm(), next.GetLeader(), next.GetTerm())
	}
	return fmt.Sprintf("%s: %s resigned term %d; %s leads in term %d", answer.GetService(), answer.GetReplica(), answer.GetTerm(), next.GetLeader(), next.GetTerm())
}

// Ready is the line that says since when the registry is ready.
func Ready(since, now time.Time) string {
	return fmt.Sprintf("the registry is ready since %s (%s ago)", clock(since, now), Age(now.Sub(since)))
}

// Disabled is the line that says what a request to disable holds.
func Disabled(answer *berthv1.DisableExecutorsAnswer, expire, now time.Time) string {
	text := fmt.Sprintf("request %s disables %s", answer.GetRequestId(), plural(int(answer.GetExecutors()), "executor"))
	if !expire.IsZero() {
		text += " until " + clock(expire, now)
	}
	return text
}

// Enabled is the line that says how many requests were undone.
func Enabled(count int) string {
	if count == 0 {
		return "nothing to undo"
	}
	return "undone: " + plural(count, "request")
}

// Draining is the line that says how far a drain is.
func Draining(e *berthv1.Executor) string {
	if e.GetWorkers() == 0 {
		return fmt.Sprintf("%s: drained", e.GetId())
	}
	return fmt.Sprintf("%s: %s left", e.GetId(), plural(int(e.GetWorkers()), "worker"))
}

// clock writes a time in the location of now.
func clock(at, now time.Time) string { return at.In(now.Location()).Format(time.RFC3339) }
