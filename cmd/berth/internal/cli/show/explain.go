package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// textWidth is how wide sentences get.
const textWidth = 80

// Explain says why a reservation waits: sentences first, then what the
// executors that it cannot use fail at.
func Explain(e *berthv1.Explanation, now time.Time) string {
	if e.GetPosition() == 0 {
		return paragraph(settled(e))
	}
	text := paragraph(fits(e)) + paragraph(turn(e, now))
	if e.GetReason() != "" {
		text += paragraph(because(e.GetReason(), e.GetMessage()))
	}
	if len(e.GetChecks()) == 0 {
		return text
	}
	var unfit int32
	t := table("CHECK", "WANTED", "FOUND", "EXECUTORS")
	for _, c := range e.GetChecks() {
		unfit += c.GetCount()
		t.add(c.GetCheck(), measured(c.GetCheck(), c.GetWant()), measured(c.GetCheck(), c.GetHave()), fmt.Sprint(c.GetCount()))
	}
	return text + fmt.Sprintf("\n%s cannot take a worker of it now. What each fails at first:\n", plural(int(unfit), "executor")) + t.text("  ")
}

// settled is the sentence about a reservation that does not queue.
func settled(e *berthv1.Explanation) string {
	r := e.GetReservation()
	text := fmt.Sprintf("%s does not wait: it is %s.", reservationKey(r), state(r.GetState()))
	if e.GetReason() != "" || e.GetMessage() != "" {
		text += " " + because(e.GetReason(), e.GetMessage())
	}
	return text
}

// fits is the sentence about what would fit now. An explanation without the
// revision of the executors knows nothing of that.
func fits(e *berthv1.Explanation) string {
	text := fmt.Sprintf("%s waits for %s", reservationKey(e.GetReservation()), plural(int(e.GetNeeded()), "worker"))
	switch {
	case e.GetExecutorRevision() == 0:
		return text + "; how many of them would fit now is not known."
	case e.GetMissing() == 0:
		return text + ", and all of them would fit now."
	case e.GetFitting() == 0:
		return text + ", of which none would fit now."
	}
	return text + fmt.Sprintf(", of which %d would fit now and %d would not.", e.GetFitting(), e.GetMissing())
}

// turn is the sentence about the place in the queue.
func turn(e *berthv1.Explanation, now time.Time) string {
	var text string
	switch {
	case e.GetPosition() > 1:
		head := e.GetHead()
		text = fmt.Sprintf("It is number %d of %d in group %s and has waited %s. The head, %s, has waited %s.",
			e.GetPosition(), e.GetQueued(), e.GetGroup(), Age(e.GetWaited().AsDuration()),
			Key(head.GetJob(), head.GetStage(), head.GetName()), Age(e.GetHeadWaited().AsDuration()))
	case e.GetQueued() > 1:
		text = fmt.Sprintf("It is the head of %d in group %s and has waited %s.", e.GetQueued(), e.GetGroup(), Age(e.GetWaited().AsDuration()))
	default:
		text = fmt.Sprintf("It is alone in group %s and has waited %s.", e.GetGroup(), Age(e.GetWaited().AsDuration()))
	}
	if e.GetTried() != nil {
		text += fmt.Sprintf(" It was last tried %s ago.", since(e.GetTried(), now))
	}
	return text
}

// because writes a reason and its sentence.
func because(reason, message string) string {
	return strings.TrimPrefix(strings.TrimSuffix(reason+": "+message, ": "), ": ")
}

// measured writes the value of a check in the unit of its resource.
func measured(check, value string) string {
	kind, resource, _ := strings.Cut(check, ".")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || kind != "free" && kind != "capacity" {
		return value
	}
	return amount(resource, n)
}

// paragraph breaks a text between words where it gets too wide.
func paragraph(text string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(oneLine(text)) {
		n := len([]rune(word))
		switch {
		case width == 0:
		case width+1+n > textWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String() + "\n"
}
