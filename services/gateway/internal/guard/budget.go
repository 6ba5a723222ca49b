package guard

import (
	"container/list"
	"sync"
	"time"
)

// Budget is the memory that all requests in flight may use together. If the budget is
// exhausted, it aborts the oldest incomplete request. A request that makes progress is
// complete within milliseconds, so it outlives requests that never end.
type Budget struct {
	limit int64

	mu sync.Mutex
	// used is the allocated memory. dropping is the part of used that belongs to aborted
	// requests, which release their memory soon.
	used, dropping int64
	waiting        list.List // every Hold that waits for released memory, oldest first
	// unfinished lists every Hold of an incomplete request. filling lists the unfinished
	// Holds that have memory. Both begin with the oldest.
	unfinished, filling list.List
	filled              int64 // the memory of the requests in filling
	sweeping            bool
}

// NewBudget returns a budget with a limit in bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns the allocated memory, in bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Hold is the memory of one request.
type Hold struct {
	budget              *Budget
	bytes               int64
	since               time.Time
	abort               func()
	unfinished, filling *list.Element
	aborted             bool
	// waiting is not nil while the request waits for need more bytes. The wait ends when
	// freed is closed.
	waiting *list.Element
	need    int64
	freed   chan struct{}
}

// Begin adds an incomplete request. If the request takes too long, or another request needs
// its memory, the budget calls abort, which must not block.
func (b *Budget) Begin(abort func()) *Hold {
	h := &Hold{budget: b, since: time.Now(), abort: abort}
	b.mu.Lock()
	defer b.mu.Unlock()
	h.unfinished = b.unfinished.PushBack(h)
	if !b.sweeping {
		b.sweeping = true
		time.AfterFunc(time.Second, b.sweep)
	}
	return h
}

// Take allocates the memory of a complete request. It returns nil if the budget is
// exhausted.
func (b *Budget) Take(n int64) *Hold {
	h := &Hold{budget: b, abort: func() {}}
	if !h.Grow(n) {
		return nil
	}
	return h
}

// Grow allocates n more bytes. If the budget is exhausted or the request was aborted, Grow
// returns false and allocates nothing. Grow aborts other incomplete requests if their memory
// suffices. It does not block: it counts the memory of aborted requests as released.
func (h *Hold) Grow(n int64) bool { return h.grow(n, false) }

// GrowWaiting is like Grow, but waits until aborted requests have released their memory.
func (h *Hold) GrowWaiting(n int64) bool { return h.grow(n, true) }

func (h *Hold) grow(n int64, waiting bool) bool {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if waiting {
		defer b.wake() // memory may be left for other requests
	}
	for {
		switch {
		case h.aborted || h.abort == nil:
			return false
		case b.used+n <= b.limit || !waiting && b.used-b.dropping+n <= b.limit:
			b.used += n
			h.bytes += n
			if h.filling == nil && h.unfinished != nil {
				h.filling = b.filling.PushBack(h)
			}
			if h.filling != nil {
				b.filled += n
			}
			return true
		case b.used-b.dropping+n <= b.limit:
			h.wait(n)
			continue
		}
		others := b.filled
		if h.filling != nil {
			others -= h.bytes
		}
		if b.used-b.dropping-others+n > b.limit {
			return false
		}
		oldest := b.filling.Front()
		if oldest == nil || oldest.Value.(*Hold) == h {
			return false
		}
		oldest.Value.(*Hold).drop()
	}
}

// wait waits until n more bytes may be available. The caller must hold the lock, and must
// then check again.
func (h *Hold) wait(n int64) {
	b := h.budget
	h.waiting, h.need, h.freed = b.waiting.PushBack(h), n, make(chan struct{})
	freed := h.freed
	b.mu.Unlock()
	<-freed
	b.mu.Lock()
}

func (h *Hold) endWait() {
	if h.waiting != nil {
		h.budget.waiting.Remove(h.waiting)
		h.waiting = nil
		close(h.freed)
	}
}

// wake wakes the waiting requests that fit into the free memory, oldest first. If no memory
// is about to be released, it wakes the oldest waiting request, which must abort other
// requests. It does not wake all requests: for a thousand requests this would take longer
// than reading their bodies. The caller must hold the lock.
func (b *Budget) wake() {
	free := b.limit - b.used
	for e := b.waiting.Front(); e != nil && (free > 0 || b.dropping == 0); e = b.waiting.Front() {
		h := e.Value.(*Hold)
		if free -= h.need; free < 0 && b.dropping > 0 {
			return
		}
		h.endWait()
		if free < 0 {
			return
		}
	}
}

// Whole marks the request as complete, so that the budget does not abort it any more. It
// returns false if the request has ended or was aborted before.
func (h *Hold) Whole() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.unlist()
	return !h.aborted && h.abort != nil
}

// End releases the memory. It may be called more than once.
func (h *Hold) End() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.release()
}

// drop aborts the request. The request releases its memory when it ends. The caller must hold
// the lock.
func (h *Hold) drop() {
	h.unlist()
	h.aborted = true
	h.budget.dropping += h.bytes
	h.endWait()
	h.abort()
}

func (h *Hold) release() {
	h.unlist()
	h.budget.used -= h.bytes
	if h.aborted {
		h.budget.dropping -= h.bytes
	}
	h.bytes, h.abort = 0, nil
	h.endWait()
	h.budget.wake()
}

func (h *Hold) unlist() {
	if h.unfinished != nil {
		h.budget.unfinished.Remove(h.unfinished)
	}
	if h.filling != nil {
		h.budget.filling.Remove(h.filling)
		h.budget.filled -= h.bytes
	}
	h.unfinished, h.filling = nil, nil
}

// sweep aborts requests that take too long. It runs every second while there are incomplete
// requests.
func (b *Budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for e := b.unfinished.Front(); e != nil; {
		h := e.Value.(*Hold)
		e = e.Next()
		age := now.Sub(h.since)
		if age < grace {
			break // all further requests are younger
		}
		if age > allowed(h.bytes) {
			h.drop()
		}
	}
	b.sweeping = b.unfinished.Len() > 0
	if b.sweeping {
		time.AfterFunc(time.Second, b.sweep)
	}
}
