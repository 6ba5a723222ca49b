package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

// The TTL of the etcd lease of a leader key: its default and its limits.
const (
	DefaultTTL = 5 * time.Second
	MinTTL     = 2 * time.Second
	MaxTTL     = time.Minute
)

// Config configures an Election.
type Config struct {
	Store store.Store
	// Key is the leader key of the service.
	Key       string
	Candidate Candidate
	// TTL is the requested TTL of the etcd lease, 5 s by default. The TTL that etcd grants
	// applies.
	TTL time.Duration
	// WaitDead returns true once it considers the holder's process dead, and false if ctx
	// ends first; see Probe. If WaitDead is nil, only the TTL ends the leadership of a dead
	// process.
	WaitDead func(ctx context.Context, h Holder) bool
	// MayEvict reports whether this replica may delete the key of a leader that WaitDead
	// considers dead, for example whether the replica's view is current. If MayEvict is nil,
	// it may.
	MayEvict func() bool
	// Log may be nil.
	Log *slog.Logger
}

// Election is the part of one replica in the election of its service.
type Election struct {
	cfg Config

	mu        sync.Mutex
	waiting   *wait // nil unless this replica waits for the end of another leader
	evictions []eviction
}

// New checks the configuration and returns an Election.
func New(cfg Config) (*Election, error) {
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.TTL < MinTTL || cfg.TTL > MaxTTL {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the TTL of leadership must be between %v and %v, got %v",
			MinTTL, MaxTTL, cfg.TTL)
	}
	if c := cfg.Candidate; c.ID == "" || !utf8.ValidString(c.ID+c.Instance+c.Address+c.Version) {
		return nil, errors.New("leader: the candidate needs an ID, and all its fields must be valid UTF-8")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Election{cfg: cfg}, nil
}

// Campaign waits until this replica leads. It returns an error only if ctx ends. While
// the store is unreachable, Campaign retries with the pauses of store.Backoff. The
// leadership does not end with ctx: the caller must call Resign.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	logged := ""
	for attempt := 1; ctx.Err() == nil; attempt++ {
		s, err := openSession(ctx, e.cfg.Store, e.cfg.TTL)
		if err == nil {
			attempt, logged = 1, ""
			if l := e.campaign(ctx, s); l != nil {
				return l, nil
			}
			s.close()
		} else if err.Error() != logged {
			logged = err.Error()
			e.cfg.Log.Warn("cannot be a candidate without an etcd lease", "key", e.cfg.Key, "err", err)
		}
		if store.Sleep(ctx, store.Backoff(attempt)) != nil {
			break
		}
	}
	return nil, ctx.Err()
}

// campaign tries to create the key, and waits while another replica leads, until this
// replica wins. It returns nil if the session or ctx ends first.
func (e *Election) campaign(ctx context.Context, s *session) *Leadership {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for attempt := 1; ctx.Err() == nil; {
		term, holder, err := e.try(ctx, s)
		switch {
		case errors.Is(err, store.ErrLeaseNotFound):
			s.end(err)
		case err != nil:
			_ = store.Sleep(ctx, store.Backoff(attempt)) // the loop checks ctx
			attempt++
		case term == 0:
			attempt = 1
			e.await(ctx, s, holder)
		}
		if term != 0 && s.valid() {
			return newLeadership(e.cfg, s, term)
		}
	}
	return nil
}

// try creates the key if it does not exist. It returns the term if this session owns the
// key now, and otherwise the holder of the key.
func (e *Election) try(ctx context.Context, s *session) (term int64, holder Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	res, err := e.cfg.Store.Txn(ctx, store.Txn{
		If:   []store.Compare{store.Absent(e.cfg.Key)},
		Then: []store.Op{{Key: e.cfg.Key, Value: e.cfg.Candidate.record(time.Now()), Lease: s.lease.ID}},
		Else: []string{e.cfg.Key},
	})
	if err != nil {
		return 0, Holder{}, err
	}
	if res.Succeeded {
		return res.Revision, Holder{}, nil
	}
	kv := res.Got[e.cfg.Key]
	if kv.Lease == s.lease.ID {
		// An earlier attempt has created the key, and the answer to this attempt was lost.
		return kv.Create, Holder{}, nil
	}
	return 0, parseHolder(kv), nil
}

// await returns when the holder's key is deleted or ctx ends. If WaitDead returns true,
// await deletes the key itself.
func (e *Election) await(ctx context.Context, s *session, h Holder) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	since := time.Now()
	e.setWaiting(&wait{session: s, holder: h, since: since})
	defer e.setWaiting(nil)
	var group sync.WaitGroup
	if e.cfg.WaitDead != nil && h.Address != "" {
		group.Go(func() {
			// The key may be deleted only evictAge after this replica first saw the leader.
			if e.cfg.WaitDead(ctx, h) && store.Sleep(ctx, evictAge-time.Since(since)) == nil && e.evict(ctx, h) {
				cancel() // the watch would report the deletion a moment later
			}
		})
	}
	_ = waitDeleted(ctx, e.cfg.Store, e.cfg.Key, h.Term)
	cancel()
	group.Wait()
}

func (e *Election) setWaiting(w *wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = w
}
