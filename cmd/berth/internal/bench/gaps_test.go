package bench

import (
	"testing"
	"time"
)

// TestLongestGap checks that the longest gap may begin before the outage. If nothing
// succeeds any more, the gap ends with the interval.
func TestLongestGap(t *testing.T) {
	base := time.Unix(1000, 0)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		marks          []int
		from, to, want int
	}{
		{nil, 10, 15, 5},
		{[]int{1, 8, 12, 13, 16}, 10, 15, 4},  // 8 to 12
		{[]int{9, 10, 11, 14, 20}, 10, 15, 3}, // 11 to 14
		{[]int{9, 11}, 10, 15, 4},             // 11 to the end
		{[]int{20}, 10, 15, 5},
	} {
		g := &gaps{}
		for _, s := range tt.marks {
			g.at = append(g.at, at(s))
		}
		if got := g.longest(at(tt.from), at(tt.to)); got != time.Duration(tt.want)*time.Second {
			t.Errorf("%v from %d to %d: %v, want %d s", tt.marks, tt.from, tt.to, got, tt.want)
		}
	}
}

// TestSlowestCall checks that the slowest call of an outage is a call that ended during
// the outage, and that over reports whether calls hang.
func TestSlowestCall(t *testing.T) {
	base := time.Unix(1000, 0)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	hangs := &wait{sent: at(12)}
	w := &waits{all: []*wait{
		{sent: at(1), ended: at(9)},   // before the interval
		{sent: at(9), ended: at(12)},  // sent before the interval
		{sent: at(13), ended: at(14)}, // during the interval
		{sent: at(13), ended: at(21)}, // ended after the interval
		hangs,
	}}
	if got := w.slowest(at(10), at(20)); got != 3*time.Second {
		t.Errorf("the slowest took %v, want 3s", got)
	}
	if !w.over(at(12)) || w.over(at(13)) {
		t.Error("over must report the call that was sent at 12 and no earlier call")
	}
	hangs.ended = at(20)
	if !w.over(at(13)) {
		t.Error("over is false after all calls have ended")
	}
	if got := w.slowest(at(10), at(20)); got != 8*time.Second {
		t.Errorf("the slowest took %v, want 8s", got)
	}
}

// TestCallsInFlight checks that a call is in flight from begin until ended is called.
func TestCallsInFlight(t *testing.T) {
	var w waits
	from := time.Now()
	one, other := w.begin(), w.begin()
	one()
	if w.over(time.Now()) || w.slowest(from, time.Now()) <= 0 {
		t.Errorf("want one ended and one open call, got %+v", w.all)
	}
	other()
	if !w.over(time.Now()) {
		t.Error("over is false after both calls have ended")
	}
}
