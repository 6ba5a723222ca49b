package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// currentFor is how long a view counts as current after a response of its watch.
	currentFor = 3 * time.Second
	// askEvery is the interval of progress requests to an idle watch. askWanted is the
	// interval while a caller waits for a revision.
	askEvery  = time.Second
	askWanted = 20 * time.Millisecond
	// silentAfter is how long a watch may leave a progress request unanswered, or answer
	// with a revision that is known to be old, before the view replaces the watch. Otherwise
	// a replica whose etcd member is frozen or cut off would receive no changes until TCP
	// detects the fault or the member recovers.
	silentAfter = 2 * time.Second
)

// View follows all keys under a prefix: Next returns a snapshot and then the changes
// after the snapshot. Next and TryNext must be called from one goroutine; the other
// methods may be called from any. A View starts no goroutine.
type View struct {
	store  Store
	prefix string
	skip   []string
	// failures is the number of failures since the last batch. Only the goroutine that calls
	// Next uses it.
	failures int

	mu       sync.Mutex
	watch    Watch              // nil until the next snapshot
	wake     context.CancelFunc // ends the current wait for the watch
	revision int64              // the revision that Next has delivered
	wanted   int64              // a caller waits for this revision
	known    int64              // the store is known to have reached this revision
	heard    time.Time          // last useful response of this watch; zero before the first
	asked    time.Time          // first progress request without a useful response; zero if none
}

// OpenView returns a view of the keys under prefix. Snapshots omit the skipped prefixes,
// and batches contain changes under these prefixes in Skipped. The view reads nothing
// before the first call of Next. The caller must close the view.
func OpenView(s Store, prefix string, skip ...string) *View {
	return &View{store: s, prefix: prefix, skip: skip}
}

// Next waits for the next batch. The first batch is a snapshot with Reset set. If changes
// are lost, by compaction or otherwise, the next batch is a new snapshot. All other
// batches contain exactly the changes after the previous one, in whole revisions. Next
// retries after failures with backoff and without a limit. It returns an error only if
// ctx ends.
func (v *View) Next(ctx context.Context) (Batch, error) {
	for {
		b, ok, err := v.step(ctx, v.await)
		switch {
		case ok:
			v.failures = 0
			return b, nil
		case ctx.Err() != nil:
			return Batch{}, ctx.Err()
		case err != nil && !errors.Is(err, errNothing):
			v.failures++
			if err := Sleep(ctx, Backoff(v.failures)); err != nil {
				return Batch{}, err
			}
		}
	}
}

// TryNext is like Next, for a caller that must not wait. It returns false if there is no
// new batch or if the snapshot cannot be read now.
func (v *View) TryNext() (Batch, bool) {
	for failures := 0; failures < 2; {
		b, ok, err := v.step(context.Background(), v.poll)
		switch {
		case ok:
			return b, true
		case errors.Is(err, errNothing):
			return Batch{}, false
		case err != nil:
			failures++
		}
	}
	return Batch{}, false
}

// errNothing means that the watch had no batch. It does not count as a response of the
// watch.
var errNothing = errors.New("nothing new")

// step returns one batch: a snapshot if there is no watch, and otherwise the next batch
// of the watch. If it returns neither a batch nor an error, the caller must call it again
// at once.
func (v *View) step(ctx context.Context, next func(context.Context, Watch) (Batch, error)) (Batch, bool, error) {
	watch := v.current()
	if watch == nil {
		b, err := v.snapshot(ctx)
		return b, err == nil, err
	}
	b, err := next(ctx, watch)
	if errors.Is(err, ErrCompacted) {
		v.Close()
	}
	if err != nil {
		return Batch{}, false, err
	}
	b, ok := v.accept(b)
	return b, ok, nil
}

