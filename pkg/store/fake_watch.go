package store

import (
	"context"
	"strings"
	"time"
)

// fakeWatch reads the Fake's history. Its position is only the next revision, so a broken
// connection loses nothing except a progress request.
type fakeWatch struct {
	f        *Fake
	prefix   string
	next     int64
	progress bool  // progress was requested and not reported yet
	broken   int64 // the Fake's count at the last check
}

// Watch implements Store.
func (f *Fake) Watch(prefix string, from int64) Watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Revision 1 is the empty store and has no changes.
	return &fakeWatch{f: f, prefix: prefix, next: max(from, 2), broken: f.broken}
}

// Next implements Watch.
func (w *fakeWatch) Next(ctx context.Context) (Batch, error) {
	for {
		b, ok, err := w.TryNext()
		if ok || err != nil {
			return b, err
		}
		if err := w.wait(ctx); err != nil {
			return Batch{}, err
		}
	}
}

// wait returns when there may be something new: a revision, a compaction, a progress request, or
// an etcd lease that expires by the real clock.
func (w *fakeWatch) wait(ctx context.Context) error {
	w.f.mu.Lock()
	moved := w.f.moved
	_, earliest := w.f.nextExpiry()
	ready := w.f.revision >= w.next || w.progress
	w.f.mu.Unlock()
	if ready {
		return ctx.Err()
	}
	var expiry <-chan time.Time
	if !earliest.IsZero() && w.f.cfg.Clock == nil {
		timer := time.NewTimer(time.Until(earliest))
		defer timer.Stop()
		expiry = timer.C
	}
	select {
	case <-moved:
	case <-expiry:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// TryNext implements Watch.
func (w *fakeWatch) TryNext() (Batch, bool, error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	if w.next < f.compacted {
		return Batch{}, false, ErrCompacted
	}
	if w.broken != f.broken {
		w.broken, w.progress = f.broken, false
	}
	var b Batch
	for revisions := 0; w.next <= f.revision && revisions < f.cfg.WatchRevisions; w.next++ {
		before := len(b.Changes)
		for _, c := range f.history[w.next-2].Changes { // revision 2 is the first entry
			if strings.HasPrefix(c.Key, w.prefix) {
				b.Changes = append(b.Changes, c)
			}
		}
		if len(b.Changes) > before {
			b.Revision = w.next
			revisions++
		}
	}
	switch {
	case len(b.Changes) > 0:
		return b, true, nil
	case w.progress:
		w.progress = false
		b.Revision = min(w.next-1, f.revision)
		return b, true, nil
	}
	return Batch{}, false, nil
}

// RequestProgress implements Watch.
func (w *fakeWatch) RequestProgress() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.progress = true
	w.f.wake()
}

// Close implements Watch.
func (w *fakeWatch) Close() {}
