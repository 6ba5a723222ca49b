package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// The reasons for the end of a leadership.
var (
	// ErrExpired: the etcd lease was not renewed in time, or etcd reports that the lease has
	// expired.
	ErrExpired = errors.New("leader: not renewed in time")
	// ErrDeposed: the key was deleted, or another replica has created it.
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
		if waitDeleted(s.ctx, cfg.Store, cfg.Key, term) == nil {
			s.end(ErrDeposed)
		}
	})
	return l
}

// Term returns the create revision of the key, which is the fencing token.
func (l *Leadership) Term() int64 { return l.term }

// Revision returns the revision of the win, which is the same number as the term. The
// replica's view must reach this revision before the replica serves.
func (l *Leadership) Revision() int64 { return l.term }

// Done returns a channel that is closed when the leadership is over, or may be over.
func (l *Leadership) Done() <-chan struct{} { return l.session.ctx.Done() }

// Err returns the reason why the leadership is over, or nil while it is not over.
func (l *Leadership) Err() error { return context.Cause(l.session.ctx) }

// Valid reports whether the leadership is valid now. Unlike Done, Valid is correct
// immediately after the process was frozen, because it reads the clock.
func (l *Leadership) Valid() bool { return l.session.valid() }

// Since returns the time at which the leadership began.
func (l *Leadership) Since() time.Time { return l.since }

// Renewed returns the time at which the last successful renewal was sent.
func (l *Leadership) Renewed() time.Time { return l.session.lastRenewed() }

// Resign ends the leadership and deletes the key, so that another replica can win at
// once. The caller must call Resign after the last write of the term, also if the
// leadership is over for another reason. Resign retries while the outcome is ambiguous,
// until ctx ends; the caller may then call it again. If Resign never succeeds, the TTL
// deletes the key.
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
