package show

import (
	"fmt"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// The widths of columns. kindWidth is the length of the longest kind of event. placeWidth
// fits a stage and a reservation name of usual length.
const (
	kindWidth  = len("RESERVATION_CANCELLED")
	placeWidth = len("stage-1/replace-3-2")
)

// namedWorkers is the maximum number of workers that the line of an event names. If the
// event has more workers, the line has only their number.
const namedWorkers = 3

// CutEvent returns the line of an event that fits a width; 0 is any width.
func CutEvent(e *berthv1.Event, now time.Time, width int) string { return cut(Event(e, now), width) }

// Event returns the line of an event, without a newline. Lines are printed as the events
// arrive, so the columns have fixed widths.
func Event(e *berthv1.Event, now time.Time) string {
	at := e.GetTime().AsTime().In(now.Location())
	clock := at.Format(time.DateTime)
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) { // today
		clock = at.Format(time.TimeOnly)
	}
	parts := []string{clock, fmt.Sprintf("%-*s", kindWidth, e.GetKind()), fmt.Sprintf("%-*s", placeWidth, place(e))}
	if text := eventWorkers(e); text != "" {
		parts = append(parts, text)
	}
	if e.GetReason() != "" {
		parts = append(parts, e.GetReason())
	}
	if e.GetMessage() != "" {
		parts = append(parts, oneLine(LastRound(e.GetMessage())))
	}
	return strings.TrimRight(strings.Join(parts, columnGap), " ")
}

// place returns the stage and the name of the reservation. It omits the job, because all
// lines have the same job.
func place(e *berthv1.Event) string {
	return strings.TrimSuffix(e.GetStage()+"/"+e.GetReservation(), "/")
}

func eventWorkers(e *berthv1.Event) string {
	count := max(int(e.GetCount()), len(e.GetWorkers()))
	if len(e.GetWorkers()) == 0 || count > namedWorkers {
		if count == 0 {
			return ""
		}
		return plural(count, "worker")
	}
	var list []string
	for _, w := range e.GetWorkers() {
		text := fmt.Sprintf("%d.%d", w.GetIndex(), w.GetNumber())
		if w.GetNumber() == 0 { // an event about a volume
			text = fmt.Sprint(w.GetIndex())
		}
		if w.GetExecutor() != "" {
			text += " on " + w.GetExecutor()
		}
		if w.ExitCode != nil {
			text += fmt.Sprintf(" exit %d", w.GetExitCode())
		}
		if w.GetMessage() != "" {
			text += " (" + w.GetMessage() + ")"
		}
		if w.GetReason() != "" && w.GetReason() != e.GetReason() {
			text += " " + w.GetReason()
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
