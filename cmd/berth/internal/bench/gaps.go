package bench

import (
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

// forget drops what went through long before a moment.
func (g *gaps) forget(before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for n < len(g.at)-1 && g.at[n+1].Before(before) {
		n++
	}
	g.at = append(g.at[:0], g.at[n:]...)
}
