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
	// CatchUp waits until the view has reached the revision. It returns the batches up to
	// that revision, possibly none.
	CatchUp(ctx context.Context, revision int64) ([]store.Batch, error)
}

// ErrReset ends a term: the view had to start again, so the core may have missed changes.
// The loop builds a new core.
var ErrReset = errors.New("the view started again")

// Driver drives one core from an empty view to the end of one term. It passes changes and
// requests to the core, makes the core's decisions durable, and returns the actions that
// the caller must carry out. It starts no goroutine and reads the time only from a
// function of its caller. It is not safe for concurrent use.
type Driver[C model.Core] struct {
	Core C

	service string
	space   keyspace.Space
	now     func() time.Time
	limits  EventLimits
	// progress is called before each step of the core and for each change of the view.
	progress func()

	// revision is the revision that the view has reached.
	revision int64
	// chain is the service's chain record in the view.
	chain []byte
	// leaders has the leader keys in the view, by service. The driver replaces the map
	// instead of changing it, because other goroutines read it.
	leaders    map[string]leaderEntry
	index      *EventIndex
	quarantine quarantine

	// Lead sets leads and the fields below.
	leads bool
	Leading
	// ownCommits has the revisions of this leader's commits that the view has not reached
	// yet.
	ownCommits map[int64]struct{}
	lastCommit int64
	// effects has the effects that are decided but not durable.
	effects []pendingEffect
	// lastEvent is the number of the term's last job event.
	lastEvent int64
	segment   currentSegment
	retention retention
	// deferred has events that the core receives again after the store was full. retry is
	// the time of the next attempt.
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

// EventIndex returns the index of the job events in the store. After every batch with
// Reset set, the caller must call Count of the index again.
func (d *Driver[C]) EventIndex() *EventIndex { return d.index }

// Chain returns the value of the service's chain key in the view.
func (d *Driver[C]) Chain() []byte { return d.chain }

// leaderEntry is the record in a leader key and the term of the leader.
type leaderEntry struct {
	record *model.Leader
	term   int64
}

// Leader returns the leader of a service in the view and its term, or nil if the view has
// no leader.
func (d *Driver[C]) Leader(service string) (*model.Leader, int64) {
	l := d.leaders[service]
	return l.record, l.term
}

// Events converts a batch of the view into events for the core. A leading core does not
// receive the changes of its own commits. In the first batch, a Quarantined event
// replaces each record that the core must not receive, if the core can miss the record.
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
		d.progress() // the first batch may be long
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

// event converts one change into an event for the core. It returns nil if the core does
// not receive the change.
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

// readChain stores the value of a chain key. For an existing key with an empty value it
// stores an empty slice, not nil.
func (d *Driver[C]) readChain(ref model.Ref, c store.Change) {
	if ref.ID != d.service {
		return
	}
	d.chain = c.Value
	if !c.Deleted && d.chain == nil {
		d.chain = []byte{}
	}
}

// Follow passes a batch to a core that does not lead.
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
	// Source lets a round wait for changes that another service has written.
	Source Source
	// Grant grants an etcd lease for job events. It retries until it succeeds or ctx ends.
	// Revoke revokes an etcd lease, which deletes the events that are attached to the lease.
	Grant  func(ctx context.Context, ttl time.Duration) (int64, error)
	Revoke func(ctx context.Context, lease int64) error
	// Confirm confirms the term with a linearizable read. The error is store.ErrFenced
	// if the term is over.
	Confirm func(ctx context.Context) error
	// Durable, if set, receives the job events of an effect once the events are durable. The
	// token is the token of the request that caused the effect, or 0.
	Durable func(token uint64, revision int64, events []model.JobEvent)
}

// Lead starts the term. The view must have reached the revision of the win. The caller
// must carry out the returned actions, as after Round.
func (d *Driver[C]) Lead(ctx context.Context, l Leading) ([]model.Action, error) {
	d.Leading, d.leads = l, true
	if err := d.tidyQuarantine(ctx); err != nil {
		return nil, err
	}
	// A term starts with a new segment, whose number is higher than all earlier ones.
	d.segment.number, _ = d.index.newestOf(d.service)
	d.segment.marked = true
	return d.Round(ctx, []model.Event{model.Elected{Term: l.Term, Revision: d.revision}})
}
