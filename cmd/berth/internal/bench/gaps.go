package bench

import (
	"slices"
	"sync"
	"time"
)

// gaps records the times of successes.
type gaps struct {
	mu sync.Mutex
	at []time.Time // in ascending order
}

// mark records a success now.
func (g *gaps) mark() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = append(g.at, time.Now())
}

// since reports whether there is a success after t.
func (g *gaps) since(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.at) > 0 && g.at[len(g.at)-1].After(t)
}

// longest returns the longest time without a success that overlaps the interval. That time
// may begin before the interval. Time after the interval does not count.
func (g *gaps) longest(from, to time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, longest := from, time.Duration(0)
	for _, at := range g.at {
		if at.After(to) {
			break
		}
		if !at.Before(from) {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return max(longest, to.Sub(last))
}

// waits records when calls were sent and ended.
type waits struct {
	mu  sync.Mutex
	all []*wait
}

// wait is one call; ended is zero while the call is in flight.
type wait struct{ sent, ended time.Time }

// begin records a call that is sent now. The caller must call ended after the call has
// returned.
func (w *waits) begin() (ended func()) {
	one := &wait{sent: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		one.ended = time.Now()
	}
}

// over reports whether all calls that were sent before a time have ended.
func (w *waits) over(sent time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.all, func(one *wait) bool { return one.ended.IsZero() && one.sent.Before(sent) })
}

// slowest returns the longest duration of the calls that ended between from and to,
// including calls that were sent before from.
func (w *waits) slowest(from, to time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := time.Duration(0)
	for _, one := range w.all {
		if !one.ended.IsZero() && !one.ended.Before(from) && !one.ended.After(to) {
			longest = max(longest, one.ended.Sub(one.sent))
		}
	}
	return longest
}
