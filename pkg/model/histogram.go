package model

import "time"

// Histogram counts durations by size, so that a core can tell how long things
// took without knowing who asks. The zero value is empty and ready.
type Histogram struct {
	// Counts holds how many fell at or below each of HistogramBounds and above
	// the one before; the last counts what is above all.
	Counts [len(HistogramBounds) + 1]uint64
	// Sum of all that was observed.
	Sum time.Duration
}

// HistogramBounds are upper bounds that serve for all that Berth times: from
// what a transaction takes to what a batch may wait.
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

// Count is how many were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, count := range h.Counts {
		n += count
	}
	return n
}
