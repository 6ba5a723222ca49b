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
	// askEvery is the interval of progress requests to an idle watch; askWanted is the
	// interval while a caller waits for a revision.
	askEvery  = time.Second
	askWanted = 20 * time.Millisecond
	// silentAfter is how long a watch may leave a progress request unanswered, or answer
	// with a revision that is known to be old, before it is replaced. Otherwise one etcd
	// member that is frozen or cut off would make a replica blind until TCP notices or
	// the member recovers.
	silentAfter = 2 * time.Second
)

// View follows everything under a prefix: Next returns a snapshot and then the changes after
// it. Next and TryNext must be called from one goroutine; the other methods may be called
// from any. A View starts no goroutine.
type View struct {
	store  Store
	prefix string
	skip   []string
	// failures since the last batch; belongs to the goroutine that calls Next
	failures int

	mu       sync.Mutex
	watch    Watch              // nil until the next snapshot
	wake     context.CancelFunc // ends the present wait for the watch
	revision int64              // delivered
	wanted   int64              // a caller waits for this revision
	known    int64              // the store is known to have reached this revision
	heard    time.Time          // last useful response of this watch; zero before the first
	asked    time.Time          // first progress request without a useful response; zero if none
}

// OpenView returns a view of the keys under prefix. Snapshots leave out the skipped prefixes,
// and changes under them are delivered separately. The view reads nothing before the first
// Next. It must be closed.
func OpenView(s Store, prefix string, skip ...string) *View {
	return &View{store: s, prefix: prefix, skip: skip}
}

// Next waits for the next batch. The first batch is a snapshot with Reset set. If changes
// are lost, by compaction or otherwise, the next batch is a new snapshot. All other batches
// contain exactly the changes after the previous one, in whole revisions. Next retries
// failures with backoff, without a limit: the only error is that of ctx.
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

// TryNext is Next for a caller that must not wait. It returns false if there is no new batch
// or the snapshot cannot be read now.
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

// errNothing means that the watch had no batch. It does not count as a response.
var errNothing = errors.New("nothing new")

// step takes one batch: a snapshot if there is no watch, and otherwise the next batch of the
// watch. If it returns neither a batch nor an error, the caller continues at once.
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

// snapshot reads everything and starts the watch after it.
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

// await waits for the watch. It requests progress from time to time and replaces a watch that
// does not answer.
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

// startWait bounds a wait: it ends when progress must be requested, or when Want is called.
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

// ask requests progress, from a new watch if the present one is silent. The new watch starts
// after the delivered revision, so nothing is lost or read again.
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
		v.known = v.wanted // trusted for one watch only: the caller of Know may be wrong
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

// accept checks a batch of the watch. It drops a batch that does not advance the revision. If
// a batch repeats a revision or contains the rest of one, accept drops the watch: only a
// snapshot is certain then.
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

// Know records that the store has reached a revision. No caller waits for it, but a watch that
// does not reach it is replaced after a while: its etcd member may be cut off from the others
// and answer as if nothing had changed.
func (v *View) Know(revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = max(v.known, revision)
}

// Revision returns the delivered revision; 0 before the first snapshot.
func (v *View) Revision() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.revision
}

// Ready reports whether the view is practically current: a snapshot was delivered, and the
// watch has responded within the last three seconds. It is false if no goroutine calls Next
// or etcd is out of reach.
func (v *View) Ready() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.heard.IsZero() && time.Since(v.heard) < currentFor
}

// Close frees the resources of the view. The next call of Next starts with a new snapshot.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
}
