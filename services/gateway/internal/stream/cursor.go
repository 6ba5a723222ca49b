package stream

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Cursor is a position in a job's stream: the etcd revision that wrote an event, and the
// event's index among the events of that revision. The zero Cursor is before all events.
type Cursor struct {
	Revision, Index int64
}

// ParseCursor parses a result of String. The empty string is the zero Cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	revision, index, _ := strings.Cut(text, "-")
	r, errR := strconv.ParseUint(revision, 10, 63)
	i, errI := strconv.ParseUint(index, 10, 63)
	c := Cursor{int64(r), int64(i)}
	// Each position has exactly one valid text, without signs or leading zeros.
	if errR != nil || errI != nil || c.String() != text {
		return Cursor{}, fault.BadField(fault.ReasonInvalid, "since", "%q is not the cursor of an event", text)
	}
	return c, nil
}

func (c Cursor) String() string { return fmt.Sprintf("%d-%d", c.Revision, c.Index) }

// Compare returns a negative number if c is before d, a positive number if c is after d, and
// 0 if they are equal.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(c.Revision, d.Revision), cmp.Compare(c.Index, d.Index))
}

// CursorOf returns the position of an event that a Reader has returned.
func CursorOf(e *berthv1.Event) Cursor {
	c, _ := ParseCursor(e.GetCursor())
	return c
}
