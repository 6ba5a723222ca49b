package stream_test

import (
	"testing"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/stream"
	_ "berth.dev/testkit/fixedseed"
)

func TestParseCursorParsesString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := stream.Cursor{Revision: rapid.Int64Min(0).Draw(t, "revision"), Index: rapid.Int64Min(0).Draw(t, "index")}
		if got, err := stream.ParseCursor(c.String()); err != nil || got != c {
			t.Fatalf("%v became %v, %v", c, got, err)
		}
	})
}

func TestTheEmptyCursorIsTheStart(t *testing.T) {
	for _, text := range []string{"", "0-0"} {
		if got, err := stream.ParseCursor(text); err != nil || got != (stream.Cursor{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestABadCursorNamesTheField(t *testing.T) {
	for _, text := range []string{"x", "7", "7-", "-7", "7--1", "+7-1", "07-1", "7-01", "7-1-1", " 7-1",
		"9223372036854775808-0"} {
		_, err := stream.ParseCursor(text)
		f := fault.Of(err)
		if err == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != "since" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCursorsAreOrderedByRevisionThenIndex(t *testing.T) {
	ordered := []stream.Cursor{{}, {Revision: 1, Index: 10}, {Revision: 2}, {Revision: 2, Index: 9},
		{Revision: 2, Index: 10}, {Revision: 10}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%v to %v: %d", a, b, got)
			}
		}
	}
}
