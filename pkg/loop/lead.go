package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

var (
	// errResignRequested ends a term after a call of Resign.
	errResignRequested = errors.New("loop: resignation requested")
	// errDeadline ends a term whose etcd lease was not renewed in time.
	errDeadline = errors.New("loop: the renew deadline has passed")
)

// lead serves one term. If leaving is canceled, lead finishes the current round before it
// returns.
func (t *tenure[C]) lead(leaving context.Context) error {
	l, leadership := t.l, t.leadership
	ctx, end := context.WithCancel(context.WithoutCancel(leaving))
	cancelLate := context.AfterFunc(leaving, func() { time.AfterFunc(finishWithin, end) })
	defer cancelLate()
	t.term = &Term{Number: leadership.Term(), ctx: ctx, guard: l.Guard, post: func(event model.Event) {
		select {
		case l.inbox <- item[C]{ctx: ctx, event: event, term: leadership.Term()}:
		case <-ctx.Done():
		}
	}}
	l.progress()
	var watching sync.WaitGroup
	watching.Go(func() {
		defer end()
		t.watch(ctx)
	})
	defer func() {
		l.cfg.OnLead(false)
		t.publish(false)
		end()
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

// quarantine stores the cause of a panic of the core, as the last write of the leader. If
// the cause is a request, it answers the caller. If the write fails, only this replica
// quarantines the cause.
func (t *tenure[C]) quarantine(p *Poisoned) {
	if p.Poison == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), quarantineWithin)
	defer cancel()
	p.stored = t.driver.Log != nil && t.driver.StorePoison(ctx, p.Poison) == nil
	if it, waits := t.waiting[p.Token]; waits {
		delete(t.waiting, p.Token)
		it.answer(nil, errPoison(p.Poison))
	}
}

// watch returns when the term must end, because the leadership is over or the loop hangs.
// If the loop hangs, watch resigns on behalf of the loop, so that another replica can
// lead.
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
			if stalled := t.l.stalled(); stalled > hangAfter {
				t.l.cfg.Log.Error("the loop hangs: resigning", "term", t.leadership.Term(), "for", stalled)
				t.l.cfg.OnLead(false)
				resign(t.leadership)
				return
			}
		}
	}
}

// release answers all pending callers and waits for the outbound calls.
func (t *tenure[C]) release() {
	var unknown error = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the leadership of %s ended; %s",
		t.l.cfg.Service, outcomeUnknown)
	if !t.driver.leads {
		unknown = t.notLeader() // the core has not received a request
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

// refuse answers new requests with NOT_LEADER while the term ends. If the store is
// unreachable, the end of a term takes seconds, and another replica may already lead.
// refuse runs until the caller calls stop.
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

// serve starts the term and runs its rounds.
func (t *tenure[C]) serve(ctx, leaving context.Context) error {
	// From now on callers send requests to this replica. The first round answers them.
	t.publish(false)
	t.l.cfg.OnLead(true)
	if err := t.reachWin(ctx); err != nil {
		return err
	}
	actions, err := t.driver.Lead(ctx, t.leading())
	if err == nil {
		t.l.cfg.Log.Info("leading", "term", t.term.Number, "revision", t.driver.Revision(), "after",
			time.Since(t.leadership.Since()))
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
			return errResignRequested
		}
		t.l.progress()
		timer.Reset(t.untilDeadline())
		var events []model.Event
		if events, err = t.gather(ctx, leaving, timer); err != nil {
			return err
		}
		if !t.leadership.Valid() {
			return errDeadline
		}
		actions, err = t.driver.Round(ctx, events)
	}
}

