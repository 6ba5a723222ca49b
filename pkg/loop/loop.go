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

// Config of a loop.
type Config[C model.Core] struct {
	// Service is the name the leader key and the chain go by.
	Service string
	// Replica and Version are told of what makes the core panic: what one version
	// of the program leaves alone, another tries again.
	Replica, Version string
	Space            keyspace.Space
	Store            store.Store
	// Election is where the replica stands for leader.
	Election *leader.Election
	// New makes a core that knows nothing.
	New func() C
	// Perform carries out an action that is neither an Effect nor a Reply. It
	// is called on the loop's goroutine, with the core as it is now, and must
	// not block: what takes time, Post included, runs in Term.Go.
	Perform func(t *Term, core C, action model.Action)
	// OnLead is told when the replica starts and stops to take requests. What comes
	// before Status says Serving is answered after the term's first round.
	OnLead func(serving bool)
	// Durable, if given, is told of job events once they are durable, in order.
	// It is called on the loop's goroutine and must not block.
	Durable func(Durable)
	// Events are the limits of what is kept of job events.
	Events EventLimits
	Log    *slog.Logger
}

// The bounds of the loop.
const (
	// inboxSize is how many requests wait for a round at most; one more is
	// refused as OVERLOADED.
	inboxSize = 8192
	// roundSize is how many requests one round takes: enough to fill a transaction
	// with requests of one write each, and no more, since nobody is answered before
	// the whole round is durable. What a pause has gathered is then answered from
	// the first transactions on.
	roundSize = 128
	// hangAfter is how long the loop may do nothing, not even ask etcd again. A
	// leader that hangs keeps its etcd lease as well as any, so it is made to give
	// way.
	hangAfter = 10 * time.Second
	// deadAfter is how long the loop may not come back from a single step, or from
	// anything else that it does by itself, until the process is told to be of no use:
	// longer than what is wound up within once a leader has given way.
	deadAfter = 3 * hangAfter
	// Tenures that fail at once, one after the other, are spaced out.
	shortestPause, longestPause = 10 * time.Millisecond, time.Second
	// finishWithin is how long a round under way may take once the replica is to
	// stop. What is then not known to be durable is answered as perhaps applied.
	finishWithin = time.Second
	// quarantineWithin is how long a leader whose core panicked may take to store
	// what of. Whoever is next would panic too, so that is worth a pause.
	quarantineWithin = 2 * time.Second
)

// Loop owns a core for as long as its replica runs.
type Loop[C model.Core] struct {
	cfg   Config[C]
	inbox chan item[C]
	ended chan struct{} // closed when Run has returned
	// followed is closed when the replica has read everything for the first time.
	followed chan struct{}
	reading  sync.Once
	status   atomic.Pointer[state]
	full     *full
	began    time.Time
	// turned is when the loop last showed that it turns, after began; 0 while it waits
	// for something to do.
	turned  atomic.Int64
	leaders *leaderKeys
	// met is what made the core panic, by id, and is not stored.
	met    map[string]*model.Poison
	panics *panics
}

// item is a request, an event without an answer, or a read.
type item[C model.Core] struct {
	ctx     context.Context
	request any
	// first, if given, is told to the core before the request.
	first   model.Event
	event   model.Event
	term    int64
	read    func(C)
	confirm bool
	// anywhere: a standby may answer the read.
	anywhere bool
	// resign is the term that is to end.
	resign int64
	// claimed is set by who comes first: the loop to call read, or the caller to
	// leave.
	claimed *atomic.Bool
	reply   chan result
}

type result struct {
	value any
	err   error
}

// Status is what a replica says of itself.
type Status struct {
	// Current says that the view is complete and follows the store.
	Current bool
	// Serving says that this replica leads and answers.
	Serving bool
	// Term, Since and Renewed are those of the replica's own leadership; they are
	// known before it serves.
	Term           int64
	Since, Renewed time.Time
	// Revision is what the view has reached.
	Revision int64
	// Events and EventBytes are how many job events etcd holds, of all services;
	// 0 while they are being counted.
	Events, EventBytes int
	// Aside is what the replica leaves alone.
	Aside []Aside
	// Panics are those of goroutines that handled what peers sent.
	Panics []Panic
}

// New answers a loop; Run runs it.
func New[C model.Core](cfg Config[C]) *Loop[C] {
	l := &Loop[C]{
		cfg: cfg, inbox: make(chan item[C], inboxSize), ended: make(chan struct{}), followed: make(chan struct{}),
		full: newFull(), began: time.Now(), met: map[string]*model.Poison{}, panics: newPanics(cfg.Log), leaders: newLeaderKeys(cfg.Store, cfg.Space),
	}
	l.status.Store(&state{})
	return l
}

// state is what the tenure under way has told of itself.
type state struct {
	view       *store.View
	leadership *leader.Leadership
	serving    bool
	revision   int64
	terms      map[string]int64 // of the services' leaders in the view
	kept       *Kept
	aside      []Aside
}

// Status may be called from any goroutine.
func (l *Loop[C]) Status() Status {
	s := l.status.Load()
	status := Status{Revision: s.revision, Aside: s.aside, Panics: l.panics.list()}
	if s.view != nil {
		status.Current = s.revision > 0 && s.view.Ready()
	}
	if s.kept != nil {
		if events, bytes, counted := s.kept.Total(); counted {
			status.Events, status.EventBytes = events, bytes
		}
	}
	if s.leadership != nil {
		status.Serving = s.serving && s.leadership.Valid()
		status.Term, status.Since, status.Renewed = s.leadership.Term(), s.leadership.Since(), s.leadership.Renewed()
	}
	return status
}

