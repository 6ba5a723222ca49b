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

// ParseCursor parses the result of String. The empty string is the zero Cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	revision, index, _ := strings.Cut(text, "-")
	r, errR := strconv.ParseUint(revision, 10, 63)
	i, errI := strconv.ParseUint(index, 10, 63)
	c := Cursor{int64(r), int64(i)}
	// Each position has one cursor, without signs or leading zeros.
	if errR != nil || errI != nil || c.String() != text {
		return Cursor{}, fault.BadField(fault.ReasonInvalid, "since", "%q is not the cursor of an event", text)
	}
	return c, nil
}

func (c Cursor) String() string { return fmt.Sprintf("%d-%d", c.Revision, c.Index) }

// Compare is negative if c is before d, and positive if it is after d.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(c.Revision, d.Revision), cmp.Compare(c.Index, d.Index))
}

// CursorOf returns the position of an event from a Reader.
func CursorOf(e *berthv1.Event) Cursor {
	c, _ := ParseCursor(e.GetCursor())
	return c
}
