package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// Describe returns the details of a reservation: its request, state, workers and last events.
func Describe(r *berthv1.Reservation, assignments []*berthv1.Assignment, events []*berthv1.Event,
	now time.Time) string {
	var b strings.Builder
	line := func(name, value string) { field(&b, name, value) }
	line("Reservation", reservationKey(r))
	line("State", standing(r))
	line("", rounds(r.GetMessage()))
	line("Version", fmt.Sprintf("uid %s, epoch %d", r.GetUid(), r.GetEpoch()))
	line("Parent", parent(r))
	line("Created", instant(r.GetCreatedAt(), now))
	line("Updated", instant(r.GetUpdatedAt(), now))
	line("Workers", requested(r))
	line("Worker IDs", workerRuns(r.GetWorkers()))
	line("Shrinks", r.GetShrink())
	line("Needs", constraints(r.GetConstraints()))
	line("Avoids", avoidedUntil(r.GetAvoided(), now))
	line("Priority", priority(r.GetPriority()))
	line("Starts", starts(r))
	line("Task", strings.Join(append([]string{r.GetTask().GetCommand()}, r.GetTask().GetArgs()...), " "))
	line("Env", pairs(r.GetTask().GetEnv()))
	line("Labels", pairs(r.GetLabels()))
	line("Begins", begins(r, now))
	line("Hold", hold(r))
	for i, text := range append(applied(r, berthv1.FieldResult_LATER), NotApplied(r)...) {
		if i == 0 {
			line("Latest", text)
		} else {
			fmt.Fprintf(&b, "%-13s%s\n", "", text)
		}
	}
	for i, text := range pools(r) {
		if i == 0 {
			line("Cells", text)
		} else {
			fmt.Fprintf(&b, "%-13s%s\n", "", text)
		}
	}
	line("Expires", expires(r, now))
	line("Lifetime", lifetime(r))
	line("Restarts", restarts(r))
	line("Stops", stops(r.GetTask()))
	line("Volume", requestedVolume(r))

	b.WriteString("\nAssignments\n")
	b.WriteString(cmp.Or(Assignments(assignments, now, false).text("  "), "  none\n"))
	lastEvents(&b, events, now)
	return b.String()
}

// delayed returns how many are delayed; empty for none.
func delayed(n int32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d delayed", n)
}

// Job returns the details of a job: its workers, reservations and last events.
func Job(j *berthv1.Job, reservations []*berthv1.Reservation, events []*berthv1.Event, now time.Time) string {
	var b strings.Builder
	field(&b, "Job", j.GetName())
	if j.GetReservations() == 0 {
		field(&b, "State", "all its reservations have ended")
	} else {
		field(&b, "Reservations", fmt.Sprintf("%d not ended, %d queued%s", j.GetReservations(), j.GetPendingReservations(),
			delayed(j.GetDelayedReservations())))
		field(&b, "Workers", fmt.Sprintf("%d pending%s, %d reserved, %d running, %d stopping", j.GetPendingWorkers(),
			delayed(j.GetDelayedWorkers()), j.GetReservedWorkers(), j.GetRunningWorkers(), j.GetStoppingWorkers()))
		field(&b, "Active", instant(j.GetLastActivity(), now))
	}
	b.WriteString("\nReservations\n" + cmp.Or(Reservations(reservations, now, false).text("  "), "  none\n"))
	lastEvents(&b, events, now)
	return b.String()
}

// lastEvents writes the last events of a description.
func lastEvents(b *strings.Builder, events []*berthv1.Event, now time.Time) {
	b.WriteString("\nLast events\n")
	for _, e := range events {
		b.WriteString("  " + Event(e, now) + "\n")
	}
	if len(events) == 0 {
		b.WriteString("  none stored\n")
	}
}

// field writes a line of a description. It omits an empty value.
func field(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%-13s%s\n", name, oneLine(value))
	}
}

