package guard

import (
	"container/list"
	"sync"
	"time"
)

// Budget is the memory that requests in flight may take together. If it is used
// up, the oldest request that has not arrived whole is aborted: one that makes
// progress is whole within milliseconds, so it outlives those that never end.
type Budget struct {
	limit int64

	mu sync.Mutex
	// used is held, dropping the part of it that was aborted and is given back soon.
	used, dropping int64
	waiting        list.List // every Hold that waits for what is dropped, oldest first
	// unfinished holds every Hold that is not whole, filling those of them that
	// take memory; each oldest first.
	unfinished, filling list.List
	filled              int64 // of used: what filling takes
	sweeping            bool
}

// NewBudget makes a budget of so many bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit}
}

// Used returns the bytes in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Hold is the share of one request.
type Hold struct {
	budget              *Budget
	bytes               int64
	since               time.Time
	abort               func()
	unfinished, filling *list.Element
	aborted             bool
	// waiting is set while it waits for need more bytes, until freed is closed.
	waiting *list.Element
	need    int64
	freed   chan struct{}
}

// Begin starts a request that has not arrived whole. Abort is called, without
// waiting for anything, when the request has to go: it takes too long, or its
// memory is needed.
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

// Take holds the memory of a request that has arrived whole. It returns nil if
// there is no room.
func (b *Budget) Take(n int64) *Hold {
	h := &Hold{budget: b, abort: func() {}}
	if !h.Grow(n) {
		return nil
	}
	return h
}

// Grow takes n more bytes. It returns false, and takes none, if there is no room
// or the request was aborted. It waits for nothing: what others were aborted for
// counts as given back. Nobody is aborted for what does not fit without them either.
func (h *Hold) Grow(n int64) bool { return h.grow(n, false) }

// GrowWaiting does as Grow, and waits until what it takes has been given back.
func (h *Hold) GrowWaiting(n int64) bool { return h.grow(n, true) }

func (h *Hold) grow(n int64, waiting bool) bool {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if waiting {
		defer b.wake() // it may leave room to others
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

// wait waits for n more bytes. The caller holds the lock, and looks again.
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

// wake ends the wait of those that fit into what is free, oldest first, and of the
// oldest if nothing is dropped any more: it has to drop others. To wake all of a
// thousand each time would take more than to read their bodies. The caller holds the
// lock.
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

// Whole says that the request has arrived: it is not aborted any more. It returns
// false if it was aborted before.
func (h *Hold) Whole() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.unlist()
	return !h.aborted && h.abort != nil
}

// End gives the memory back. Ending twice does no harm.
func (h *Hold) End() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.release()
}

// drop aborts the request, which gives its memory back when it ends. The caller
// holds the lock.
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

// sweep aborts what takes too long. It runs every second while there is anything
// unfinished.
func (b *Budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for e := b.unfinished.Front(); e != nil; {
		h := e.Value.(*Hold)
		e = e.Next()
		age := now.Sub(h.since)
		if age < grace {
			break // the others are younger
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
