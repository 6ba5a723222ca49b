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
)

// Describe tells all of one reservation: what was asked, where it stands, its
// workers and what happened last.
func Describe(r *berthv1.Reservation, assignments []*berthv1.Assignment, events []*berthv1.Event, now time.Time) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s%s\n", name, oneLine(value))
		}
	}
	line("Reservation", reservationKey(r))
	line("State", standing(r))
	line("", r.GetMessage())
	line("Version", fmt.Sprintf("uid %s, epoch %d", r.GetUid(), r.GetEpoch()))
	line("Created", instant(r.GetCreatedAt(), now))
	line("Updated", instant(r.GetUpdatedAt(), now))
	line("Workers", asked(r))
	line("Seats", seats(r.GetWorkers()))
	line("Needs", constraints(r.GetConstraints()))
	line("Priority", priority(r.GetPriority()))
	line("Task", strings.Join(append([]string{r.GetTask().GetCommand()}, r.GetTask().GetArgs()...), " "))
	line("Env", pairs(r.GetTask().GetEnv()))
	line("Labels", pairs(r.GetLabels()))
	if r.GetQueueTimeout() != nil {
		line("Expires", "when it has waited "+Age(r.GetQueueTimeout().AsDuration()))
	}

	b.WriteString("\nAssignments\n")
	b.WriteString(cmp.Or(Assignments(assignments, now, false).text("  "), "  none: no worker has been handed out\n"))
	b.WriteString("\nLast events\n")
	for _, e := range events {
		b.WriteString("  " + Event(e, now) + "\n")
	}
	if len(events) == 0 {
		b.WriteString("  none kept\n")
	}
	return b.String()
}

func standing(r *berthv1.Reservation) string {
	text := state(r.GetState())
	if r.GetPosition() > 0 {
		text += fmt.Sprintf(", position %d", r.GetPosition())
	}
	if r.GetReason() != "" {
		text += ": " + r.GetReason()
	}
	return text
}

func asked(r *berthv1.Reservation) string {
	text := fmt.Sprint(workers(r))
	if r.GetTargetSize() > 0 {
		text += fmt.Sprintf(" of a stage of %d", r.GetTargetSize())
	}
	var counts []string
	for _, word := range slices.Sorted(maps.Keys(r.GetWorkerCounts())) {
		if n := r.GetWorkerCounts()[word]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if len(counts) > 0 {
		text += ": " + strings.Join(counts, ", ")
	}
	return text
}

// seats writes runs of neighbours with one number: `0-3 number 1, 7 number 2`.
func seats(list []*berthv1.Seat) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].GetIndex() == list[j-1].GetIndex()+1 && list[j].GetNumber() == list[i].GetNumber() {
			j++
		}
		run := fmt.Sprint(list[i].GetIndex())
		if j > i+1 {
			run += fmt.Sprintf("-%d", list[j-1].GetIndex())
		}
		parts = append(parts, fmt.Sprintf("%s number %d", run, list[i].GetNumber()))
		i = j
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
	return fmt.Sprintf("%s (%s ago)", at.AsTime().In(now.Location()).Format(time.RFC3339), since(at, now))
}
