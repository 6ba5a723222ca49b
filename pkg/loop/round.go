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

// maxConflicts bounds how often one round is decided again because another service
// wrote first. Each conflict needs a new commit of that service within the round, so
// more of them mean that the two views disagree.
const maxConflicts = 50

// round is the progress of one call of Round.
type round struct {
	// pending are the events, in order, whose decisions are not durable.
	pending []model.Event
	// released are actions to carry out: they rest on durable decisions, and a write
	// has since proved that this replica leads.
	released []model.Action
	// unproved are actions of durable decisions that no write has proved yet.
	unproved []model.Action
	// undecided holds the tokens of pending requests that may have changed something
	// although nothing of them was answered or written in this attempt.
	undecided map[uint64]bool
	conflicts int
}

// decision is the outcome of one event.
type decision struct {
	actions []model.Action
	// effects counts the effects of this event and of all events before it.
	effects int
}

// Round gives the core events, in order, and makes its decisions durable. It returns the
// actions to carry out, also with an error, which ends the term.
//
//   - If a decision conflicts with a change of another service, nothing of it was
//     written. The core takes it back, receives the change, and decides again from the
//     first event whose decision is not durable.
//   - If the store refuses a write because of its content, the request that caused it is
//     answered with the error, and the other events are decided again.
//   - If the store is full, requests are refused and the other events are deferred until
//     NextDeadline.
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

// attempt has the core decide the pending events and commits its decisions. On an error
// the core takes back every decision that is not durable, unless it panicked.
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
		r.prove() // a transaction was compared with the leader key
	}
	return err
}

// decide gives the core the pending events and collects its effects.
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

// settle moves the events whose effects are all durable out of pending. If the next one
// is a request of which a part is durable, its outcome is unknown.
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

// prove releases the actions so far: a write has proved the term.
func (r *round) prove() { r.released, r.unproved = append(r.released, r.unproved...), nil }

// release releases the remaining actions. No write proved the term for them. If one of
// them is an answer, the term is confirmed first: a leader that was deposed without
// knowing it must not answer a read, nor that a call changed nothing, since its
// successor may have applied that call.
func (d *Driver[C]) release(ctx context.Context, r *round) error {
	if answers(r.unproved) {
		if err := d.Confirm(ctx); err != nil {
			return err
		}
	}
	r.prove()
	return nil
}

// catchUp waits until the view shows the change that a decision conflicts with, and has
// the pending events decided after it.
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

// refuseFirst answers the first pending request with the reason why the store refuses its
// write. If the write was not caused by a request, it returns the error.
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

// withoutChanges returns the events that the core must receive again after it took back
// its decisions. Changes of the view are not among them: they are not taken back, and
// the core may have received newer ones since.
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

// contentFault returns the answer to a request whose write the store refuses because of its
// content; nil for any other error.
func contentFault(err error) error {
	switch {
	case errors.Is(err, store.ErrLeaseNotFound):
		return fault.New(fault.Precondition, fault.ReasonLeaseGone, "the etcd lease has expired").Because(err)
	case errors.Is(err, store.ErrTooLarge):
		return fault.New(fault.Exhausted, fault.ReasonTooLarge, "the record is too large for the store").Because(err)
	}
	return nil
}

// step gives the core one event, queues its effects and returns its other actions.
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

// commit makes the effects durable, including those that follow from them. It returns how
// many became durable; on an error the rest remain in d.effects.
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
			// The etcd lease of the term's own job events has expired. The request is
			// not to blame.
			err = fmt.Errorf("loop: the etcd lease of job events: %v", err)
		}
		if err != nil {
			return durable, actions, err
		}
	}
	return durable, actions, nil
}

// committed takes the effects of one transaction, which are durable, off the queue and
// reports them to the core.
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

// abandon has the core take back its decisions.
func (d *Driver[C]) abandon() error {
	d.effects = nil
	_, err := d.give(model.Abandoned{})
	return err
}

// encode turns the effects into writes.
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