// snapshot reads all keys and starts a watch after the revision of the read.
func (v *View) snapshot(ctx context.Context) (Batch, error) {
	kvs, revision, err := Range(ctx, v.store, v.prefix, v.skip...)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{Reset: true, Revision: revision, Changes: make([]Change, len(kvs))}
	for i, kv := range kvs {
		b.Changes[i] = Change{KV: kv}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch = v.store.Watch(v.prefix, revision+1)
	v.heard, v.asked = time.Now(), time.Time{}
	v.revision = revision
	return b, nil
}

// await waits for a batch of the watch. It requests progress regularly and replaces a
// watch that does not answer.
func (v *View) await(ctx context.Context, watch Watch) (Batch, error) {
	ctx, cancel := v.startWait(ctx)
	defer v.endWait(cancel)
	b, err := watch.Next(ctx)
	if err != nil && ctx.Err() != nil {
		v.ask()
		return Batch{}, errNothing
	}
	return b, err
}

// startWait returns a context for one wait. The context ends when the view must request
// progress, or when Want is called.
func (v *View) startWait(ctx context.Context) (context.Context, context.CancelFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	every := askEvery
	if v.wanted > v.revision {
		every = askWanted
	}
	ctx, v.wake = context.WithTimeout(ctx, every)
	return ctx, v.wake
}

func (v *View) endWait(cancel context.CancelFunc) {
	cancel()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wake = nil
}

// ask requests progress. If the current watch is silent, ask replaces it with a new watch
// first. The new watch starts after the delivered revision, so no change is lost or
// delivered twice.
func (v *View) ask() {
	v.mu.Lock()
	switch {
	case v.watch == nil:
		v.mu.Unlock()
		return
	case v.asked.IsZero():
		v.asked = time.Now()
	case time.Since(v.asked) > silentAfter:
		v.watch.Close()
		v.watch = v.store.Watch(v.prefix, v.revision+1)
		v.asked = time.Now()
		v.known = v.wanted // Know counts for one watch only, because its caller may be wrong
	}
	watch := v.watch
	v.mu.Unlock()
	watch.RequestProgress()
}

// poll takes a batch from the watch without waiting.
func (v *View) poll(_ context.Context, watch Watch) (Batch, error) {
	b, ok, err := watch.TryNext()
	if !ok && err == nil && v.behind() {
		watch.RequestProgress()
		b, ok, err = watch.TryNext()
	}
	if !ok && err == nil {
		return Batch{}, errNothing
	}
	return b, err
}

// accept checks a batch of the watch. It drops a batch that does not advance the
// revision. If a batch contains changes of a revision that was already delivered, accept
// drops the watch, because only a new snapshot is certain to be complete.
func (v *View) accept(b Batch) (Batch, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch == nil {
		return Batch{}, false
	}
	last := v.revision
	kept := make([]Change, 0, len(b.Changes))
	b.Skipped = nil
	for _, c := range b.Changes {
		if c.Mod <= v.revision || c.Mod < last {
			v.drop()
			return Batch{}, false
		}
		last = c.Mod
		if skipped(c.Key, v.skip) {
			b.Skipped = append(b.Skipped, c)
		} else {
			kept = append(kept, c)
		}
	}
	b.Revision, b.Changes = max(b.Revision, last), kept
	if b.Revision > v.revision || b.Revision >= v.known {
		v.heard, v.asked = time.Now(), time.Time{}
	}
	if b.Revision <= v.revision {
		return Batch{}, false
	}
	v.revision = b.Revision
	return b, true
}

func (v *View) drop() {
	if v.watch != nil {
		v.watch.Close()
	}
	v.watch, v.heard = nil, time.Time{}
}

func (v *View) current() Watch {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.watch
}

func (v *View) behind() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.wanted > v.revision
}

// Want makes Next deliver a batch that reaches the revision soon, even if nothing under the
// prefix changes. It does not wait.
func (v *View) Want(revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = max(v.known, revision)
	if revision <= v.revision || revision <= v.wanted {
		return
	}
	v.wanted = revision
	if v.wake != nil {
		v.wake()
	}
}

// Know records that the store has reached a revision, although no caller waits for this
// revision. If the watch does not reach the revision within silentAfter, the view
// replaces the watch: its etcd member may be cut off from the others and may answer as if
// nothing had changed.
func (v *View) Know(revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = max(v.known, revision)
}

// Revision returns the delivered revision, or 0 before the first snapshot.
func (v *View) Revision() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.revision
}

// Ready reports whether the view is nearly current: a snapshot was delivered, and the
// watch has responded within the last three seconds. It returns false if no goroutine
// calls Next or if etcd is unreachable.
func (v *View) Ready() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.heard.IsZero() && time.Since(v.heard) < currentFor
}

// Close frees the resources of the view. A later call of Next starts with a new snapshot.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
}
