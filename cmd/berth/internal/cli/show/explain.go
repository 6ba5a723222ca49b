package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// textWidth is the maximum width of lines.
const textWidth = 80

// Explain returns a text that explains why a reservation is pending. A table at the end
// lists the checks that unsuitable executors fail.
func Explain(e *berthv1.Explanation, now time.Time) string {
	if r := e.GetReservation(); e.GetPosition() == 0 {
		where := "not pending: it is " + Result(r)
		if r.GetState() == berthv1.Reservation_QUEUED {
			where = "not in its queue yet"
		}
		return paragraph(fmt.Sprintf("%s is %s. %s", reservationKey(r), where, because(e.GetReason(), e.GetMessage())))
	}
	text := paragraph(fits(e)+" "+position(e, now)) + paragraph(because(e.GetReason(), e.GetMessage()))
	if name := e.GetScarcestResource(); name != "" {
		text += paragraph(fmt.Sprintf("The scarcest resource is %s: workers are placed where the least of it remains.", name))
	}
	if avoided := e.GetReservation().GetAvoided(); len(avoided) > 0 {
		text += paragraph("It avoids " + avoidedUntil(avoided, now) + ".")
	}
	if e.GetMissing() == 0 || len(e.GetChecks()) == 0 {
		return text
	}
	var unfit int32
	t := table("CHECK", "WANTED", "FOUND", "EXECUTORS")
	for _, c := range e.GetChecks() {
		unfit += c.GetCount()
		want := measured(c.GetCheck(), c.GetWant())
		if c.GetByDefault() {
			want += byDefault
		}
		t.add(c.GetCheck(), want, measured(c.GetCheck(), c.GetHave()),
			fmt.Sprint(c.GetCount()))
	}
	worker := "worker"
	if e.GetFitting() > 0 {
		worker = "further worker"
	}
	return text + fmt.Sprintf("\nNo %s fits on %s now. Their first failed checks:\n", worker,
		plural(int(unfit), "executor")) + t.text("  ")
}

// avoidedUntil formats the executors that a reservation avoids.
func avoidedUntil(list []*berthv1.AvoidedExecutor, now time.Time) string {
	names := make([]string, 0, len(list))
	for _, a := range list {
		names = append(names, fmt.Sprintf("%s until %s", a.GetExecutor(), clock(a.GetUntil().AsTime(), now)))
	}
	return strings.Join(names, ", ")
}

// fits returns the sentence that tells how many workers fit now. If the explanation has no
// revision of the executors, the number is unknown and fits omits it. The message of such an
// explanation contains the reason.
func fits(e *berthv1.Explanation) string {
	text := reservationKey(e.GetReservation()) + " is pending"
	known := e.GetExecutorRevision() != 0
	switch {
	case e.GetPosition() == 1 && known:
		return fmt.Sprintf("%s: %s.", text, fitting(e))
	case e.GetPosition() == 1:
		return text + "."
	}
	text += fmt.Sprintf(" behind %s.", Key(e.GetHead().GetJob(), e.GetHead().GetStage(), e.GetHead().GetName()))
	if known {
		text += fmt.Sprintf(" Without the reservations ahead, %s.", fitting(e))
	}
	return text
}

// fitting describes how many workers would fit now.
func fitting(e *berthv1.Explanation) string {
	workers, alone := fmt.Sprintf("of its %d workers", e.GetNeeded()), e.GetNeeded() == 1
	switch {
	case e.GetMissing() == 0 && alone:
		return "its worker would fit now"
	case e.GetMissing() == 0:
		return "all " + workers + " would fit now"
	case e.GetFitting() == 0 && alone:
		return "its worker would not fit now"
	case e.GetFitting() == 0:
		return "none " + workers + " would fit now"
	}
	return fmt.Sprintf("%d %s would fit now, %d would not", e.GetFitting(), workers, e.GetMissing())
}

// position returns the sentence that tells the position in the queue.
func position(e *berthv1.Explanation, now time.Time) string {
	waited := "has waited " + Age(e.GetAge().AsDuration())
	headWaited := "has waited " + Age(e.GetHeadAge().AsDuration())
	var text string
	switch {
	case e.GetPosition() > 1:
		text = fmt.Sprintf("It is number %d of %d in group %s and %s; the head %s.",
			e.GetPosition(), e.GetQueued(), e.GetGroup(), waited, headWaited)
	case e.GetQueued() > 1:
		text = fmt.Sprintf("It is the head of %d in group %s and %s.", e.GetQueued(), e.GetGroup(), waited)
	default:
		text = fmt.Sprintf("It is the only reservation in group %s and %s.", e.GetGroup(), waited)
	}
	if e.GetTried() != nil {
		text += fmt.Sprintf(" Its last scheduling cycle was %s ago.", since(e.GetTried(), now))
	}
	return text
}

// because formats a reason and its message.
func because(reason, message string) string {
	return strings.TrimPrefix(strings.TrimSuffix(reason+": "+rounds(message), ": "), ": ")
}

// measured formats the value of a check in the unit of its resource.
func measured(check, value string) string {
	kind, resource, _ := strings.Cut(check, ".")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || kind != "free" && kind != "capacity" && kind != "full" {
		return value
	}
	return amount(resource, n)
}

// paragraph breaks a text into lines. It returns an empty text for an empty text.
func paragraph(text string) string { return indented("", text, textWidth) }

// indented breaks a text into lines of a width, at most textWidth, and indents each line.
func indented(indent, text string, width int) string {
	limit := textWidth
	if width > 0 {
		limit = min(limit, width)
	}
	return broken(indent, text, limit)
}

// broken breaks a text into lines that are not longer than the limit, unless a word is.
func broken(indent, text string, limit int) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(oneLine(text)) {
		n := len([]rune(word))
		switch {
		case width == 0:
			b.WriteString(indent)
			width = len(indent)
		case width+1+n > limit:
			b.WriteString("\n" + indent)
			width = len(indent)
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String() + "\n"
}
