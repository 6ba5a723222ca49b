package bench

import (
	"testing"
	"time"
)

// The longest gap may have begun before the outage, and lasts to the end of what
// is looked at where nothing came any more.
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
		g.forget(at(tt.from))
		if got := g.longest(at(tt.from), at(tt.to)); got != time.Duration(tt.want)*time.Second {
			t.Errorf("%v from %d to %d, after forgetting: %v, want %d s", tt.marks, tt.from, tt.to, got, tt.want)
		}
	}
}
