package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// Why a leadership is over.
var (
	// ErrExpired: it was not renewed in time, or etcd says that the lease is gone.
	ErrExpired = errors.New("leader: not renewed in time")
	// ErrDeposed: the key was deleted, or another leads.
	ErrDeposed = errors.New("leader: deposed")
	// ErrResigned: Resign was called.
	ErrResigned = errors.New("leader: resigned")
)

// Leadership is one term of one leader.
type Leadership struct {
	cfg     Config
	session *session
	term    int64
	since   time.Time
}

func newLeadership(cfg Config, s *session, term int64) *Leadership {
	l := &Leadership{cfg: cfg, session: s, term: term, since: time.Now()}
	s.group.Go(func() {
		err := follow(s.ctx, cfg.Store, cfg.Key, func(kv store.KV, found bool) bool {
			return found && kv.Create == term
		})
		if err == nil {
			s.end(ErrDeposed)
		}
	})
	return l
}

// Term is the create revision of the key: the fencing token.
func (l *Leadership) Term() int64 { return l.term }

// Revision is that of the win, which a view must have reached before its replica
// serves. It is the same number as the term.
func (l *Leadership) Revision() int64 { return l.term }

// Done closes when the leadership is over, or may be.
func (l *Leadership) Done() <-chan struct{} { return l.session.ctx.Done() }

// Err says why the leadership is over; nil while it is not.
func (l *Leadership) Err() error { return context.Cause(l.session.ctx) }

// Valid says that the leadership can be trusted now. Unlike Done it is right at
// once in a process that was frozen.
func (l *Leadership) Valid() bool { return l.session.valid() }

// Since is when the leadership began.
func (l *Leadership) Since() time.Time { return l.since }

// Renewed is when the last successful renewal was sent.
func (l *Leadership) Renewed() time.Time { return l.session.lastRenewed() }

// Resign ends the leadership and deletes the key, so that another can win at
// once. It is called after the last write of the term, also when the leadership
// is over for another reason. It repeats what is ambiguous until ctx is over, and
// can then be called again; the key goes with its TTL in any case.
func (l *Leadership) Resign(ctx context.Context) error {
	l.session.end(ErrResigned)
	txn := store.Txn{
		If:   []store.Compare{store.CreatedAt(l.cfg.Key, l.term)},
		Then: []store.Op{store.Delete(l.cfg.Key)},
	}
	for attempt := 1; ; attempt++ {
		actx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
		_, err := l.cfg.Store.Txn(actx, txn)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrAmbiguous) || store.Sleep(ctx, store.Backoff(attempt)) != nil {
			return fmt.Errorf("leader: resign term %d: %w", l.term, err)
		}
	}
	l.session.close()
	return nil
}
