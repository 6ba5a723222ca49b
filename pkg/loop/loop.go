package loop

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Config configures a Loop.
type Config[C model.Core] struct {
	// Service is the name of the service, which determines the leader key and the chain key.
	Service string
	// Replica and Version are stored with the cause of a panic of the core. Another version
	// of the program does not quarantine this cause.
	Replica, Version string
	Space            keyspace.Space
	Store            store.Store
	// Election elects the leader of the service.
	Election *leader.Election
	// New returns a core without state.
	New func() C
	// Perform carries out an action that is neither an Effect nor a Reply. It runs on the
	// loop's goroutine, so it may read the core and must not block. Slow work, including
	// Term.Post, must run in Term.Go.
	Perform func(t *Term, core C, action model.Action)
	// OnLead is called with true when the replica starts to accept requests, and with false
	// when it stops. A request that arrives before Status reports Serving is answered after
	// the term's first round.
	OnLead func(serving bool)
	// Durable, if set, receives job events in order once they are durable. It runs on
	// the loop's goroutine and must not block.
	Durable func(Durable)
	// Events limits the job events in the store.
	Events EventLimits
	Log    *slog.Logger
}

// The limits of the loop.
const (
	// inboxSize is the maximum number of queued requests. The loop refuses further requests
	// as OVERLOADED.
	inboxSize = 8192
	// roundSize is the maximum number of changes, requests and reads in one round. Requests
	// that write one key each fill a transaction at this size. A larger round would delay
	// all of its answers, because the loop sends the answers once the whole round is
	// durable.
	roundSize = 128
	// hangAfter is how long a leading loop may make no progress; a retry of a call to etcd
	// is progress. A hanging leader still renews its etcd lease, so it must resign.
	hangAfter = 10 * time.Second
	// deadAfter is how long the loop may make no progress before Alive returns an error. It
	// is longer than the time in which a hanging leader ends its term.
	deadAfter = 3 * hangAfter
	// The shortest and the longest pause between two tenures, if tenures fail right after
	// their start.
	shortestPause, longestPause = 10 * time.Millisecond, time.Second
	// finishWithin is the maximum time for the current round when the replica stops. After
	// that time the error of a pending request says that the request may have been applied.
	finishWithin = time.Second
	// quarantineWithin is how long a leader whose core panicked tries to store the cause. If
	// the cause is not stored, the next leader panics too, so this delay is justified.
	quarantineWithin = 2 * time.Second
)

// Loop owns a core for as long as its replica runs.
type Loop[C model.Core] struct {
	cfg   Config[C]
	inbox chan item[C]
	ended chan struct{} // closed when Run has returned
	// followed is closed when the replica has read the whole store for the first time.
	followed     chan struct{}
	followedOnce sync.Once
	status       atomic.Pointer[state]
	full         *fullSignal
	began        time.Time
	// progressed is the time, since began, of the loop's last progress; 0 while the
	// loop is idle.
	progressed atomic.Int64
	leaders    *leaderReader
	// unstored has the poison that this process found and could not store, by ID.
	unstored map[string]*model.Poison
	panics   *panics
}

// item is a request, an event without an answer, or a read.
type item[C model.Core] struct {
	ctx     context.Context
	request any
	// first, if set, is an event that the core receives before the request.
	first   model.Event
	event   model.Event
	term    int64
	read    func(C)
	confirm bool
	// anywhere allows a standby to answer the read.
	anywhere bool
	// resign is the term to end, or 0.
	resign int64
	// claimed decides between the loop and the caller: the loop sets it before it calls
	// read, and the caller before it leaves. Only the first of the two succeeds.
	claimed *atomic.Bool
	reply   chan result
}

type result struct {
	value any
	err   error
}

// Status describes a replica.
type Status struct {
	// Current is true if the view is complete and follows the store.
	Current bool
	// Serving is true if this replica leads and answers requests.
	Serving bool
	// Term, Since and Renewed describe the replica's own leadership. They are set before the
	// replica serves.
	Term           int64
	Since, Renewed time.Time
	// Ended is closed when the term ends. It is nil if the replica does not lead.
	Ended <-chan struct{}
	// Revision is the revision that the view has reached.
	Revision int64
	// Events and EventBytes are the number and the total size of the job events of all
	// services in etcd. They are 0 until the loop has counted all events.
	Events, EventBytes int
	// Quarantined lists the records, requests and decisions that the replica ignores.
	Quarantined []Quarantined
	// Panics lists panics of goroutines that handled messages from peers.
	Panics []Panic
}

