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
	// maxPanics is the maximum number of different panics of peer handlers that are reported
	// as findings. panicAge is how long a panic is reported after its last occurrence.
	maxPanics = 100
	panicAge  = time.Hour
)

// panics records the panics of goroutines that handle messages of peers. Such a panic
// must not end the process: otherwise the message of one peer could stop the service for
// all others.
type panics struct {
	log *slog.Logger
	mu  sync.Mutex
	all map[panicKey]*occurrences
}

type panicKey struct{ peer, what string }

type occurrences struct {
	first, last time.Time
	n           int
}

func newPanics(log *slog.Logger) *panics { return &panics{log: log, all: map[panicKey]*occurrences{}} }

func (p *panics) add(peer, what, stack string) {
	p.log.Error("the handler of a peer panicked; the message is dropped", "peer", peer, "panic", what, "stack", stack)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	key := panicKey{clip(peer, maxPanic), what}
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

// expire deletes panics that did not occur within panicAge. p.mu must be locked.
func (p *panics) expire(now time.Time) {
	for key, o := range p.all {
		if now.Sub(o.last) > panicAge {
			delete(p.all, key)
		}
	}
}

// list returns the panics in order of peer.
func (p *panics) list() []Panic {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(time.Now())
	var list []Panic
	for key, o := range p.all {
		list = append(list, Panic{Peer: key.peer, Since: o.first,
			Message: fmt.Sprintf("the handler of its messages panicked (count %d): %s", o.n, key.what)})
	}
	slices.SortFunc(list, func(a, b Panic) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer),
			cmp.Compare(a.Message, b.Message))
	})
	return list
}

// Panic is a panic of a goroutine that handled a peer's message.
type Panic struct {
	Peer    string
	Since   time.Time
	Message string
}

// Guard calls fn, which handles messages of a peer, and reports whether fn returned. If
// fn panics, Guard recovers: the message is dropped, and a finding about the peer reports
// the panic.
func (l *Loop[C]) Guard(peer string, fn func()) (returned bool) {
	defer func() {
		what := recover()
		// After runtime.Goexit, recover returns nil.
		if !returned && what != nil {
			l.panics.add(peer, clip(fmt.Sprint(what), maxPanic), string(debug.Stack()))
		}
	}()
	fn()
	return true
}
