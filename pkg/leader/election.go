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

// DefaultTTL of the etcd lease behind a leader key; it may be MinTTL to MaxTTL.
const (
	DefaultTTL = 5 * time.Second
	MinTTL     = 2 * time.Second
	MaxTTL     = time.Minute
)

// Config of an Election.
type Config struct {
	Store store.Store
	// Key is the fixed key of the service's election.
	Key       string
	Candidate Candidate
	// TTL to ask etcd for, 5 s by default; what etcd grants counts.
	TTL time.Duration
	// Prove returns true once the holder's process is proven dead, and false if ctx
	// ends first; see Prover. Optional: without it only the TTL ends a leadership.
	Prove func(ctx context.Context, h Holder) bool
	// MayEvict reports whether this replica may delete a dead leader's key, for
	// example whether its view is current. Optional.
	MayEvict func() bool
	// Log is optional.
	Log *slog.Logger
}

// Election is one replica's part in the election of its service.
type Election struct {
	cfg   Config
	guard guard

	mu      sync.Mutex
	waiting *wait // nil unless this replica waits for another to go
}

// New checks the configuration and makes an Election.
func New(cfg Config) (*Election, error) {
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.TTL < MinTTL || cfg.TTL > MaxTTL {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the TTL %v of leadership is not within %v and %v", cfg.TTL, MinTTL, MaxTTL)
	}
	if c := cfg.Candidate; c.ID == "" || !utf8.ValidString(c.ID+c.Instance+c.Address+c.Version) {
		return nil, errors.New("leader: the candidate has no readable id")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Election{cfg: cfg}, nil
}

// Campaign waits until this replica leads. The only error is that of ctx: while
// the store is out of reach it goes on trying, with the pauses of store.Backoff.
// The leadership is independent of ctx and is to be resigned.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		s, err := openSession(ctx, e.cfg.Store, e.cfg.TTL)
		if err == nil {
			attempt = 1
			if l := e.campaign(ctx, s); l != nil {
				return l, nil
			}
			s.close()
		} else {
			e.cfg.Log.Warn("no etcd lease, so no candidate", "key", e.cfg.Key, "err", err)
		}
		if store.Sleep(ctx, store.Backoff(attempt)) != nil {
			break
		}
	}
	return nil, ctx.Err()
}

// campaign tries and waits for as long as the session lives; nil means that it,
// or ctx, is over.
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
			_ = store.Sleep(ctx, store.Backoff(attempt)) // the loop looks at ctx
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

// try creates the key if it is not there. It answers the term if this session
// holds the key now, and otherwise who does.
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
		// An earlier attempt, whose answer was lost.
		return kv.Create, Holder{}, nil
	}
	holder, _ = ParseHolder(kv)
	holder.Term = kv.Create
	return 0, holder, nil
}

// await returns when the holder's key is deleted or ctx ends. If the holder is proven
// dead, await deletes the key itself.
func (e *Election) await(ctx context.Context, s *session, h Holder) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	since := time.Now()
	e.setWaiting(&wait{session: s, holder: h, since: since})
	defer e.setWaiting(nil)
	var group sync.WaitGroup
	if e.cfg.Prove != nil && h.Address != "" {
		group.Go(func() {
			// A proof stays good until the leader is old enough to be evicted.
			if e.cfg.Prove(ctx, h) && store.Sleep(ctx, evictAge-time.Since(since)) == nil && e.evict(ctx, h) {
				cancel() // the watch would report the same a moment later
			}
		})
	}
	_ = follow(ctx, e.cfg.Store, e.cfg.Key, func(kv store.KV, found bool) bool {
		return found && kv.Create == h.Term
	})
	cancel()
	group.Wait()
}

func (e *Election) setWaiting(w *wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = w
}
