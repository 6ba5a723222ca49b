package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// Log makes writes durable under the fence of one term. *store.Committer is
// the real one.
type Log interface {
	Commit(ctx context.Context, writes []store.Write) ([]store.Committed, error)
}

// Source is where a driver gets the view's next changes while it waits for the
// view to catch up.
type Source interface {
	// CatchUp answers the batches, perhaps none, until the view has reached the
	// revision.
	CatchUp(ctx context.Context, revision int64) ([]store.Batch, error)
}

// Errors that end a term. The core is then built afresh.
var (
	// ErrFenced: another replica leads.
	ErrFenced = errors.New("another replica leads")
	// ErrReset: the view had to start again, so what the core knows may have
	// gaps.
	ErrReset = errors.New("the view started again")
)

// maxConflicts bounds how often one round is decided again because another
// service's decision came first. Each of them needs a fresh foreign commit to
// happen within the round, so more means that the two views disagree.
const maxConflicts = 50

// parsedBetween is how many changes are read between two calls of steps.
const parsedBetween = 1000

// Driver carries one core from an empty view to the end of one term: it tells
// the core of changes, makes what it decides durable and answers what is to be
// done then. It has no goroutine and no clock of its own; one goroutine at a
// time calls it.
type Driver[C model.Core] struct {
	Core C

	service string
	space   keyspace.Space
	now     func() time.Time
	limits  EventLimits
	// steps, if given, is called before each step, and now and then while much is read.
	steps func()

	// revision is what the view has reached.
	revision int64
	// chain is the chain record of the service as the view has it.
	chain   []byte
	leaders map[string]leading
	// terms are those of leaders. The map is never changed, others read it.
	terms map[string]int64
	kept  *Kept
	aside aside

	// leads is set, and the rest filled in, with Lead.
	leads bool
	Leading
	// mine are revisions of own commits that the view has not shown yet.
	mine map[int64]struct{}
	// effects are decided and not durable.
	effects []decided
	events  int64
	writing writing
	// retained is the revision of the last step that let events go, revoked the
	// last segment that was, retainAfter when to go on after a failure.
	retained, revoked int64
	retainAfter       time.Time
	// later are events that the core is to be given when the store, which was full,
	// is tried again at retry.
	later []model.Event
	retry time.Time
}

// NewDriver answers a driver of a fresh core.
func NewDriver[C model.Core](core C, service string, space keyspace.Space, limits EventLimits, now func() time.Time) *Driver[C] {
	return &Driver[C]{
		Core: core, service: service, space: space, now: now, limits: limits,
		leaders: map[string]leading{}, terms: map[string]int64{}, mine: map[int64]struct{}{}, kept: newKept(space, limits.PerJob),
		aside: newAside(),
	}
}

// Revision is what the view has reached.
func (d *Driver[C]) Revision() int64 { return d.revision }

// CaughtUp says whether the view has reached the revision of a win. Before, it
// may lack what the leader of the term before had acknowledged.
func (d *Driver[C]) CaughtUp(win int64) bool { return d.revision >= win }

// Kept is what the driver knows of the job events that are kept. After every
// batch with Reset set they have to be counted again.
func (d *Driver[C]) Kept() *Kept { return d.kept }

// Chain is the value of the service's chain key in the view.
func (d *Driver[C]) Chain() []byte { return d.chain }

// leading is an election key: its record and its term.
type leading struct {
	record *model.Leader
	term   int64
}

// Leader is who leads a service in the view, and the term; nil while nobody
// does.
func (d *Driver[C]) Leader(service string) (*model.Leader, int64) {
	l := d.leaders[service]
	return l.record, l.term
}

