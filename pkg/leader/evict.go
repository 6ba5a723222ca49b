package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth.dev/pkg/store"
)

const (
	// One replica evicts at most evictLimit leaders within evictWindow, so that two replicas
	// that consider each other dead do not evict each other endlessly.
	evictLimit  = 3
	evictWindow = time.Minute
	// evictAge is how long this replica must have seen a leader before it may evict it.
	evictAge = time.Second
)

// ErrNotEvicted is wrapped by errors that say why this replica did not send an evict.
// Without an evict, the TTL ends the leadership.
var ErrNotEvicted = errors.New("leader: not evicted")

// wait is the state of a candidate that waits for the end of another leader.
type wait struct {
	session *session
	holder  Holder
	since   time.Time // when this replica first saw the holder
}

// evict deletes the key of a holder that WaitDead considers dead. It retries with the
// pauses of store.Backoff until the key is deleted, and returns false if ctx ends first.
// It retries because etcd may be electing its own leader. After that election etcd renews
// every lease, so the TTL alone would take twice as long.
func (e *Election) evict(ctx context.Context, h Holder) bool {
	log := e.cfg.Log.With("key", e.cfg.Key, "leader", h.ID, "term", h.Term)
	for attempt := 1; ; attempt++ {
		err := e.tryEvict(ctx, h.Term)
		if err == nil {
			log.Info("deleted the key of the dead leader")
			return true
		}
		if attempt == 1 && ctx.Err() == nil {
			log.Warn("the leader's process is dead, but its key is not deleted yet", "err", err)
		}
		if store.Sleep(ctx, store.Backoff(attempt)) != nil {
			return false
		}
	}
}

// tryEvict makes one attempt to delete the key, if the key still has that term. It sends
// the transaction only if all of these conditions are true:
//
//   - This replica waits for that term to end, and its own etcd lease is alive.
//   - It has seen the leader for evictAge.
//   - MayEvict returns true, and etcd reports no alarm.
//   - It has evicted fewer than evictLimit leaders within evictWindow.
//
// Otherwise it returns an error of the store or an error that wraps ErrNotEvicted.
func (e *Election) tryEvict(ctx context.Context, term int64) error {
	e.mu.Lock()
	w := e.waiting
	e.mu.Unlock()
	switch {
	case w == nil || w.holder.Term != term:
		return fmt.Errorf("%w: not waiting for term %d to end", ErrNotEvicted, term)
	case !w.session.valid():
		return fmt.Errorf("%w: this replica has no etcd lease", ErrNotEvicted)
	case time.Since(w.since) < evictAge:
		return fmt.Errorf("%w: term %d is younger than %v", ErrNotEvicted, term, evictAge)
	case e.cfg.MayEvict != nil && !e.cfg.MayEvict():
		return fmt.Errorf("%w: this replica's view is not current", ErrNotEvicted)
	}
	alarms, err := e.cfg.Store.Alarms(ctx)
	if err != nil {
		return err
	}
	if len(alarms) > 0 {
		return fmt.Errorf("%w: etcd has alarms %q", ErrNotEvicted, alarms)
	}
	if !e.allowEvict(time.Now(), term) {
		return fmt.Errorf("%w: evicted %d leaders within %v already", ErrNotEvicted, evictLimit, evictWindow)
	}
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	_, err = e.cfg.Store.Txn(ctx, store.Txn{
		If:   []store.Compare{store.CreatedAt(e.cfg.Key, term)},
		Then: []store.Op{store.Delete(e.cfg.Key)},
	})
	return err
}

// eviction is the term of a leader, and the time at which the evict was first sent.
type eviction struct {
	term int64
	at   time.Time
}

// allowEvict reports whether this replica may evict the leader of a term, and counts the
// evict. It counts the retries for one term once.
func (e *Election) allowEvict(now time.Time, term int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.evictions = slices.DeleteFunc(e.evictions, func(v eviction) bool { return now.Sub(v.at) >= evictWindow })
	if slices.ContainsFunc(e.evictions, func(v eviction) bool { return v.term == term }) {
		return true
	}
	if len(e.evictions) >= evictLimit {
		return false
	}
	e.evictions = append(e.evictions, eviction{term, now})
	return true
}
