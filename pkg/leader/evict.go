package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth.dev/pkg/store"
)

const (
	// evictLimit leaders are evicted in an evictWindow by one replica at most: two
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

// replace evicts the holder, which is proven dead, and stands, again and again until
// its key is gone, which ends gone too. It answers the term that it won, if any. What
// was in the way, an etcd that elects a leader of its own, or an answer that was lost,
// is asked for once more with the pauses of store.Backoff: without that the TTL would
// decide, and etcd gives every lease a new one when its leader changes.
func (e *Election) replace(standing, gone context.Context, s *session, h Holder, calm *inquiry) (won int64) {
	log := e.cfg.Log.With("key", e.cfg.Key, "leader", h.ID, "term", h.Term)
	for attempt := 1; ; attempt++ {
		err := e.mayEvict(gone, h.Term, calm)
		if calm = nil; err == nil {
			// That the key is gone does not end this.
			won, err = e.succeed(standing, gone, s, h.Term)
		}
		switch {
		case won != 0, err == nil:
			log.Info("the leader's process was dead, and is evicted")
			return won
		case gone.Err() != nil:
			return 0
		case attempt == 1:
			log.Warn("the leader's process is dead, but not evicted yet", "err", err)
		}
		if store.Sleep(gone, store.Backoff(attempt)) != nil {
			return 0
		}
	}
}

// mayEvict says why the leader of a term, which is proven dead, is not to be evicted,
// and counts that it is otherwise. Only a waiting candidate evicts, and only when its
// own session lives, its view is current, etcd has no alarm, the leader was there for a
// second, and this replica has not evicted three within a minute. Calm is of who may
// have asked already whether etcd is; without it, or when that was too long ago, it
// asks now. An error that does not wrap ErrNotEvicted is one of the store's.
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
	if !e.guard.allow(time.Now(), term) {
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
	removed := make(chan error, 1)
	go func() { removed <- e.remove(ctx, term) }()
	spin(standAfter)
	// An error leaves it open who leads. Whoever asks next is told.
	if won, _, _ = e.try(ctx, s); won != 0 {
		return won, nil
	}
	select {
	case err := <-removed:
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

// guard counts the leaders that were evicted.
type guard struct {
	mu   sync.Mutex
	sent []evicted
}

// evicted is a leader's term, and when its evict was first sent.
type evicted struct {
	term int64
	at   time.Time
}

// allow counts one more leader, unless there were too many of late. One that was
// counted is not counted again.
func (g *guard) allow(now time.Time, term int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.sent) > 0 && now.Sub(g.sent[0].at) >= evictWindow {
		g.sent = g.sent[1:]
	}
	if slices.ContainsFunc(g.sent, func(e evicted) bool { return e.term == term }) {
		return true
	}
	if len(g.sent) >= evictLimit {
		return false
	}
	g.sent = append(g.sent, evicted{term, now})
	return true
}