// Events turns a batch of the view into what the core is to be told. A leading
// core is not told of its own commits again. What cannot be told, the core is to
// leave alone, if it can: it is told so with the first batch.
func (d *Driver[C]) Events(b store.Batch) ([]model.Event, error) {
	if b.Reset && d.leads {
		return nil, ErrReset
	}
	if b.Reset {
		d.kept.reset(b.Revision)
	}
	first := d.revision == 0
	held, err := d.notice(b, first)
	if err != nil {
		return nil, err
	}
	events := append(make([]model.Event, 0, len(held)+len(b.Changes)+1), held...)
	for i, c := range b.Changes {
		if i%parsedBetween == 0 && d.steps != nil {
			d.steps() // a first read may be long
		}
		if d.kept.told(c) {
			continue
		}
		ref, ok := d.space.Parse(c.Key)
		if !ok {
			continue
		}
		switch {
		case ref.Kind == model.KindChain:
			if ref.ID == d.service {
				d.chain = c.Value
				if !c.Deleted && d.chain == nil {
					d.chain = []byte{} // a value, though an empty one: the key is there
				}
			}
			continue
		case ref.Kind == model.KindPoison:
			continue
		}
		if _, own := d.mine[c.Mod]; own && keyspace.Writer(ref.Kind) == d.service {
			d.overwritten(ref, c.Key)
			continue
		}
		event, err := d.changed(ref, c, first)
		if err != nil {
			return nil, err
		}
		if event == nil {
			continue
		}
		if changed, told := event.(model.Changed); told && ref.Kind == model.KindLeader {
			record, _ := changed.Record.(*model.Leader)
			d.leaders[ref.ID] = leading{record, c.Create}
			d.terms = maps.Clone(d.terms)
			d.terms[ref.ID] = c.Create
		}
		events = append(events, event)
	}
	if first && len(d.aside.unreadable) > 0 {
		d.showAside()
	}
	for _, c := range b.Skipped {
		d.kept.told(c)
	}
	d.revision = max(d.revision, b.Revision)
	for revision := range d.mine {
		if revision <= b.Revision {
			delete(d.mine, revision)
		}
	}
	return append(events, model.Progress{Revision: d.revision}), nil
}

// Follow tells a core that does not lead of a batch.
func (d *Driver[C]) Follow(b store.Batch) error {
	events, err := d.Events(b)
	if err != nil {
		return err
	}
	for _, event := range events {
		actions, err := d.give(event)
		if err != nil {
			return err
		}
		if len(actions) > 0 {
			return fmt.Errorf("loop: a core that does not lead wants %T", actions[0])
		}
	}
	return nil
}

// Leading is what a driver needs for one term.
type Leading struct {
	Term int64
	Log  Log
	// Source lets a round catch up with what another service decided.
	Source Source
	// Grant makes an etcd lease for job events, asking until there is one or ctx
	// ends. Revoke ends one, and them.
	Grant  func(ctx context.Context, ttl time.Duration) (int64, error)
	Revoke func(ctx context.Context, lease int64) error
	// Confirm asks the store, linearizably, whether the term still stands:
	// ErrFenced when it does not.
	Confirm func(ctx context.Context) error
	// Durable, if given, is told of the job events of an effect once they are
	// durable, with the token of the request that it came of; 0 for none.
	Durable func(token uint64, revision int64, events []model.JobEvent)
}

// Lead tells the core that it leads; the driver must have caught up with the win. The
// caller must carry out the actions that it returns, as those of Round.
func (d *Driver[C]) Lead(ctx context.Context, l Leading) ([]model.Action, error) {
	d.Leading, d.leads = l, true
	if err := d.tidyAside(ctx); err != nil {
		return nil, err
	}
	// A term begins with a segment of its own, after those before it.
	d.writing.number, _ = d.kept.newestOf(d.service)
	d.writing.marked = true
	return d.Round(ctx, []model.Event{model.Elected{Term: l.Term, Revision: d.revision}})
}