// New returns a loop. The caller must call Run.
func New[C model.Core](cfg Config[C]) *Loop[C] {
	l := &Loop[C]{
		cfg: cfg, inbox: make(chan item[C], inboxSize), ended: make(chan struct{}), followed: make(chan struct{}),
		full: newFullSignal(), began: time.Now(), unstored: map[string]*model.Poison{}, panics: newPanics(cfg.Log),
		leaders: newLeaderReader(cfg.Store, cfg.Space),
	}
	l.status.Store(&state{})
	return l
}

// state is what the current tenure has published.
type state struct {
	view        *store.View
	leadership  *leader.Leadership
	serving     bool
	revision    int64
	leaders     map[string]leaderEntry // in the view, by service
	events      *EventIndex
	quarantined []Quarantined
}

// Status returns the status of the replica. It may be called from any goroutine.
func (l *Loop[C]) Status() Status {
	s := l.status.Load()
	status := Status{Revision: s.revision, Quarantined: s.quarantined, Panics: l.panics.list()}
	if s.view != nil {
		status.Current = s.revision > 0 && s.view.Ready()
	}
	if s.events != nil {
		if events, bytes, counted := s.events.Total(); counted {
			status.Events, status.EventBytes = events, bytes
		}
	}
	if s.leadership != nil {
		status.Serving = s.serving && s.leadership.Valid()
		status.Ended = s.leadership.Done()
		status.Term, status.Since, status.Renewed = s.leadership.Term(), s.leadership.Since(), s.leadership.Renewed()
	}
	return status
}

// Alive returns an error if the core hangs, whether or not the replica leads. Only a
// restart of the process helps then. Alive returns nil again if the core returns after
// all. It always returns nil while the loop is idle.
func (l *Loop[C]) Alive() error {
	if stalled := l.stalled(); stalled > deadAfter {
		return fault.New(fault.Internal, fault.ReasonInternal, "the core of %s hangs: no progress for %v", l.cfg.Service,
			stalled.Round(time.Second))
	}
	return nil
}

// progress records that the loop makes progress. idle records that the loop has nothing
// to do.
func (l *Loop[C]) progress() { l.progressed.Store(int64(max(1, time.Since(l.began)))) }
func (l *Loop[C]) idle()     { l.progressed.Store(0) }

// stalled returns the time since the last progress, or 0 while the loop is idle.
func (l *Loop[C]) stalled() time.Duration {
	at := time.Duration(l.progressed.Load())
	if at == 0 {
		return 0
	}
	return time.Since(l.began) - at
}

// Ended returns a channel that is closed when Run has returned. Streams that depend on
// the loop must end then.
func (l *Loop[C]) Ended() <-chan struct{} { return l.ended }

// Followed returns a channel that is closed once the replica has read the whole store,
// which can take long. Before that, Peek shows an incomplete state.
func (l *Loop[C]) Followed() <-chan struct{} { return l.followed }

// Do passes a request to the core and waits for the reply. The error is a *fault.Error.
// It is of kind Unavailable if the outcome is unknown.
func (l *Loop[C]) Do(ctx context.Context, request any) (any, error) {
	first, err := l.checkClaims(ctx, request)
	if err != nil {
		return nil, err
	}
	return l.post(ctx, item[C]{ctx: ctx, request: request, first: first})
}

// checkClaims checks the term and the revision in a request. If this replica does not
// lead, checkClaims reads nothing, because the loop refuses the request anyway.
func (l *Loop[C]) checkClaims(ctx context.Context, request any) (model.Event, error) {
	s := l.status.Load()
	if s.leadership == nil {
		return nil, nil
	}
	return CheckClaims(request, s.revision, func(service string) int64 { return s.leaders[service].term },
		func(service string) (term, revision int64, err error) {
			return l.leaders.read(ctx, service)
		})
}

// Read calls fn with the core of the serving leader, on the goroutine that owns the core,
// between rounds. So fn sees only committed state. fn must not keep the core after it
// returns. If confirm is true, the loop first confirms the term with the store, so that
// the state is not older than the call. After Read has returned, the loop does not call
// fn, so the caller may use the variables that fn sets.
func (l *Loop[C]) Read(ctx context.Context, confirm bool, fn func(C)) error {
	_, err := l.post(ctx, item[C]{ctx: ctx, read: fn, confirm: confirm})
	return err
}

