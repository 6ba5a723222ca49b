package show

import (
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// TestColorFollowsTheResult checks that a reservation whose workers failed never looks like one
// whose workers all ended with exit code 0.
func TestColorFollowsTheResult(t *testing.T) {
	for _, test := range []struct {
		state       berthv1.Reservation_State
		counts      map[string]int32
		text, color string
	}{
		{berthv1.Reservation_COMPLETED, map[string]int32{"COMPLETED": 2}, "COMPLETED", green},
		{berthv1.Reservation_COMPLETED, map[string]int32{"FAILED": 2}, "COMPLETED, 2 failed", red},
		{berthv1.Reservation_COMPLETED, map[string]int32{"COMPLETED": 1, "LOST": 1}, "COMPLETED, 1 lost", red},
		{berthv1.Reservation_COMPLETED, map[string]int32{"FAILED": 1, "LOST": 1}, "COMPLETED, 1 failed, 1 lost", red},
		{berthv1.Reservation_COMPLETED, map[string]int32{"COMPLETED": 1, "EVICTED": 1}, "COMPLETED, 1 evicted", yellow},
		{berthv1.Reservation_ACTIVE, map[string]int32{"RUNNING": 1, "FAILED": 1}, "ACTIVE, 1 failed", yellow},
		{berthv1.Reservation_ACTIVE, map[string]int32{"RUNNING": 1, "EVICTED": 1}, "ACTIVE", green},
		{berthv1.Reservation_ACTIVE, map[string]int32{"RUNNING": 1, "QUEUED": 1}, "ACTIVE", green},
		{berthv1.Reservation_QUEUED, map[string]int32{"FAILED": 1}, "QUEUED", yellow},
		{berthv1.Reservation_FAILED, map[string]int32{"FAILED": 2}, "FAILED", red},
	} {
		r := &berthv1.Reservation{Job: "train", Stage: "gpu", Name: "main", State: test.state, Count: 2,
			WorkerCounts: test.counts}
		if text := Result(r); text != test.text {
			t.Errorf("%v %v: result %q, want %q", test.state, test.counts, text, test.text)
		}
		for _, wide := range []bool{false, true} {
			text := Reservations([]*berthv1.Reservation{r}, time.Now(), wide).Styled(Style{Color: true})
			if !strings.Contains(text, test.color+resultWord(r)+normal) {
				t.Errorf("%v %v: want %q in its color, got %q", test.state, test.counts, resultWord(r), text)
			}
		}
	}
}
