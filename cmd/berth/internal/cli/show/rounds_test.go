package show

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
)

func TestRoundsAreShownOnce(t *testing.T) {
	same := "round 1: worker 0.1 on a-0: exited with 3; round 2: worker 0.2 on a-1: exited with 3; " +
		"round 3: worker 0.3 on a-0: exited with 3"
	other := "round 1: worker 0.1 on a-0: exited with 3; round 2: worker 0.2 on a-1: signal 9; out of memory"
	for message, want := range map[string][2]string{
		same:                                  {"3 rounds, last: exited with 3", "3 rounds, last: exited with 3"},
		other:                                 {"2 rounds, last: signal 9; out of memory", other},
		"until noon; " + same:                 {"until noon; 3 rounds, last: exited with 3", "until noon; 3 rounds, last: exited with 3"},
		"…0.9 on a-0: exited with 3; " + same: {"… 3 rounds, last: exited with 3", "… 3 rounds, last: exited with 3"},
		"round 1: x":                          {"round 1: x", "round 1: x"},
		"moved: worker 0.1 on a-0: DRAINING; moved: worker 0.2 on a-1: DRAINING": {"2 moves, last: DRAINING",
			"2 moves, last: DRAINING"},
		"round 1: x; moved: worker 0.1 on a-0: DRAINING": {"1 round and 1 move, last: DRAINING",
			"round 1: x; moved: worker 0.1 on a-0: DRAINING"},
		"needs 2 now": {"needs 2 now", "needs 2 now"},
	} {
		if got := [2]string{LastRound(message), rounds(message)}; got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
	found := Findings([]*berthv1.Finding{{Kind: "GAVE_UP", Object: "train/gpu/main", Message: same}}, time.Now(), false)
	if text := found.String(); !strings.Contains(text, "3 rounds, last: exited with 3") ||
		strings.Contains(text, "round 1") {
		t.Error(text)
	}
}

func TestEventsHaveDatesUnlessTheyAreOfToday(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{now: "00:10:00", now.Add(-time.Hour): "2026-03-01 23:10:00",
		now.Add(48 * time.Hour): "2026-03-04 00:10:00"} {
		if line := Event(&berthv1.Event{Time: timestamppb.New(at)}, now); !strings.HasPrefix(line, want+" ") {
			t.Errorf("%v: %q", at, line)
		}
	}
}

// TestLinesAreCutAtTheRight checks that a table that is wider than the terminal keeps its first
// columns whole, so that names can be copied.
func TestLinesAreCutAtTheRight(t *testing.T) {
	table := table("NAME", "STATE", "MESSAGE")
	table.add("a-long-name/of-a/stage", "ACTIVE,FAILED", "a message that is longer than the terminal is wide")
	text := table.Styled(Style{Width: 50, Cut: true})
	want := "NAME                    STATE          MESSAGE\na-long-name/of-a/stage  ACTIVE,FAILED  a message …\n"
	if text != want {
		t.Errorf("%q", text)
	}
	if text := table.Styled(Style{Width: 20, Cut: true}); text != "NAME\na-long-name/of-a/st…\n" {
		t.Errorf("%q", text)
	}
}