// Round gives the core events, in order, and makes durable what it decides. It
// answers the actions that are now to be carried out.
//
// When a decision rests on what another service has changed meanwhile, nothing
// of it was written: the core takes it back, is told of the change, and gets
// the events again from the first whose decision did not become durable. When the
// store is full, it takes all of it back: requests are refused, the rest is tried
// again when it is due (see NextDeadline). An error ends the term.
func (d *Driver[C]) Round(ctx context.Context, events []model.Event) ([]model.Action, error) {
	// What is open was decided, and nothing has proved since that this replica leads.
	var actions, open []model.Action
	events, d.later = append(d.later, events...), nil
	if !d.now().Before(d.retry) {
		d.retry = time.Time{}
	}
	for conflicts := 0; ; {
		if conflicts > maxConflicts {
			return actions, fmt.Errorf("loop: %d conflicts in one round", conflicts)
		}
		after := make([]int, len(events)) // effects decided up to and with each event
		tentative := make([][]model.Action, len(events))
		undecided := map[uint64]bool{} // requests that may have changed something
		for i, event := range events {
			var err error
			before := len(d.effects)
			if tentative[i], err = d.step(event); err != nil {
				return actions, err
			}
			after[i] = len(d.effects)
			if input, ok := event.(model.Input); ok && after[i] == before && !answers(tentative[i]) {
				undecided[input.Token] = true
			}
		}
		durable, late, err := d.commit(ctx)
		if err == nil {
			for _, a := range tentative {
				open = append(open, a...)
			}
			open = append(open, late...)
			if durable == 0 && answers(open) {
				// An answer that rests on no write is a read: a leader that was
				// deposed without knowing it must not give it. A write would have
				// proved the term.
				if err := d.Confirm(ctx); err != nil {
					return actions, err
				}
			}
			return append(actions, open...), d.retain(ctx)
		}
		if poisoned := (*Poisoned)(nil); errors.As(err, &poisoned) {
			return actions, err
		}
		if err := d.abandon(); err != nil {
			return actions, err
		}
		done := 0
		for done < len(events) && after[done] <= durable {
			open = append(open, tentative[done]...)
			done++
		}
		open = append(open, late...)
		if events = events[done:]; len(events) > 0 && durable > 0 && (done == 0 || durable > after[done-1]) {
			if input, ok := events[0].(model.Input); ok { // part of it is durable
				undecided[input.Token] = true
			}
		}
		var conflict *store.Conflict
		if errors.As(err, &conflict) || durable > 0 {
			actions, open = append(actions, open...), nil
		}
		switch {
		case conflict != nil:
			conflicts++
			told, err := d.catchUp(ctx, conflict.Revision)
			if err != nil {
				return actions, err
			}
			events = append(append(told, nil), notTold(events)...)
		case len(events) > 0 && refused(err):
			// The store refuses the first write that is not durable for what is in
			// it: whoever asked for it is answered so, and the others go on.
			input, ok := events[0].(model.Input)
			if !ok {
				return actions, err
			}
			open = append(open, model.Reply{Token: input.Token, Err: refusal(err)})
			events = append([]model.Event{nil}, notTold(events[1:])...)
		case isFull(err):
			// No write has proved the term: the etcd lease of job events may be what
			// the store had no space for. A deposed leader must not answer that a call
			// changed nothing, since its successor may have applied it.
			if open = append(open, d.putOff(events, undecided)...); answers(open) {
				if err := d.Confirm(ctx); err != nil {
					return actions, err
				}
			}
			return append(actions, open...), nil
		case errors.Is(err, store.ErrFenced):
			return actions, ErrFenced
		default:
			return actions, err
		}
	}
}

// notTold leaves what the view told, and the passing of time, out of what a core
// is given again. What it was told stands when a decision is taken back, and what
// it was told since is newer: to hear the old news once more would undo that.
func notTold(events []model.Event) []model.Event {
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

// refused says that the store does not take a write because of the write.
func refused(err error) bool {
	return errors.Is(err, store.ErrLeaseNotFound) || errors.Is(err, store.ErrTooLarge)
}

func refusal(err error) error {
	if errors.Is(err, store.ErrLeaseNotFound) {
		return fault.New(fault.Precondition, fault.ReasonLeaseGone, "the etcd lease has run out").Because(err)
	}
	return fault.New(fault.Exhausted, fault.ReasonTooLarge, "the store does not take a record of this size").Because(err)
}

// step gives the core one event, keeps its effects and answers the rest.
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
			d.effects = append(d.effects, decided{a, input.Token})
			continue
		case model.Reply:
			cameOf(d.effects[first:], a.Token)
		}
		rest = append(rest, action)
	}
	return rest, nil
}

