package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth.dev/pkg/store"
)

const (
	// evictLimit evicts are sent in an evictWindow by one replica at most: two
	// replicas that take each other for dead must not play ping-pong for long.
	evictLimit  = 3
	evictWindow = time.Minute
	// evictAge is how long a leader was seen before it may be evicted.
	evictAge = time.Second
	// calmAge is for how long what etcd said of alarms counts: a proof may take any
	// time after the suspicion.
	calmAge = time.Second
	// standAfter is how long after an evict its sender stands, whatever became of it:
	// time enough for the evict to come to etcd first.
	standAfter = time.Millisecond
)

// ErrNotEvicted is wrapped by the reasons for which an evict is not even sent;
// the TTL decides then.
var ErrNotEvicted = errors.New("leader: not evicted")

// wait is what a waiting candidate knows.
type wait struct {
	session *session
	holder  Holder
	since   time.Time // when this replica first saw the holder
}

// inquiry is what etcd was asked of its alarms while a proof was being made.
type inquiry struct {
	sent   time.Time
	answer chan error // has one
}

// Evict deletes the key of a leader that is proven dead, if its term is still
// that. Only a waiting candidate evicts, and only when its own session lives, its
// view is current, etcd has no alarm, the leader was there for a second, and this
// replica has not evicted three times within a minute. An error that does not
// wrap ErrNotEvicted is one of the store's.
func (e *Election) Evict(ctx context.Context, term int64) error {
	if err := e.mayEvict(ctx, term, nil); err != nil {
		return err
	}
	return e.remove(ctx, term)
}

// mayEvict says why an evict is not to be sent, and counts it otherwise. Calm is of
// who may have asked already whether etcd is; without it, or when that was too long
// ago, it asks now.
func (e *Election) mayEvict(ctx context.Context, term int64, calm *inquiry) error {
	e.mu.Lock()
	w := e.waiting
	e.mu.Unlock()
	switch {
	case w == nil || w.holder.Term != term:
		return fmt.Errorf("%w: not waiting for term %d to end", ErrNotEvicted, term)
	case !w.session.valid():
		return fmt.Errorf("%w: no etcd lease of our own", ErrNotEvicted)
	case time.Since(w.since) < evictAge:
		return fmt.Errorf("%w: term %d is too young", ErrNotEvicted, term)
	case e.cfg.MayEvict != nil && !e.cfg.MayEvict():
		return fmt.Errorf("%w: this replica is not fit to take over", ErrNotEvicted)
	}
	var err error
	if calm != nil && time.Since(calm.sent) <= calmAge {
		err = <-calm.answer
	} else {
		err = e.calm(ctx)
	}
	if err != nil {
		return err
	}
	if !e.guard.allow(time.Now()) {
		return fmt.Errorf("%w: %d within %v already", ErrNotEvicted, evictLimit, evictWindow)
	}
	return nil
}

// remove deletes the key if its term is still that.
func (e *Election) remove(ctx context.Context, term int64) error {
	_, err := e.cfg.Store.Txn(ctx, store.Txn{
		If:   []store.Compare{store.CreatedAt(e.cfg.Key, term)},
		Then: []store.Op{store.Delete(e.cfg.Key)},
	})
	return err
}

// succeed evicts and stands in one go, and answers the term that it won, if any: 0
// says that it is to stand again. etcd does not take a delete and a put of the same
// key in one transaction, but two that come one after the other are in its log
// before the first is answered. The two do not need each other: whichever comes
// first, and whoever else stands, each looks at the key as it is. That the key is
// gone ends the wait for the evict, and does not keep it from standing.
func (e *Election) succeed(standing, gone context.Context, s *session, term int64) (won int64, err error) {
	ctx, cancel := context.WithTimeout(standing, store.DefaultTimeout)
	defer cancel()
	evicted := make(chan error, 1)
	go func() { evicted <- e.remove(ctx, term) }()
	spin(standAfter)
	// An error leaves it open who leads. Whoever asks next is told.
	if won, _, _ = e.try(ctx, s); won != 0 {
		return won, nil
	}
	select {
	case err := <-evicted:
		return 0, err
	case <-gone.Done():
		return 0, gone.Err()
	}
}

// calm says why etcd is not fit for an evict: it does not answer, or has alarms.
func (e *Election) calm(ctx context.Context) error {
	alarms, err := e.cfg.Store.Alarms(ctx)
	if err == nil && len(alarms) > 0 {
		err = fmt.Errorf("%w: etcd has alarms %q", ErrNotEvicted, alarms)
	}
	return err
}

// guard counts evicts.
type guard struct {
	mu   sync.Mutex
	sent []time.Time
}

// allow counts one more evict, unless there were too many of late.
func (g *guard) allow(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.sent) > 0 && now.Sub(g.sent[0]) >= evictWindow {
		g.sent = g.sent[1:]
	}
	if len(g.sent) >= evictLimit {
		return false
	}
	g.sent = append(g.sent, now)
	return true
}
