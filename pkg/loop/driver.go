package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Log makes writes durable under the fence of one term. *store.Committer implements it.
type Log interface {
	Commit(ctx context.Context, writes []store.Write) ([]store.Committed, error)
}

// Source delivers the next changes of the view while a driver waits for the view to catch
// up.
type Source interface {
	// CatchUp returns the batches, perhaps none, until the view has reached the
	// revision.
	CatchUp(ctx context.Context, revision int64) ([]store.Batch, error)
}

// ErrReset ends a term: the view had to start again, so the core may have missed changes.
// It is built again.
var ErrReset = errors.New("the view started again")

// Driver takes one core from an empty view to the end of one term. It gives the core the
// changes, makes its decisions durable and returns the actions to carry out. It has no
// goroutine and no clock of its own. Only one goroutine at a time may call it.
type Driver[C model.Core] struct {
	Core C

	service string
	space   keyspace.Space
	now     func() time.Time
	limits  EventLimits
	// progress is called before each step and for each change.
	progress func()

	// revision is the revision that the view has reached.
	revision int64
	// chain is the service's chain record in the view.
	chain []byte
	// leaders are the leader keys in the view, by service. The map is never changed but
	// replaced, since other goroutines read it.
	leaders    map[string]leaderEntry
	index      *EventIndex
	quarantine quarantine

	// leads is set by Lead, which also fills in the rest.
	leads bool
	Leading
	// ownCommits are revisions of own commits that the view has not shown yet.
	ownCommits map[int64]struct{}
	lastCommit int64
	// effects are decided but not durable.
	effects []pendingEffect
	// lastEvent is the number of the term's last job event.
	lastEvent int64
	segment   currentSegment
	retention retention
	// deferred are events for the core once the store, which was full, is tried again
	// at retry.
	deferred []model.Event
	retry    time.Time
}

// NewDriver returns a driver of a new core.
func NewDriver[C model.Core](core C, service string, space keyspace.Space, limits EventLimits,
	now func() time.Time) *Driver[C] {
	return &Driver[C]{
		Core: core, service: service, space: space, now: now, limits: limits, progress: func() {},
		leaders: map[string]leaderEntry{}, ownCommits: map[int64]struct{}{}, index: newEventIndex(space, limits.PerJob),
		quarantine: newQuarantine(),
	}
}

// Revision returns the revision that the view has reached.
func (d *Driver[C]) Revision() int64 { return d.revision }

// CaughtUp reports whether the view has reached the revision of a win. Before that, the
// core may lack writes that the previous leader has acknowledged.
func (d *Driver[C]) CaughtUp(win int64) bool { return d.revision >= win }

// EventIndex returns the index of the job events that are kept. After every batch with
// Reset set, its Count must be called again.
func (d *Driver[C]) EventIndex() *EventIndex { return d.index }

// Chain returns the value of the service's chain key in the view.
func (d *Driver[C]) Chain() []byte { return d.chain }

// leaderEntry is the record in a leader key and its term.
type leaderEntry struct {
	record *model.Leader
	term   int64
}

// Leader returns the leader of a service in the view, and its term; nil if there is none.
func (d *Driver[C]) Leader(service string) (*model.Leader, int64) {
	l := d.leaders[service]
	return l.record, l.term
}

// Events turns a batch of the view into events for the core. A leading core does not
// receive its own commits. The first batch replaces each record that is quarantined by an
// event that says so, if the core allows that.
func (d *Driver[C]) Events(b store.Batch) ([]model.Event, error) {
	if b.Reset && d.leads {
		return nil, ErrReset
	}
	if b.Reset {
		d.index.reset(b.Revision)
	}
	first := d.revision == 0
	events, err := d.readPoison(b, first)
	if err != nil {
		return nil, err
	}
	for _, c := range b.Changes {
		d.progress() // a first batch may be long
		event, err := d.event(c, first)
		if err != nil {
			return nil, err
		}
		if event != nil {
			events = append(events, event)
		}
	}
	if first {
		d.listQuarantine()
	}
	for _, c := range b.Skipped {
		d.index.apply(c)
	}
	d.revision = max(d.revision, b.Revision)
	maps.DeleteFunc(d.ownCommits, func(revision int64, _ struct{}) bool { return revision <= b.Revision })
	return append(events, model.Progress{Revision: d.revision}), nil
}

// event turns one change into an event for the core; nil if the core does not receive it.
func (d *Driver[C]) event(c store.Change, first bool) (model.Event, error) {
	if d.index.apply(c) {
		return nil, nil
	}
	ref, ok := d.space.Parse(c.Key)
	_, own := d.ownCommits[c.Mod]
	switch {
	case !ok || ref.Kind == model.KindPoison:
		return nil, nil
	case ref.Kind == model.KindChain:
		d.readChain(ref, c)
		return nil, nil
	case own && keyspace.Writer(ref.Kind) == d.service:
		d.overwritten(ref, c.Key)
		return nil, nil
	}
	event, err := d.changed(ref, c, first)
	if changed, ok := event.(model.Changed); ok && ref.Kind == model.KindLeader {
		record, _ := changed.Record.(*model.Leader)
		d.leaders = maps.Clone(d.leaders)
		d.leaders[ref.ID] = leaderEntry{record, c.Create}
	}
	return event, err
}

// readChain takes a change of a chain key. An existing chain without a value is not nil.
func (d *Driver[C]) readChain(ref model.Ref, c store.Change) {
	if ref.ID != d.service {
		return
	}
	d.chain = c.Value
	if !c.Deleted && d.chain == nil {
		d.chain = []byte{}
	}
}

// Follow gives a batch to a core that does not lead.
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
			return fmt.Errorf("loop: a core that does not lead returned %T", actions[0])
		}
	}
	return nil
}

// Leading connects a driver with the store for one term.
type Leading struct {
	Term int64
	Log  Log
	// Source lets a round catch up with the decisions of another service.
	Source Source
	// Grant makes an etcd lease for job events. It retries until it succeeds or ctx
	// ends. Revoke ends an etcd lease and deletes its events.
	Grant  func(ctx context.Context, ttl time.Duration) (int64, error)
	Revoke func(ctx context.Context, lease int64) error
	// Confirm confirms the term with a linearizable read. The error is store.ErrFenced
	// if the term is over.
	Confirm func(ctx context.Context) error
	// Durable, if set, receives the job events of an effect once they are durable, with
	// the token of the request that caused it; 0 for none.
	Durable func(token uint64, revision int64, events []model.JobEvent)
}

// Lead starts the term; the driver must have caught up with the win. The caller must carry
// out the returned actions like those of Round.
func (d *Driver[C]) Lead(ctx context.Context, l Leading) ([]model.Action, error) {
	d.Leading, d.leads = l, true
	if err := d.tidyQuarantine(ctx); err != nil {
		return nil, err
	}
	// A term starts with a new segment, after all earlier ones.
	d.segment.number, _ = d.index.newestOf(d.service)
	d.segment.marked = true
	return d.Round(ctx, []model.Event{model.Elected{Term: l.Term, Revision: d.revision}})
}
