package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary describes samples. It is zero of none.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize sums samples up, percentiles by the nearest rank: each is a sample
// that was measured.
func Summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := func(percent int) float64 { return sorted[max(1, (len(sorted)*percent+99)/100)-1] }
	return Summary{N: len(sorted), Median: rank(50), P99: rank(99), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// millis is a duration in milliseconds, the unit of every duration here.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Figure is something measured, with every sample.
type Figure struct {
	Name string `json:"name"`
	// Unit is "ms", "s", "/s", "MB", or that of a number.
	Unit string `json:"unit"`
	Summary
	// Against is the name of the figure of the same workload that is its
	// baseline, and Ratio what it is of that: its median by the baseline's.
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Target  *Target `json:"target,omitempty"`
	// Samples are in the order in which they were taken.
	Samples []float64 `json:"samples"`
}

// Of is the part of a figure that a target is about.
type Of string

// The parts.
const (
	Median Of = "median"
	P99    Of = "p99"
	Ratio  Of = "ratio"
)

// Target is what a figure is to be: one part of it at most or at least so much,
// if that is not 0.
type Target struct {
	Of      Of      `json:"of,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
	// P99 bounds the 99th percentile as well, if it is given.
	P99 *float64 `json:"p99,omitempty"`
	// Max bounds every single sample, if it is given.
	Max *float64 `json:"max,omitempty"`
	Met bool     `json:"met"`
}

// judge says whether a figure is what it is to be.
func (t *Target) judge(f *Figure) {
	got := map[Of]float64{Median: f.Median, P99: f.P99, Ratio: f.Ratio}[t.Of]
	t.Met = f.N > 0 && (t.AtMost == 0 || got <= t.AtMost) && got >= t.AtLeast && within(f.P99, t.P99) && within(f.Max, t.Max)
}

// within says whether a value keeps a bound, if there is one.
func within(v float64, bound *float64) bool { return bound == nil || v <= *bound }

// String is the target as people read it.
func (t Target) String() string {
	var parts []string
	if t.AtMost != 0 {
		parts = append(parts, fmt.Sprintf("%s <= %s", t.Of, number(t.AtMost)))
	}
	if t.AtLeast != 0 {
		parts = append(parts, fmt.Sprintf("%s >= %s", t.Of, number(t.AtLeast)))
	}
	if t.P99 != nil {
		parts = append(parts, "p99 <= "+number(*t.P99))
	}
	if t.Max != nil {
		parts = append(parts, "max <= "+number(*t.Max))
	}
	return strings.Join(parts, ", ")
}