// Now implements Owner.
func (l *Loop[C]) Now() time.Time { return time.Now() }

// Peek is like Read, but works on every replica. On a standby fn sees the state that the
// view of the standby has reached.
func (l *Loop[C]) Peek(ctx context.Context, fn func(C)) error {
	_, err := l.post(ctx, item[C]{ctx: ctx, read: fn, anywhere: true})
	return err
}

// Resign ends a term on request, so that another replica leads. The loop finishes and
// answers the current round first. Resign returns once the term is over. The error is
// NOT_LEADER if this replica does not lead in that term.
func (l *Loop[C]) Resign(ctx context.Context, term int64) error {
	if term <= 0 {
		return fault.New(fault.Precondition, fault.ReasonNotLeader, "term: must be positive, got %d", term)
	}
	_, err := l.post(ctx, item[C]{ctx: ctx, resign: term})
	return err
}

func (l *Loop[C]) post(ctx context.Context, it item[C]) (any, error) {
	it.reply, it.claimed = make(chan result, 1), &atomic.Bool{}
	var full <-chan struct{} // nil for reads, which do not fail while the store is full
	if it.request != nil {
		full = l.full.raised()
	}
	select {
	case l.inbox <- it:
	default:
		return nil, fault.New(fault.Exhausted, fault.ReasonOverloaded, "%d requests are queued already: retry later",
			inboxSize)
	}
	select {
	case r := <-it.reply:
		return r.value, r.err
	case <-l.ended:
		select {
		case r := <-it.reply:
			return r.value, r.err
		default:
			return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "the replica is stopping")
		}
	case <-full:
		return nil, errFull(outcomeUnknown)
	case <-ctx.Done():
		if it.read != nil && !it.claim() {
			r := <-it.reply // the loop is calling read at this moment
			return r.value, r.err
		}
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "timed out; %s", outcomeUnknown).Because(ctx.Err())
	}
}

// outcomeUnknown is the end of the error message of a request whose outcome is unknown.
const outcomeUnknown = "the request may have been applied"

// Run follows the view and campaigns for the leadership until ctx ends. Then it resigns.
// It must be called only once.
func (l *Loop[C]) Run(ctx context.Context) {
	defer close(l.ended)
	for pause := shortestPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		began := time.Now()
		err := newTenure(l).run(ctx)
		l.idle()
		l.full.set(false) // the next leader finds out for itself whether the store is full
		l.status.Store(&state{})
		if ctx.Err() != nil {
			return
		}
		poisoned := (*Poisoned)(nil)
		switch {
		case errors.Is(err, errResignRequested):
			l.cfg.Log.Info("resigned on request")
		case errors.As(err, &poisoned):
			l.remember(poisoned)
		default:
			l.cfg.Log.Warn("leadership or view ended; rebuilding the core", "error", err)
		}
		switch {
		case errors.Is(err, errResignRequested):
			pause = longestPause // so that a standby wins, even if it has just started
		case time.Since(began) > longestPause:
			pause = shortestPause
		}
		_ = store.Sleep(ctx, pause) // the loop checks ctx
	}
}

// remember keeps the cause of a panic of the core in memory, unless the leader has stored
// the cause.
func (l *Loop[C]) remember(p *Poisoned) {
	object, id := "", ""
	if p.Poison != nil {
		object, id = cmp.Or(p.Poison.Key, p.Poison.Request), p.Poison.ID
		if !p.stored {
			l.unstored[id] = p.Poison
		}
	}
	l.cfg.Log.Error("the core panicked; rebuilding it", "panic", p.Panic, "blamed", object, "id", id, "stored", p.stored,
		"stack", p.Stack)
}

// claim reports whether this call claimed the item. Only the first call for an item
// returns true.
func (it item[C]) claim() bool { return it.claimed.CompareAndSwap(false, true) }

// view calls the function of a read and answers the read, unless its caller has left.
func (it item[C]) view(core C) {
	if it.claim() {
		it.answer(nil, recovered(it.read, core))
	}
}

// recovered calls read and returns a panic as an error. A read does not change the core,
// so the core remains valid.
func recovered[C model.Core](read func(C), core C) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fault.New(fault.Internal, fault.ReasonInternal, "the read panicked: %v\n%s", what, debug.Stack())
		}
	}()
	read(core)
	return nil
}

func (it item[C]) answer(value any, err error) {
	if it.reply != nil {
		it.reply <- result{value, err}
	}
}