// commit makes the effects durable, and those that come of it, until there are
// none. It answers how many became durable; on an error d.effects holds the
// rest.
func (d *Driver[C]) commit(ctx context.Context) (durable int, actions []model.Action, err error) {
	room := d.effects
	for len(d.effects) > 0 {
		writes, err := d.encode(ctx)
		if err != nil {
			return durable, actions, err
		}
		committed, err := d.Log.Commit(ctx, writes)
		for _, c := range committed {
			d.mine[c.Revision] = struct{}{}
			d.tell(d.effects[:c.Writes], c.Revision)
			d.effects = d.effects[c.Writes:]
			d.writing.durable(c.Writes)
			durable += c.Writes
			more, err := d.step(model.Committed{Effects: c.Writes, Revision: c.Revision})
			if err != nil {
				return durable, actions, err
			}
			actions = append(actions, more...)
		}
		if errors.Is(err, store.ErrLeaseNotFound) && len(d.effects[0].Events) > 0 {
			// Job events stand on an etcd lease of the term's own: that is gone,
			// and whoever asked has nothing to do with it.
			err = fmt.Errorf("loop: the etcd lease of job events: %v", err)
		}
		if err != nil {
			return durable, actions, err
		}
	}
	// The next round has their place. What they refer to is let go of.
	if durable > 0 {
		clear(room[:cap(room)])
	}
	d.effects = room[:0]
	return durable, actions, nil
}

func (d *Driver[C]) abandon() error {
	d.effects = nil
	_, err := d.give(model.Abandoned{})
	return err
}

func (d *Driver[C]) catchUp(ctx context.Context, revision int64) ([]model.Event, error) {
	batches, err := d.Source.CatchUp(ctx, revision)
	if err != nil {
		return nil, err
	}
	var told []model.Event
	for _, b := range batches {
		events, err := d.Events(b)
		if err != nil {
			return nil, err
		}
		told = append(told, events...)
	}
	return told, nil
}

// encode turns the effects into writes.
func (d *Driver[C]) encode(ctx context.Context) ([]store.Write, error) {
	events := 0
	for _, e := range d.effects {
		events += len(e.Events)
	}
	d.writing.marking = 0
	if events > 0 {
		if err := d.room(ctx, events); err != nil {
			return nil, err
		}
	}
	writes := make([]store.Write, len(d.effects))
	for i, e := range d.effects {
		w := &writes[i]
		w.Ops = make([]store.Op, 0, len(e.Deletes)+len(e.Puts)+len(e.Events))
		for _, ref := range e.Deletes {
			w.Ops = append(w.Ops, store.Op{Key: d.space.Key(ref), Delete: true})
		}
		for _, record := range e.Puts {
			value, err := wire.Encode(record)
			if err != nil {
				return nil, err
			}
			op := store.Op{Key: d.space.Key(record.Ref()), Value: value}
			if live, ok := record.(*model.Live); ok {
				op.Lease = live.EtcdLease
			}
			w.Ops = append(w.Ops, op)
		}
		if len(e.Events) > 0 && !d.writing.marked && d.writing.marking == 0 {
			marks, err := d.mark()
			if err != nil {
				return nil, err
			}
			w.Ops, d.writing.marking = append(w.Ops, marks...), i+1
		}
		for _, event := range e.Events {
			op, err := d.eventOp(event)
			if err != nil {
				return nil, err
			}
			w.Ops = append(w.Ops, op)
		}
		for _, expect := range e.Expect {
			w.If = append(w.If, compare(d.space, expect))
		}
	}
	return writes, nil
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
