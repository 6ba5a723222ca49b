package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// maxConflicts is the maximum number of times that the core decides the events of one
// round again because another service wrote first. Each conflict needs a new commit of
// that service within the round. More conflicts mean that the two views disagree.
const maxConflicts = 50

// round is the progress of one call of Round.
type round struct {
	// pending has the events whose decisions are not durable, in order.
	pending []model.Event
	// released has the actions to carry out. Their decisions are durable, and a later write
	// has proved that this replica still leads.
	released []model.Action
	// unproved has actions whose decisions are durable, but for which no later write has
	// proved yet that this replica still leads.
	unproved []model.Action
	// undecided has the tokens of pending requests that may have been applied. Either the
	// core neither answered the request nor returned an effect for it in this attempt, or
	// only a part of its effects is durable.
	undecided map[uint64]bool
	conflicts int
}

// decision is the result of one event.
type decision struct {
	actions []model.Action
	// effects is the number of effects of this event and of all events before it.
	effects int
}

// Round passes events to the core in order and makes the decisions of the core durable.
// It returns the actions that the caller must carry out, also if it returns an error. An
// error ends the term.
//
//   - If a decision conflicts with a change of another service, nothing of the decision
//     was written. The core undoes it, receives the change, and decides again from the
//     first event whose decision is not durable.
//   - If the store refuses a write because of its content, Round answers the request that
//     caused the write with the error, and the core decides the other events again.
//   - If the store is full, Round refuses the pending requests and defers the other
//     events until NextDeadline.
func (d *Driver[C]) Round(ctx context.Context, events []model.Event) ([]model.Action, error) {
	r := &round{pending: append(d.deferred, events...)}
	d.deferred = nil
	if !d.now().Before(d.retry) {
		d.retry = time.Time{}
	}
	for {
		err := d.attempt(ctx, r)
		var conflict *store.Conflict
		switch {
		case err == nil:
			if err := d.release(ctx, r); err != nil {
				return r.released, err
			}
			return r.released, d.enforceLimits(ctx)
		case errors.As(err, &conflict):
			err = d.catchUp(ctx, r, conflict.Revision)
		case contentFault(err) != nil:
			err = r.refuseFirst(err)
		case isFull(err):
			d.postpone(r)
			err = d.release(ctx, r)
			return r.released, err
		}
		if err != nil {
			return r.released, err
		}
	}
}

// attempt lets the core decide the pending events and commits the decisions. After an
// error the core undoes every decision that is not durable, unless the core panicked.
func (d *Driver[C]) attempt(ctx context.Context, r *round) error {
	decisions, err := d.decide(r)
	if err != nil {
		return err
	}
	durable, late, err := d.commit(ctx)
	if poisoned := (*Poisoned)(nil); errors.As(err, &poisoned) {
		return err
	}
	if err != nil {
		if err := d.abandon(); err != nil {
			return err
		}
	}
	r.settle(decisions, durable)
	r.unproved = append(r.unproved, late...)
	var conflict *store.Conflict
	if durable > 0 || errors.As(err, &conflict) {
		r.prove() // a transaction has compared the leader key
	}
	return err
}

// decide passes the pending events to the core and collects the effects that the core
// returns.
func (d *Driver[C]) decide(r *round) ([]decision, error) {
	decisions := make([]decision, len(r.pending))
	r.undecided = map[uint64]bool{}
	for i, event := range r.pending {
		before := len(d.effects)
		actions, err := d.step(event)
		if err != nil {
			return nil, err
		}
		decisions[i] = decision{actions, len(d.effects)}
		if input, ok := event.(model.Input); ok && len(d.effects) == before && !answers(actions) {
			r.undecided[input.Token] = true
		}
	}
	return decisions, nil
}

