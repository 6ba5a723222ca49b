package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary describes samples. If there are no samples, it is the zero value.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns the summary of samples. It uses the nearest-rank method, so every
// percentile is a measured sample.
func Summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := func(percent int) float64 { return sorted[max(1, (len(sorted)*percent+99)/100)-1] }
	return Summary{N: len(sorted), Median: rank(50), P99: rank(99), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// millis returns a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Figure is a measured quantity with all its samples.
type Figure struct {
	Name string `json:"name"`
	// Unit is "ms", "s", "/s", "MB", or empty for a number without a unit.
	Unit string `json:"unit"`
	Summary
	// Against is the name of the baseline, a figure of the same workload. Ratio is the
	// median divided by the median of the baseline.
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Target  *Target `json:"target,omitempty"`
	// Samples are in the order in which they were measured.
	Samples []float64 `json:"samples"`
}

// Of is the part of a figure that a target bounds.
type Of string

// The parts of a figure.
const (
	Median Of = "median"
	Ratio  Of = "ratio"
)

// Target bounds a figure. AtMost and AtLeast, unless 0, bound the part of the figure that Of
// names.
type Target struct {
	Of      Of      `json:"of,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
	// P99 bounds the 99th percentile, unless P99 is nil.
	P99 *float64 `json:"p99,omitempty"`
	// Max bounds every sample, unless Max is nil.
	Max *float64 `json:"max,omitempty"`
	Met bool     `json:"met"`
}

// evaluate sets Met. A figure without samples misses its target.
func (t *Target) evaluate(f *Figure) {
	got := map[Of]float64{Median: f.Median, Ratio: f.Ratio}[t.Of]
	t.Met = f.N > 0 && (t.AtMost == 0 || got <= t.AtMost) && got >= t.AtLeast && (t.P99 == nil || f.P99 <= *t.P99) &&
		(t.Max == nil || f.Max <= *t.Max)
}

func (t *Target) verdict() string {
	if t.Met {
		return "met"
	}
	return "MISSED"
}

// String returns the bounds, separated by commas.
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
