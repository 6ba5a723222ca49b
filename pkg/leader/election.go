package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"berth.dev/pkg/fault"
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
	// Prove returns true once the holder's process is proven dead, and false when
	// ctx is over; see Prover. It calls suspect whenever it has reason to look
	// closer. Optional: without it only the TTL tells.
	Prove func(ctx context.Context, h Holder, suspect func()) bool
	// Suspect is told when there is reason to believe that the leader's process is
	// gone, before that is proven: whoever may lead in a moment can prepare. It must
	// not block. Optional.
	Suspect func()
	// MayEvict is asked before an evict, such as whether this replica's view is
	// current. Optional.
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
			term = e.await(ctx, s, holder)
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

// await returns when the holder's key is gone, or ctx is over, with the term that
// this replica has won meanwhile, if any.
func (e *Election) await(standing context.Context, s *session, h Holder) int64 {
	ctx, cancel := context.WithCancel(standing)
	since, won := time.Now(), int64(0)
	e.setWaiting(&wait{session: s, holder: h, since: since})
	defer cancel()
	var group sync.WaitGroup
	if e.cfg.Prove != nil && h.Address != "" {
		group.Go(func() {
			// What an evict needs to know of etcd is asked while the proof is made.
			var calm *inquiry
			suspect := func() {
				if e.cfg.Suspect != nil {
					e.cfg.Suspect()
				}
				asked := &inquiry{sent: time.Now(), answer: make(chan error, 1)}
				group.Go(func() { asked.answer <- e.calm(ctx) })
				calm = asked
			}
			if !e.cfg.Prove(ctx, h, suspect) {
				return
			}
			// Dead is dead: the proof is as good once the leader is old enough, and
			// whatever else is in the way has passed.
			if store.Sleep(ctx, evictAge-time.Since(since)) == nil {
				won = e.replace(standing, ctx, s, h, calm)
				cancel() // the key is gone: nobody needs to be told by a watch
			}
		})
	}
	_ = follow(ctx, e.cfg.Store, e.cfg.Key, func(kv store.KV, found bool) bool {
		return found && kv.Create == h.Term
	})
	cancel()
	group.Wait()
	e.setWaiting(nil)
	return won
}

func (e *Election) setWaiting(w *wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = w
}
