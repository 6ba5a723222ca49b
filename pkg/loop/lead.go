package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// errAsked ends a term that somebody asked to end.
var errAsked = errors.New("loop: asked to resign")

// lead serves one term. When leaving ends, the round under way is finished first.
func (t *tenure[C]) lead(leaving context.Context) error {
	l, leadership := t.l, t.leadership
	ctx, over := context.WithCancel(context.WithoutCancel(leaving))
	late := context.AfterFunc(leaving, func() { time.AfterFunc(finishWithin, over) })
	defer late()
	t.term = &Term{Number: leadership.Term(), ctx: ctx, guard: l.Guard, post: func(event model.Event) {
		select {
		case l.inbox <- item[C]{ctx: ctx, event: event, term: leadership.Term()}:
		case <-ctx.Done():
		}
	}}
	t.turn()
	var watching sync.WaitGroup
	watching.Go(func() {
		defer over()
		t.watch(ctx)
	})
	defer func() {
		l.cfg.OnLead(false)
		t.publish(false)
		over()
		watching.Wait()
		defer t.refuse()()
		t.release()
		resign(leadership)
		for _, it := range t.resigning {
			it.answer(nil, nil)
		}
	}()
	err := t.serve(ctx, leaving)
	if poisoned := (*Poisoned)(nil); errors.As(err, &poisoned) {
		t.quarantine(poisoned)
	}
	return err
}

// quarantine has the leader's last act be to store what made its core panic, and
// answers whoever asked for it. If it cannot, this replica alone remembers it.
func (t *tenure[C]) quarantine(p *Poisoned) {
	if p.Poison == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), quarantineWithin)
	defer cancel()
	p.kept = t.driver.Log != nil && t.driver.Keep(ctx, p.Poison) == nil
	if it, waits := t.waiting[p.Token]; waits {
		delete(t.waiting, p.Token)
		it.answer(nil, poisonous(p.Poison))
	}
}

// watch returns when the term is to end: the leadership is over, or the loop
// hangs. Then whoever can still turn is to lead, so it resigns in its place.
func (t *tenure[C]) watch(ctx context.Context) {
	tick := time.NewTicker(hangAfter / 4)
	defer tick.Stop()
	for {
		select {
		case <-t.leadership.Done():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			if since := time.Since(*t.turned.Load()); since > hangAfter {
				t.l.cfg.Log.Error("the loop hangs: resigning", "term", t.leadership.Term(), "for", since)
				t.l.cfg.OnLead(false)
				resign(t.leadership)
				return
			}
		}
	}
}

// turn notes that the loop turns.
func (t *tenure[C]) turn() {
	now := time.Now()
	t.turned.Store(&now)
	t.l.turns()
}

// pause is what lies between two attempts at a call of the store, the first
// pause being 1: none after one that itself took longer, since what is answered
// late needs no more time. To wait for etcd is not to hang.
func (t *tenure[C]) pause(ctx context.Context, n int) error {
	took := time.Since(*t.turned.Load())
	t.turn()
	defer t.turn()
	return store.Sleep(ctx, store.Backoff(n)-took)
}

// release answers all who wait, and waits for the calls under way.
func (t *tenure[C]) release() {
	var unknown error = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the leadership of %s ended: perhaps applied", t.l.cfg.Service)
	if !t.driver.leads {
		unknown = t.notLeader() // the core was told of nothing
	}
	for _, it := range t.waiting {
		it.answer(nil, unknown)
	}
	for _, it := range t.reads {
		it.answer(nil, unknown)
	}
	clear(t.waiting)
	t.reads = nil
	t.term.calls.Wait()
}

