package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// Follower audits a cluster while the cluster runs. The methods are safe for concurrent use,
// except that only one goroutine may call Run.
type Follower struct {
	store store.Store
	view  *store.View

	mu      sync.Mutex
	auditor *Auditor
	moved   chan struct{} // closed and replaced when a batch was audited
}

// Follow returns the follower of a cluster. The follower reads nothing before Run.
func Follow(s store.Store, space keyspace.Space) *Follower {
	return &Follower{
		store:   s,
		view:    store.OpenView(s, space.Prefix(), space.Events()),
		auditor: New(space),
		moved:   make(chan struct{}),
	}
}

// Run audits the current state and then every change, until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.view.Close()
	for {
		batch, err := f.view.Next(ctx)
		if err != nil {
			return // ctx has ended
		}
		f.mu.Lock()
		f.auditor.Apply(batch)
		close(f.moved)
		f.moved = make(chan struct{})
		f.mu.Unlock()
	}
}

// Look calls fn with the auditor, which does not change until fn returns.
func (f *Follower) Look(fn func(*Auditor)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.auditor)
}

// CatchUp waits until Run has audited everything that was written before the call. It
// returns an error if ctx ends or the store fails.
func (f *Follower) CatchUp(ctx context.Context) error {
	revision, err := present(ctx, f.store)
	if err != nil {
		return err
	}
	f.view.Want(revision)
	for {
		f.mu.Lock()
		audited, moved := f.auditor.stats.Revision >= revision, f.moved
		f.mu.Unlock()
		if audited {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// present returns the current revision of the store.
func present(ctx context.Context, s store.Store) (int64, error) {
	page, err := read(ctx, s, store.PageRequest{From: "/", To: "0", Limit: 1})
	return page.Revision, err
}

// maxReads is the maximum number of attempts to read one page. An audit may run after hours
// of work and must not fail because the store is briefly unavailable.
const maxReads = 10

func read(ctx context.Context, s store.Store, request store.PageRequest) (store.Page, error) {
	for attempt := 1; ; attempt++ {
		page, err := s.Page(ctx, request)
		if !errors.Is(err, store.ErrAmbiguous) || attempt == maxReads || store.Sleep(ctx, store.Backoff(attempt)) != nil {
			return page, err
		}
	}
}

// Check audits the history of a cluster from a revision to the present: first the state at
// that revision, then every later change. If from is 0, Check starts with the first change.
// Check calls each observe function with every change. The error wraps store.ErrCompacted
// if etcd has compacted the history.
func Check(ctx context.Context, s store.Store, space keyspace.Space, from int64,
	observe ...func(store.Change)) (*Auditor, error) {
	a := New(space)
	to, err := present(ctx, s)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		snapshot, err := snapshotAt(ctx, s, space, from)
		if err != nil {
			return nil, err
		}
		a.Apply(snapshot)
	}
	watch := s.Watch(space.Prefix(), from+1)
	defer watch.Close()
	for a.stats.Revision < to {
		watch.RequestProgress()
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		batch, err := watch.Next(wait)
		cancel()
		switch {
		case err == nil:
			for _, see := range observe {
				for _, change := range batch.Changes {
					see(change)
				}
			}
			a.Apply(batch)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
	return a, nil
}

// snapshotAt reads the state at a revision.
func snapshotAt(ctx context.Context, s store.Store, space keyspace.Space, revision int64) (store.Batch, error) {
	batch := store.Batch{Reset: true, Revision: revision}
	request := store.PageRequest{From: space.Prefix(), To: prefixEnd(space.Prefix()), Revision: revision, Limit: 1000}
	for {
		page, err := read(ctx, s, request)
		if err != nil {
			return store.Batch{}, err
		}
		for _, kv := range page.KVs {
			batch.Changes = append(batch.Changes, store.Change{KV: kv})
		}
		if !page.More {
			return batch, nil
		}
		request.From = page.Next()
	}
}

// prefixEnd returns the first key after all keys with a prefix. The prefix must end in '/'.
func prefixEnd(prefix string) string { return prefix[:len(prefix)-1] + "0" }