// Alive answers why the replica is of no use any more: its core hangs, leading or not.
// Nothing can end that but the end of the process. It is nil again should the core
// come back after all, and it always is while the loop waits for something to do.
func (l *Loop[C]) Alive() error {
	turned := time.Duration(l.turned.Load())
	if silent := time.Since(l.began) - turned; turned != 0 && silent > deadAfter {
		return fault.New(fault.Internal, fault.ReasonInternal, "the core of %s hangs: it has not come back for %v", l.cfg.Service, silent.Round(time.Second))
	}
	return nil
}

// turns shows that the loop turns, and waits that it has nothing to do.
func (l *Loop[C]) turns() { l.turned.Store(int64(max(1, time.Since(l.began)))) }
func (l *Loop[C]) waits() { l.turned.Store(0) }

// Ended is closed when Run has ended: streams that live on the loop end with it.
func (l *Loop[C]) Ended() <-chan struct{} { return l.ended }

// Followed is closed once the replica has read everything that is stored, which can
// take long: what Peek shows is then of use.
func (l *Loop[C]) Followed() <-chan struct{} { return l.followed }

// Do gives the core a request and waits for its reply. The error is a
// *fault.Error; of kind Unavailable when the outcome is unknown.
func (l *Loop[C]) Do(ctx context.Context, request any) (any, error) {
	first, err := l.vouch(ctx, request)
	if err != nil {
		return nil, err
	}
	return l.post(ctx, item[C]{ctx: ctx, request: request, first: first})
}

// vouch checks what a request says of the store. A replica that does not lead refuses
// the request anyway, and reads nothing.
func (l *Loop[C]) vouch(ctx context.Context, request any) (model.Event, error) {
	s := l.status.Load()
	if s.leadership == nil {
		return nil, nil
	}
	return Vouch(request, s.revision, func(service string) int64 { return s.terms[service] }, func(service string) (term, revision int64, err error) {
		return l.leaders.read(ctx, service)
	})
}

// Read calls fn with the core of the serving leader, on the goroutine that owns
// it, between rounds: fn sees committed state only, and must not keep the core.
// With confirm the term is confirmed with the store first, so that what fn sees
// is not older than the call. Once Read has returned fn is not called any more:
// what it sets is the caller's alone.
func (l *Loop[C]) Read(ctx context.Context, confirm bool, fn func(C)) error {
	_, err := l.post(ctx, item[C]{ctx: ctx, read: fn, confirm: confirm})
	return err
}

// Peek is Read on any replica: of a standby, fn sees what its view has reached.
func (l *Loop[C]) Peek(ctx context.Context, fn func(C)) error {
	_, err := l.post(ctx, item[C]{ctx: ctx, read: fn, anywhere: true})
	return err
}

// Resign ends a term at the caller's wish, so that another replica leads: what is
// being written is finished and answered first. It answers once the term is over;
// the error is NOT_LEADER when this replica does not lead in that term.
func (l *Loop[C]) Resign(ctx context.Context, term int64) error {
	if term <= 0 {
		return fault.New(fault.Precondition, fault.ReasonNotLeader, "%d is no term of %s", term, l.cfg.Service)
	}
	_, err := l.post(ctx, item[C]{ctx: ctx, resign: term})
	return err
}

func (l *Loop[C]) post(ctx context.Context, it item[C]) (any, error) {
	it.reply, it.claimed = make(chan result, 1), &atomic.Bool{}
	var full <-chan struct{} // reads go on
	if it.request != nil {
		full = l.full.now()
	}
	select {
	case l.inbox <- it:
	default:
		return nil, fault.New(fault.Exhausted, fault.ReasonOverloaded, "%d requests wait already", inboxSize)
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
		return nil, errFull("perhaps applied")
	case <-ctx.Done():
		if it.read != nil && !it.claim() {
			r := <-it.reply // it is being read this very moment
			return r.value, r.err
		}
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer in time: perhaps applied").Because(ctx.Err())
	}
}

// Run follows the view and stands for leader until ctx ends; then it gives the
// leadership up. It is called once.
func (l *Loop[C]) Run(ctx context.Context) {
	defer close(l.ended)
	for pause := shortestPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		began := time.Now()
		err := newTenure(l).run(ctx)
		l.waits()
		l.full.set(false) // who leads next finds out anew
		l.status.Store(&state{})
		if ctx.Err() != nil {
			return
		}
		poisoned := (*Poisoned)(nil)
		switch {
		case errors.Is(err, errAsked):
			l.cfg.Log.Info("resigned as asked")
		case errors.As(err, &poisoned):
			l.meet(poisoned)
		default:
			l.cfg.Log.Warn("leadership or view ended; starting afresh", "error", err)
		}
		if time.Since(began) > longestPause {
			pause = shortestPause
		}
		_ = store.Sleep(ctx, pause) // the loop looks at ctx
	}
}

// meet remembers what made the core panic, unless the leader has stored it.
func (l *Loop[C]) meet(p *Poisoned) {
	object, id := "", ""
	if p.Poison != nil {
		object, id = cmp.Or(p.Poison.Key, p.Poison.Request), p.Poison.ID
		if !p.kept {
			l.met[id] = p.Poison
		}
	}
	l.cfg.Log.Error("the core panicked; starting afresh", "panic", p.Panic, "blamed", object, "id", id, "kept", p.kept, "stack", p.Stack)
}

// claim says whether the item is the caller's of claim alone.
func (it item[C]) claim() bool { return it.claimed.CompareAndSwap(false, true) }

// view answers a read, unless its caller has gone.
func (it item[C]) view(core C) {
	if it.claim() {
		it.answer(nil, look(it.read, core))
	}
}

// look reads the core. A read that panics has changed nothing.
func look[C model.Core](read func(C), core C) (err error) {
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
