package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// currentFor is how long a view counts as current after it heard of its watch.
	currentFor = 3 * time.Second
	// askEvery is how often a quiet watch is asked for progress, askWanted how
	// often while somebody waits for a revision.
	askEvery  = time.Second
	askWanted = 20 * time.Millisecond
	// silentAfter is how long a watch may leave that unanswered, or answer with what
	// is known to be old, before another takes its place: one member of etcd that is
	// frozen, or cut from the others, must not make a replica blind until TCP notices
	// or it is joined again.
	silentAfter = 2 * time.Second
)

// View follows everything under a prefix: Next gives a snapshot and then the
// changes after it. One goroutine pulls with Next or TryNext; the other methods
// are for any. It starts no goroutine.
type View struct {
	store  Store
	prefix string
	skip   []string
	pause  backoff // of the pulling goroutine

	mu       sync.Mutex
	watch    Watch              // nil while a snapshot is due
	nudge    context.CancelFunc // ends the present wait for the watch
	revision int64              // delivered
	wanted   int64              // somebody waits for this revision
	known    int64              // the store is known to have reached this revision
	heard    time.Time          // last word of this watch; zero before the first
	asked    time.Time          // of the first question that it has not answered well; zero if none
	moved    chan struct{}      // closed and replaced when a batch is delivered
}

// OpenView makes a view of the keys under prefix but for those under the skipped
// prefixes: no snapshot reads them, and what changes there is told of apart. It
// reads nothing before the first Next. It must be closed.
func OpenView(s Store, prefix string, skip ...string) *View {
	return &View{store: s, prefix: prefix, skip: skip, moved: make(chan struct{})}
}

// Next waits for the next batch. The first is a snapshot with Reset set; so is
// every later one before which changes were lost, by compaction or otherwise. In
// between, each batch holds exactly the changes after the one before, whole
// revisions only. Failures are repeated with backoff for ever: the only error is
// that of ctx.
func (v *View) Next(ctx context.Context) (Batch, error) {
	for {
		b, ok, err := v.step(ctx, v.await)
		switch {
		case ok:
			v.pause.reset()
			return b, nil
		case ctx.Err() != nil:
			return Batch{}, ctx.Err()
		case err != nil && !errors.Is(err, errNothing):
			if err := v.pause.sleep(ctx); err != nil {
				return Batch{}, err
			}
		}
	}
}

// TryNext is Next for a caller that must not wait: false when there is nothing
// new, or no snapshot can be read now.
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

// errNothing says that the watch had nothing, which is no word of it either.
var errNothing = errors.New("nothing new")

// step takes one batch, from a snapshot where there is no watch and otherwise
// from the watch. Neither a batch nor an error means to go on at once.
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

// snapshot reads everything and sets up the watch after it.
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
	v.deliver(revision)
	return b, nil
}

// await waits for the watch, asks it for progress from time to time, and takes
// another in its place when it does not answer.
func (v *View) await(ctx context.Context, watch Watch) (Batch, error) {
	ctx, cancel := v.enter(ctx)
	defer v.leave(cancel)
	b, err := watch.Next(ctx)
	if err != nil && ctx.Err() != nil {
		v.ask()
		return Batch{}, errNothing
	}
	return b, err
}

// enter bounds a wait: it ends in time to ask for progress, or when Want does.
func (v *View) enter(ctx context.Context) (context.Context, context.CancelFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	every := askEvery
	if v.wanted > v.revision {
		every = askWanted
	}
	ctx, v.nudge = context.WithTimeout(ctx, every)
	return ctx, v.nudge
}

func (v *View) leave(cancel context.CancelFunc) {
	cancel()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nudge = nil
}

// ask requests progress, of a new watch where the present one is silent. It goes
// on after what was delivered, so nothing is lost and nothing read again.
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
		v.known = v.wanted // believed for one watch: whoever told of more may be wrong
	}
	watch := v.watch
	v.mu.Unlock()
	watch.RequestProgress()
}

// poll looks at the watch without waiting.
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

// accept takes what the watch gave. It keeps back what moves nothing on. A batch
// that repeats a revision, or brings the rest of one, costs the watch: after
// that only a snapshot is certain.
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
	v.deliver(b.Revision)
	return b, true
}

// deliver notes that a batch is handed out.
func (v *View) deliver(revision int64) {
	v.revision = revision
	close(v.moved)
	v.moved = make(chan struct{})
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

// Want asks that Next deliver a batch which has reached the revision, soon and
// even when nothing under the prefix changes. It does not wait.
func (v *View) Want(revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = max(v.known, revision)
	if revision <= v.revision || revision <= v.wanted {
		return
	}
	v.wanted = revision
	if v.nudge != nil {
		v.nudge()
	}
}

// Know tells that the store has reached a revision. Nobody waits for it, but a
// watch that does not get there is replaced in time: its member of etcd may be cut
// from the others, and answer as though nothing had happened since.
func (v *View) Know(revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = max(v.known, revision)
}

// Reached waits until a batch that has reached the revision was delivered to
// whoever pulls. The only error is that of ctx.
func (v *View) Reached(ctx context.Context, revision int64) error {
	v.Want(revision)
	for {
		v.mu.Lock()
		reached, moved := v.revision >= revision, v.moved
		v.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Revision is what was delivered; 0 before the first snapshot.
func (v *View) Revision() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.revision
}

// Ready says that a snapshot was delivered and that the watch was heard of
// within the last three seconds: the view is as good as current. A view nobody
// pulls, or whose etcd is out of reach, is not.
func (v *View) Ready() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.heard.IsZero() && time.Since(v.heard) < currentFor
}

// Close frees what the view holds. It may be pulled again, from a new snapshot.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
}