// parent describes the origin of a reservation that Berth created from another: the uid
// of its parent, and how often its workers were requeued.
func parent(r *berthv1.Reservation) string {
	var parts []string
	if r.GetParent() != "" {
		parts = append(parts, "uid "+r.GetParent())
	}
	if r.GetRound() > 0 {
		parts = append(parts, "requeued "+times(r.GetRound()))
	}
	return strings.Join(parts, ", ")
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// starts describes the requested start of the batch.
func starts(r *berthv1.Reservation) string {
	var parts []string
	if r.GetBatch() != berthv1.Batch_BATCH_UNSPECIFIED {
		parts = append(parts, r.GetBatch().String())
	}
	if r.GetStart() != berthv1.Start_START_UNSPECIFIED {
		parts = append(parts, r.GetStart().String())
	}
	if r.GetOnAssignmentFailure() != berthv1.OnAssignmentFailure_ON_ASSIGNMENT_FAILURE_UNSPECIFIED {
		parts = append(parts, "on failure "+r.GetOnAssignmentFailure().String())
	}
	if r.MaxAttempts != nil {
		parts = append(parts, plural(int(r.GetMaxAttempts()), "attempt"))
	}
	return strings.Join(parts, ", ")
}

// begins describes when the reservation enters its queue, and when its workers are RUNNING.
func begins(r *berthv1.Reservation, now time.Time) string {
	var parts []string
	if r.GetNotBefore() != nil {
		parts = append(parts, "not before "+until(r.GetNotBefore(), now))
	}
	if r.GetTask().GetReadiness() == berthv1.Readiness_REPORTED {
		parts = append(parts, "workers report when they are ready")
	}
	if limit := r.GetTask().GetStartTimeout(); limit != nil {
		parts = append(parts, "start timeout "+Age(limit.AsDuration()))
	}
	return strings.Join(parts, ", ")
}

// expires describes when the reservation ends by itself.
func expires(r *berthv1.Reservation, now time.Time) string {
	var parts []string
	if r.GetExpiresAt() != nil {
		parts = append(parts, until(r.GetExpiresAt(), now))
	}
	if r.GetQueueTimeout() != nil {
		parts = append(parts, "after "+Age(r.GetQueueTimeout().AsDuration())+" in the queue")
	}
	return strings.Join(parts, ", ")
}

// pools describes what each cell answered that was asked about the reservation, in order of ID.
func pools(r *berthv1.Reservation) (texts []string) {
	for _, id := range slices.Sorted(maps.Keys(r.GetPools())) {
		cell := r.GetPools()[id]
		text := id + " " + cell.GetState().String()
		if cell.Rating != nil {
			text += fmt.Sprintf(", rating %d", cell.GetRating())
		}
		if cell.Reason != nil {
			text += ", " + cell.GetReason()
		}
		if cell.Message != nil {
			text += ": " + oneLine(cell.GetMessage())
		}
		texts = append(texts, text)
	}
	return texts
}

// hold describes the hold of a reservation and the rating of its executors.
func hold(r *berthv1.Reservation) string {
	if r.GetHold() != berthv1.Hold_HOLD {
		return ""
	}
	limit := "24h"
	if r.HoldTimeout != nil {
		limit = Age(r.GetHoldTimeout().AsDuration())
	}
	text := "expires " + limit + " after the grant"
	if r.HoldTimeout != nil && r.GetHoldTimeout().AsDuration() == 0 {
		text = "until bound or cancelled"
	}
	if r.Rating != nil {
		text += fmt.Sprintf(", rating %d", r.GetRating())
	}
	return text
}

func lifetime(r *berthv1.Reservation) string {
	l := r.GetLifetime()
	if l == nil {
		return ""
	}
	return Age(l.GetFor().AsDuration()) + " from " + l.GetFrom()
}

// stops describes how the workers are stopped, if not by SIGTERM.
func stops(t *berthv1.Task) string {
	if t.GetStopSignal() == "" {
		return ""
	}
	return t.GetStopSignal() + ", killed after " + Age(t.GetStopGrace().AsDuration())
}

// restarts describes which workers are queued again after their end.
func restarts(r *berthv1.Reservation) string {
	var parts []string
	if r.Restart != nil {
		parts = append(parts, r.GetRestart())
	}
	for _, codes := range []struct {
		how  string
		list []int32
	}{{"only after exit", r.GetRestartExitCodes().GetRetry()}, {"not after exit", r.GetRestartExitCodes().GetFail()}} {
		if len(codes.list) > 0 {
			parts = append(parts, codes.how+" "+indexes(codes.list))
		}
	}
	if r.OnWorkerLoss != nil {
		parts = append(parts, "on worker loss "+r.GetOnWorkerLoss())
	}
	if r.OnWorkerFailure != nil {
		parts = append(parts, "on worker failure "+r.GetOnWorkerFailure())
	}
	if len(r.GetCompletesWith()) > 0 {
		parts = append(parts, "completes with "+indexes(r.GetCompletesWith()))
	}
	if r.MaxRestarts != nil && r.GetRestart() != "ALWAYS" { // which has no limit
		parts = append(parts, fmt.Sprintf("at most %d in a row", r.GetMaxRestarts()))
	}
	if r.Requeue != nil {
		parts = append(parts, "queued again "+r.GetRequeue())
	}
	return strings.Join(parts, ", ")
}

// indexes formats a list of numbers.
func indexes(list []int32) string {
	var words []string
	for _, n := range list {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, " ")
}

// requestedVolume describes the volume that each worker index requests.
func requestedVolume(r *berthv1.Reservation) string {
	v := r.GetVolume()
	if v == nil {
		return ""
	}
	parts := []string{v.GetResource() + " " + amount(v.GetResource(), r.GetConstraints().GetResources()[v.GetResource()])}
	if v.OnLoss != nil {
		parts = append(parts, "on loss "+v.GetOnLoss())
	}
	if v.GetKeepFor() != nil {
		parts = append(parts, "kept for "+Age(v.GetKeepFor().AsDuration()))
	}
	return strings.Join(parts, ", ")
}

// until formats a time that may be ahead.
func until(at *timestamppb.Timestamp, now time.Time) string {
	if left := at.AsTime().Sub(now); left > 0 {
		return fmt.Sprintf("%s (in %s)", clock(at.AsTime(), now), Age(left))
	}
	return instant(at, now)
}

func standing(r *berthv1.Reservation) string {
	text := Result(r)
	if r.GetPosition() > 0 {
		text += fmt.Sprintf(", position %d", r.GetPosition())
	}
	if r.GetReason() != "" {
		text += ": " + r.GetReason()
	}
	return text
}

func requested(r *berthv1.Reservation) string {
	text := fmt.Sprint(workers(r))
	if r.GetTargetSize() > 0 {
		text += fmt.Sprintf(" of a stage of %d", r.GetTargetSize())
	}
	if counts := workerCounts(r, slices.Sorted(maps.Keys(r.GetWorkerCounts()))...); counts != "" {
		text += ": " + counts
	}
	return text
}

// workerCounts formats how many workers of a reservation have each of the given states.
func workerCounts(r *berthv1.Reservation, states ...string) string {
	var counts []string
	for _, word := range states {
		if n := r.GetWorkerCounts()[word]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return strings.Join(counts, ", ")
}

// workerRuns formats runs of consecutive indexes that have the same worker number:
// `0-3 number 1, 7 number 2`.
func workerRuns(list []*berthv1.WorkerID) string {
	ids := make([]model.WorkerID, len(list))
	for i, id := range list {
		ids[i] = model.WorkerID{Index: id.GetIndex(), Number: id.GetNumber()}
	}
	var parts []string
	for _, run := range model.WorkerSetOf(ids) {
		indexes := fmt.Sprint(run.First)
		if run.Last > run.First {
			indexes += fmt.Sprintf("-%d", run.Last)
		}
		parts = append(parts, fmt.Sprintf("%s number %d", indexes, run.Number))
	}
	return strings.Join(parts, ", ")
}

func priority(p *berthv1.Priority) string {
	var parts []string
	if p.GetClass() != berthv1.PriorityClass_PRIORITY_CLASS_UNSPECIFIED {
		parts = append(parts, "class "+p.GetClass().String())
	}
	if p.GetTier() != 0 {
		parts = append(parts, fmt.Sprintf("tier %d", p.GetTier()))
	}
	if p != nil && p.Order != nil {
		parts = append(parts, fmt.Sprintf("order %d", p.GetOrder()))
	}
	return strings.Join(parts, ", ")
}

func instant(at *timestamppb.Timestamp, now time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", clock(at.AsTime(), now), since(at, now))
}
