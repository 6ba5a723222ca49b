package model

import "time"

// Histogram counts durations by size. It lets a core measure without a metrics library.
// The zero value is empty and ready to use.
type Histogram struct {
	// Counts[i] is the number of durations that are at most HistogramBounds[i] and above the
	// bound before it. The last element is the number of durations above all bounds.
	Counts [len(HistogramBounds) + 1]uint64
	// Sum is the sum of the durations.
	Sum time.Duration
}

// HistogramBounds has the upper bounds of the buckets. They cover all durations that
// Berth measures, from the duration of a transaction to the time that a batch is queued.
var HistogramBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
}

// Observe counts one duration. A negative duration counts as zero.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.Sum += d
	for i, bound := range HistogramBounds {
		if d <= bound {
			h.Counts[i]++
			return
		}
	}
	h.Counts[len(HistogramBounds)]++
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, count := range h.Counts {
		n += count
	}
	return n
}