// reachWin follows the view up to the revision of the win.
func (t *tenure[C]) reachWin(ctx context.Context) error {
	win := t.leadership.Revision()
	t.view.Want(win)
	for !t.driver.CaughtUp(win) {
		b, err := t.next(ctx)
		if err != nil {
			return err
		}
		if err := t.follow(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// leading connects the driver with the store for the term.
func (t *tenure[C]) leading() Leading {
	cfg := t.l.cfg
	committer := store.NewCommitter(cfg.Store, store.CommitterConfig{
		LeaderKey: cfg.Space.Key(model.LeaderRef(cfg.Service)), Term: t.term.Number,
		ChainKey: cfg.Space.Key(model.Ref{Kind: model.KindChain, ID: cfg.Service}), Chain: t.driver.Chain(),
		Wait:      func(ctx context.Context, attempt int) error { return t.pause(ctx, attempt-1) },
		Attempted: t.l.full.attempted,
	})
	return Leading{
		Term: t.term.Number, Log: committer, Source: t, Confirm: t.confirm,
		Grant: t.grant, Revoke: cfg.Store.Revoke, Durable: t.durable,
	}
}

// untilDeadline returns how long the loop may wait: until the driver's deadline, but at
// most a quarter of hangAfter, so that the loop does not seem to hang.
func (t *tenure[C]) untilDeadline() time.Duration {
	deadline := t.driver.NextDeadline()
	if deadline.IsZero() {
		return hangAfter / 4
	}
	return min(max(0, time.Until(deadline)), hangAfter/4)
}

// inputs are the changes and requests of one round.
type inputs struct {
	changes, requests []model.Event
}

// gather waits for a change, a request or the timer. Then it takes further queued changes
// and requests, up to roundSize in total. It returns the changes first, so that the core
// decides requests on current records. If the driver's deadline has passed, the last
// event is nil.
func (t *tenure[C]) gather(ctx, leaving context.Context, timer *time.Timer) ([]model.Event, error) {
	var in inputs
	var err error
	select {
	case <-ctx.Done():
		if err := t.leadership.Err(); err != nil {
			return nil, err
		}
		return nil, ctx.Err()
	case <-leaving.Done():
		return nil, leaving.Err()
	case b := <-t.batches:
		in.changes, err = t.driver.Events(b)
	case it := <-t.l.inbox:
		t.accept(it, &in)
	case <-timer.C:
	}
	if err == nil {
		err = t.drain(&in)
	}
	events := append(in.changes, in.requests...) //nolint:gocritic // in.changes is not used again
	if deadline := t.driver.NextDeadline(); !deadline.IsZero() && !time.Now().Before(deadline) {
		events = append(events, nil)
	}
	return events, err
}

// drain takes queued changes and requests without waiting, up to roundSize in total.
func (t *tenure[C]) drain(in *inputs) error {
	for len(in.changes)+len(in.requests)+len(t.reads) < roundSize {
		select {
		case b := <-t.batches:
			events, err := t.driver.Events(b)
			if err != nil {
				return err
			}
			in.changes = append(in.changes, events...)
		case it := <-t.l.inbox:
			t.accept(it, in)
		default:
			return nil
		}
	}
	return nil
}

// accept adds an item to the current round, or answers it.
func (t *tenure[C]) accept(it item[C], in *inputs) {
	switch {
	case it.event != nil:
		if it.term == t.term.Number {
			in.requests = append(in.requests, it.event)
		}
	case it.resign == t.term.Number:
		t.resigning = append(t.resigning, it)
	case it.resign != 0:
		it.answer(nil, fault.New(fault.Precondition, fault.ReasonNotLeader, "this replica of %s leads in term %d",
			t.l.cfg.Service, t.term.Number))
	case it.ctx.Err() != nil:
		// The caller has left. Its error says that the outcome is unknown.
	case it.read != nil:
		t.reads = append(t.reads, it)
	default:
		if err := t.driver.poisoned(it.request); err != nil {
			it.answer(nil, err)
			return
		}
		if r, ok := it.request.(NamesRevision); ok {
			t.view.Know(r.Known())
		}
		t.lastToken++
		t.waiting[t.lastToken] = it
		if it.first != nil {
			in.requests = append(in.requests, it.first)
		}
		in.requests = append(in.requests, model.Input{Token: t.lastToken, Request: it.request})
	}
}

// carryOut performs the actions of a round, whose effects are durable.
func (t *tenure[C]) carryOut(actions []model.Action) {
	// If the view does not reach this revision, it watches an etcd member that is cut off.
	t.view.Know(t.driver.lastCommit)
	for _, action := range actions {
		reply, ok := action.(model.Reply)
		if !ok {
			t.l.cfg.Perform(t.term, t.driver.Core, action)
			continue
		}
		if it, ok := t.waiting[reply.Token]; ok {
			delete(t.waiting, reply.Token)
			if reply.Err == nil {
				rpc.SetRevision(it.ctx, t.driver.lastCommit)
			}
			it.answer(reply.Value, reply.Err)
		}
	}
	t.term.performed()
}

// answerReads answers the reads of the round from committed state. It confirms the term
// at most once for all reads.
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

// next waits for the next batch of the view.
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
