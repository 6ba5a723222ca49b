package stream

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Cursor is a place in a job's stream: the etcd revision that wrote an event,
// and the event's number among those of that revision. The zero Cursor is
// before everything.
type Cursor struct {
	Revision, Index int64
}

// ParseCursor reads what String wrote; the empty string is the zero Cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	revision, index, _ := strings.Cut(text, "-")
	r, errR := strconv.ParseUint(revision, 10, 63)
	i, errI := strconv.ParseUint(index, 10, 63)
	c := Cursor{int64(r), int64(i)}
	// One place has one cursor: signs and leading zeros are no part of any.
	if errR != nil || errI != nil || c.String() != text {
		return Cursor{}, fault.BadField(fault.ReasonInvalid, "since", "%q is not the cursor of an event", text)
	}
	return c, nil
}

func (c Cursor) String() string { return fmt.Sprintf("%d-%d", c.Revision, c.Index) }

// Compare is negative when c is before d, and positive when it is after.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(c.Revision, d.Revision), cmp.Compare(c.Index, d.Index))
}

// CursorOf is the place of an event that a Reader gave.
func CursorOf(e *berthv1.Event) Cursor {
	c, _ := ParseCursor(e.GetCursor())
	return c
}
