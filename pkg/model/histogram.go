package model

import "time"

// Histogram counts durations by size. It lets a core measure without a metrics library.
// The zero value is empty and ready to use.
type Histogram struct {
	// Counts has the number of durations at or below each of HistogramBounds and above
	// the one before; the last counts those above all bounds.
	Counts [len(HistogramBounds) + 1]uint64
	// Sum is the sum of the durations.
	Sum time.Duration
}

// HistogramBounds are upper bounds for all durations of Berth, from that of a
// transaction to that of a queued batch.
var HistogramBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
}

// Observe counts one duration; a negative one counts as zero.
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