// settle removes the events whose effects are all durable from pending. If the next event
// is a request and a part of its effects is durable, the outcome of this request is
// unknown.
func (r *round) settle(decisions []decision, durable int) {
	settled, effects := 0, 0
	for settled < len(r.pending) && decisions[settled].effects <= durable {
		r.unproved = append(r.unproved, decisions[settled].actions...)
		effects = decisions[settled].effects
		settled++
	}
	r.pending = r.pending[settled:]
	if len(r.pending) == 0 || durable == effects {
		return
	}
	if input, ok := r.pending[0].(model.Input); ok {
		r.undecided[input.Token] = true
	}
}

// prove releases all actions collected so far. The caller must have proved the term after
// their decisions became durable.
func (r *round) prove() { r.released, r.unproved = append(r.released, r.unproved...), nil }

// release releases the remaining actions, for which no write has proved the term. If one
// of these actions is an answer, release first confirms the term. A deposed leader that
// does not know of its end must not answer a read. It also must not answer that a call
// changed nothing, because its successor may have applied that call.
func (d *Driver[C]) release(ctx context.Context, r *round) error {
	if answers(r.unproved) {
		if err := d.Confirm(ctx); err != nil {
			return err
		}
	}
	r.prove()
	return nil
}

// catchUp waits until the view contains the change with which a decision conflicts. It
// puts this change before the pending events, so that the core decides after it.
func (d *Driver[C]) catchUp(ctx context.Context, r *round, revision int64) error {
	if r.conflicts++; r.conflicts > maxConflicts {
		return fmt.Errorf("loop: %d conflicts in one round", r.conflicts)
	}
	batches, err := d.Source.CatchUp(ctx, revision)
	if err != nil {
		return err
	}
	var changes []model.Event
	for _, b := range batches {
		events, err := d.Events(b)
		if err != nil {
			return err
		}
		changes = append(changes, events...)
	}
	r.pending = append(append(changes, nil), withoutChanges(r.pending)...)
	return nil
}

// refuseFirst answers the first pending event, a request, with the reason why the store
// refuses its write. If the first pending event is not a request, it returns the error.
func (r *round) refuseFirst(err error) error {
	if len(r.pending) == 0 {
		return err
	}
	input, ok := r.pending[0].(model.Input)
	if !ok {
		return err
	}
	r.unproved = append(r.unproved, model.Reply{Token: input.Token, Err: contentFault(err)})
	r.pending = append([]model.Event{nil}, withoutChanges(r.pending[1:])...)
	return nil
}

// withoutChanges returns the events that the core must receive again after it undid its
// decisions. It omits changes of the view: the core does not undo them, and may have
// received newer changes since.
func withoutChanges(events []model.Event) []model.Event {
	var rest []model.Event
	for _, event := range events {
		switch event.(type) {
		case model.Changed, model.Progress, nil:
		default:
			rest = append(rest, event)
		}
	}
	return rest
}

func answers(actions []model.Action) bool {
	return slices.ContainsFunc(actions, func(a model.Action) bool { _, ok := a.(model.Reply); return ok })
}

// contentFault returns the error for a request whose write the store refuses because of
// its content. It returns nil for any other error of the store.
func contentFault(err error) error {
	switch {
	case errors.Is(err, store.ErrLeaseNotFound):
		return fault.New(fault.Precondition, fault.ReasonEtcdLeaseExpired, "the etcd lease has expired").Because(err)
	case errors.Is(err, store.ErrTooLarge):
		return fault.New(fault.Exhausted, fault.ReasonTooLarge, "the record is too large for the store").Because(err)
	}
	return nil
}

// step passes one event to the core, queues the effects that the core returns, and
// returns the other actions.
func (d *Driver[C]) step(event model.Event) (rest []model.Action, err error) {
	input, _ := event.(model.Input)
	first := len(d.effects)
	actions, err := d.give(event)
	if err != nil {
		return nil, err
	}
	for _, action := range actions {
		switch a := action.(type) {
		case model.Effect:
			d.effects = append(d.effects, pendingEffect{a, input.Token})
			continue
		case model.Reply:
			attribute(d.effects[first:], a.Token)
		}
		rest = append(rest, action)
	}
	return rest, nil
}

