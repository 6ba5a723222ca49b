package loop

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// maxPanics bounds how many panics of peer handlers are kept as findings, and
	// panicAge how long each of them is after it last happened.
	maxPanics = 100
	panicAge  = time.Hour
)

// panics are the panics of goroutines that handle peers. Such a goroutine must not
// take the process down: what one peer sends would stop the service for all others.
type panics struct {
	log *slog.Logger
	mu  sync.Mutex
	all map[panicked]*occurrences
}

type panicked struct{ peer, what string }

type occurrences struct {
	first, last time.Time
	n           int
}

func newPanics(log *slog.Logger) *panics { return &panics{log: log, all: map[panicked]*occurrences{}} }

// guard calls fn. It reports whether fn returned; a panic is logged, and kept as a
// finding about the peer.
func (p *panics) guard(peer string, fn func()) (returned bool) {
	defer func() {
		what := recover()
		if returned {
			return
		}
		// A call of runtime.Goexit recovers nothing, and is no panic.
		if what != nil {
			p.add(peer, clip(fmt.Sprint(what), maxPanic), string(debug.Stack()))
		}
	}()
	fn()
	return true
}

func (p *panics) add(peer, what, stack string) {
	p.log.Error("the handling of a peer panicked; what it sent is dropped", "peer", peer, "panic", what, "stack", stack)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	key := panicked{clip(peer, maxPanic), what}
	o := p.all[key]
	if o == nil {
		if len(p.all) >= maxPanics {
			return
		}
		o = &occurrences{first: now}
		p.all[key] = o
	}
	o.last = now
	o.n++
}

// expire forgets what has not happened for a while. The lock is held.
func (p *panics) expire(now time.Time) {
	for key, o := range p.all {
		if now.Sub(o.last) > panicAge {
			delete(p.all, key)
		}
	}
}

// list gives the findings in order of peer.
func (p *panics) list() []Panic {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(time.Now())
	var list []Panic
	for key, o := range p.all {
		list = append(list, Panic{Peer: key.peer, Since: o.first, Message: fmt.Sprintf("handling it panicked %s: %s", times(o.n), key.what)})
	}
	slices.SortFunc(list, func(a, b Panic) int { return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Message, b.Message)) })
	return list
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Panic is a panic of a goroutine that handled what a peer sent.
type Panic struct {
	Peer    string
	Since   time.Time
	Message string
}

// Guard calls fn, which handles what a peer sends, and reports whether it returned.
// If it panics, the process goes on: the panic is a finding about the peer, and what
// the peer sent is dropped.
func (l *Loop[C]) Guard(peer string, fn func()) (returned bool) { return l.panics.guard(peer, fn) }
