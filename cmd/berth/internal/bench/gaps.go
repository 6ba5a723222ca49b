package bench

import (
	"slices"
	"sync"
	"time"
)

// gaps are the moments at which something went through, for who asks how long
// nothing did.
type gaps struct {
	mu sync.Mutex
	at []time.Time // rising
}

// mark notes that something went through now.
func (g *gaps) mark() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = append(g.at, time.Now())
}

// since says whether something went through after a moment.
func (g *gaps) since(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.at) > 0 && g.at[len(g.at)-1].After(t)
}

// longest is the longest time without anything that has a part between from and
// to: it may have begun before, and ends with to where nothing came any more.
func (g *gaps) longest(from, to time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, longest := from, time.Duration(0)
	for _, at := range g.at {
		switch {
		case at.Before(from):
			last = at
			continue
		case at.After(to):
			return max(longest, to.Sub(last))
		}
		longest = max(longest, at.Sub(last))
		last = at
	}
	return max(longest, to.Sub(last))
}

// waits are when calls were asked and ended, for who asks which was the slowest.
type waits struct {
	mu  sync.Mutex
	all []*wait
}

// wait is that of one call; ended is zero while it is under way.
type wait struct{ asked, ended time.Time }

// begin notes a call that is asked now, until the answer is called.
func (w *waits) begin() (ended func()) {
	one := &wait{asked: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		one.ended = time.Now()
	}
}

// over says whether all calls have ended that were asked before a moment.
func (w *waits) over(asked time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.all, func(one *wait) bool { return one.ended.IsZero() && one.asked.Before(asked) })
}

// slowest is how long the slowest took of the calls that ended between from and to,
// from when it was asked, which may be before.
func (w *waits) slowest(from, to time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := time.Duration(0)
	for _, one := range w.all {
		if !one.ended.IsZero() && !one.ended.Before(from) && !one.ended.After(to) {
			longest = max(longest, one.ended.Sub(one.asked))
		}
	}
	return longest
}

// forget drops the calls that ended before a moment.
func (w *waits) forget(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(one *wait) bool { return !one.ended.IsZero() && one.ended.Before(before) })
}