// commit makes the queued effects durable, and also the effects that the core adds when
// it learns that effects are durable. It returns how many effects became durable. After
// an error the other effects remain in d.effects.
func (d *Driver[C]) commit(ctx context.Context) (durable int, actions []model.Action, err error) {
	for len(d.effects) > 0 {
		writes, err := d.encode(ctx)
		if err != nil {
			return durable, actions, err
		}
		committed, err := d.Log.Commit(ctx, writes)
		for _, c := range committed {
			more, err := d.committed(c)
			if err != nil {
				return durable + c.Writes, actions, err
			}
			durable += c.Writes
			actions = append(actions, more...)
		}
		if errors.Is(err, store.ErrLeaseNotFound) && len(d.effects[0].Events) > 0 {
			// The etcd lease to which this leader attaches its job events has expired. The request
			// did not cause the error.
			err = fmt.Errorf("loop: the etcd lease of job events: %v", err)
		}
		if err != nil {
			return durable, actions, err
		}
	}
	return durable, actions, nil
}

// committed removes the effects of one transaction, which are durable, from the queue. It
// tells the core that they are durable.
func (d *Driver[C]) committed(c store.Committed) ([]model.Action, error) {
	effects := d.effects[:c.Writes]
	d.effects = d.effects[c.Writes:]
	d.ownCommits[c.Revision] = struct{}{}
	d.lastCommit = c.Revision
	d.emit(effects, c.Revision)
	if slices.ContainsFunc(effects, func(e pendingEffect) bool { return len(e.Events) > 0 }) {
		d.segment.marked = true
	}
	return d.step(model.Committed{Effects: c.Writes, Revision: c.Revision})
}

// abandon makes the core undo all decisions that are not durable.
func (d *Driver[C]) abandon() error {
	d.effects = nil
	_, err := d.give(model.Abandoned{})
	return err
}

// encode converts the effects into writes.
func (d *Driver[C]) encode(ctx context.Context) ([]store.Write, error) {
	events := 0
	for _, e := range d.effects {
		events += len(e.Events)
	}
	if events > 0 {
		if err := d.ensureSegment(ctx, events); err != nil {
			return nil, err
		}
	}
	writes := make([]store.Write, len(d.effects))
	for i, e := range d.effects {
		var err error
		if writes[i], err = d.encodeEffect(e); err != nil {
			return nil, err
		}
	}
	return writes, nil
}

func (d *Driver[C]) encodeEffect(e pendingEffect) (w store.Write, err error) {
	for _, ref := range e.Deletes {
		w.Ops = append(w.Ops, store.Delete(d.space.Key(ref)))
	}
	for _, record := range e.Puts {
		value, err := wire.Encode(record)
		if err != nil {
			return w, err
		}
		op := store.Put(d.space.Key(record.Ref()), value)
		if live, ok := record.(*model.Live); ok {
			op.Lease = live.EtcdLease
		}
		w.Ops = append(w.Ops, op)
	}
	if len(e.Events) > 0 && !d.segment.marked {
		marks, err := d.markSegment()
		if err != nil {
			return w, err
		}
		w.Ops = append(w.Ops, marks...)
	}
	for _, event := range e.Events {
		op, err := d.eventOp(event)
		if err != nil {
			return w, err
		}
		w.Ops = append(w.Ops, op)
	}
	for _, expect := range e.Expect {
		w.If = append(w.If, compare(d.space, expect))
	}
	return w, nil
}

func compare(space keyspace.Space, e model.Expect) store.Compare {
	key := space.Key(e.Ref)
	switch {
	case e.Absent:
		return store.Absent(key)
	case e.Create != 0:
		return store.CreatedAt(key, e.Create)
	default:
		return store.ModifiedAt(key, e.Mod)
	}
}