// refuse answers whoever still asks while the term winds up, which takes seconds
// when the store is out of reach: another may lead meanwhile. It does so until
// the function that it answers is called.
func (t *tenure[C]) refuse() (stop func()) {
	ended := make(chan struct{})
	var refusing sync.WaitGroup
	notLeader := t.notLeader()
	refusing.Go(func() {
		for {
			select {
			case it := <-t.l.inbox:
				it.answer(nil, notLeader)
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); refusing.Wait() }
}

func (t *tenure[C]) serve(ctx, leaving context.Context) error {
	l, leadership := t.l, t.leadership
	// Who asks is sent here from now on, and is answered with the first round.
	t.publish(false)
	l.cfg.OnLead(true)
	t.view.Want(leadership.Revision())
	for !t.driver.CaughtUp(leadership.Revision()) {
		b, err := t.next(ctx)
		if err != nil {
			return err
		}
		if err := t.follow(ctx, b); err != nil {
			return err
		}
	}
	log := store.NewCommitter(l.cfg.Store, store.CommitterConfig{
		LeaderKey: l.cfg.Space.Key(model.LeaderRef(l.cfg.Service)), Term: leadership.Term(),
		ChainKey: l.cfg.Space.Key(model.Ref{Kind: model.KindChain, ID: l.cfg.Service}), Chain: t.driver.Chain(),
		Wait:      func(ctx context.Context, attempt int) error { return t.pause(ctx, attempt-1) },
		Attempted: l.full.attempted,
	})
	actions, err := t.driver.Lead(ctx, Leading{
		Term: leadership.Term(), Log: shown{log, t.view}, Source: t, Confirm: t.confirm,
		Grant: t.grant, Revoke: l.cfg.Store.Revoke, Durable: t.durable(),
	})
	if err == nil {
		l.cfg.Log.Info("leading", "term", leadership.Term(), "revision", t.driver.Revision(), "after", time.Since(leadership.Since()))
	}

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.carryOut(actions)
		if err != nil {
			return err
		}
		t.publish(true)
		if err := t.answerReads(ctx); err != nil {
			return err
		}
		if len(t.resigning) > 0 {
			return errAsked
		}
		t.turn()
		timer.Reset(t.untilDeadline())
		var r round
		select {
		case <-ctx.Done():
			if err := leadership.Err(); err != nil {
				return err
			}
			return ctx.Err()
		case <-leaving.Done():
			return leaving.Err()
		case b := <-t.batches:
			if r.changes, err = t.driver.Events(b); err != nil {
				return err
			}
		case it := <-l.inbox:
			t.take(it, &r)
		case <-timer.C:
		}
		if err := t.drain(&r); err != nil {
			return err
		}
		if !leadership.Valid() {
			return errors.New("the renew deadline has passed")
		}
		actions, err = t.driver.Round(ctx, r.events(t.due()))
	}
}

// untilDeadline is how long the loop may wait: until the driver's deadline, and
// never so long that it would seem to hang.
func (t *tenure[C]) untilDeadline() time.Duration {
	deadline := t.driver.NextDeadline()
	if deadline.IsZero() {
		return hangAfter / 4
	}
	return min(max(0, time.Until(deadline)), hangAfter/4)
}

// round is what one turn of the loop takes.
type round struct {
	changes, requests []model.Event
}

// events orders a round: changes first, so that requests are decided on what
// is; last, where it is due, that time has passed.
func (r *round) events(due bool) []model.Event {
	events := append(r.changes, r.requests...) //nolint:gocritic // nothing reads the round after this
	if due {
		events = append(events, nil)
	}
	return events
}

func (t *tenure[C]) due() bool {
	deadline := t.driver.NextDeadline()
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// drain takes what else is waiting, up to the bound of a round.
func (t *tenure[C]) drain(r *round) error {
	for len(r.changes)+len(r.requests)+len(t.reads) < roundSize {
		select {
		case b := <-t.batches:
			events, err := t.driver.Events(b)
			if err != nil {
				return err
			}
			r.changes = append(r.changes, events...)
		case it := <-t.l.inbox:
			t.take(it, r)
		default:
			return nil
		}
	}
	return nil
}

func (t *tenure[C]) take(it item[C], r *round) {
	switch {
	case it.event != nil:
		if it.term == t.term.Number {
			r.requests = append(r.requests, it.event)
		}
	case it.resign == t.term.Number:
		t.resigning = append(t.resigning, it)
	case it.resign != 0:
		it.answer(nil, fault.New(fault.Precondition, fault.ReasonNotLeader, "this replica of %s leads in term %d", t.l.cfg.Service, t.term.Number))
	case it.ctx.Err() != nil:
		// Nobody waits any more: the caller was told that the outcome is open.
	case it.read != nil:
		t.reads = append(t.reads, it)
	default:
		if err := t.driver.refuses(it.request); err != nil {
			it.answer(nil, err)
			return
		}
		if tells, ok := it.request.(Tells); ok {
			t.view.Know(tells.Known())
		}
		t.lastToken++
		t.waiting[t.lastToken] = it
		if it.first != nil {
			r.requests = append(r.requests, it.first)
		}
		r.requests = append(r.requests, model.Input{Token: t.lastToken, Request: it.request})
	}
}

// carryOut does what was decided, now that it is durable.
func (t *tenure[C]) carryOut(actions []model.Action) {
	for _, action := range actions {
		reply, ok := action.(model.Reply)
		if !ok {
			t.l.cfg.Perform(t.term, t.driver.Core, action)
			continue
		}
		if it, ok := t.waiting[reply.Token]; ok {
			delete(t.waiting, reply.Token)
			it.answer(reply.Value, reply.Err)
		}
	}
	t.term.performed()
}

// answerReads answers reads from committed state. One confirmation serves all of
// them.
func (t *tenure[C]) answerReads(ctx context.Context) error {
	if slices.ContainsFunc(t.reads, func(it item[C]) bool { return it.confirm }) {
		if err := t.confirm(ctx); err != nil {
			return err
		}
	}
	for _, it := range t.reads {
		it.view(t.driver.Core)
	}
	t.reads = nil
	return nil
}

// confirm asks the store whether the term stands, until it answers or the term
// is over.
func (t *tenure[C]) confirm(ctx context.Context) error {
	return t.retry(ctx, func(ctx context.Context) (definite bool, err error) {
		kv, ok, err := t.l.cfg.Store.Get(ctx, t.l.cfg.Space.Key(model.LeaderRef(t.l.cfg.Service)))
		if err == nil && !(ok && kv.Create == t.term.Number) {
			err = ErrFenced
		}
		return err == nil || err == ErrFenced, err
	})
}

// firstPatience is how long the first attempt at a call of the store may take. One in
// three is at a member of etcd that cannot answer, where one is frozen or cut from the
// others; everything else waits meanwhile.
const firstPatience = 300 * time.Millisecond

// retry makes a call of the store until its outcome is definite or ctx ends. Each
// attempt may take twice as long as the one before, up to the store's own deadline.
func (t *tenure[C]) retry(ctx context.Context, call func(ctx context.Context) (definite bool, err error)) error {
	for attempt, patience := 1, firstPatience; ; attempt, patience = attempt+1, min(2*patience, store.DefaultTimeout) {
		attempting, cancel := context.WithTimeout(ctx, patience)
		definite, err := call(attempting)
		cancel()
		if definite {
			return err
		}
		if err := t.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

func (t *tenure[C]) next(ctx context.Context) (store.Batch, error) {
	select {
	case b := <-t.batches:
		return b, nil
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}

// CatchUp implements Source.
func (t *tenure[C]) CatchUp(ctx context.Context, revision int64) ([]store.Batch, error) {
	var batches []store.Batch
	reached := t.driver.Revision()
	for t.view.Want(revision); reached < revision; {
		b, err := t.next(ctx)
		if err != nil {
			return nil, err
		}
		reached = max(reached, b.Revision)
		batches = append(batches, b)
	}
	return batches, nil
}
