package stream

import (
	"context"
	"errors"
	"math"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// Etcd reads events where the services wrote them: it ranges over the keys at
// one revision and watches from the next. Whether a cursor can be resumed does
// not depend on etcd's history but on what is kept, which the marks of segments
// and the floors of the job tell at that same revision.
type Etcd struct {
	store store.Store
	keys  keyspace.Space
}

// NewEtcd makes the source of a cluster's events.
func NewEtcd(s store.Store, keys keyspace.Space) *Etcd {
	return &Etcd{paced{s, make(chan struct{}, readsAtOnce)}, keys}
}

// Open implements Source.
func (e *Etcd) Open(ctx context.Context, job string, since Cursor) (Reader, error) {
	r := &reader{Etcd: e, job: job, seen: since}
	if err := r.start(ctx); err != nil {
		return nil, translate(err)
	}
	return r, nil
}

// askEvery is how often a quiet stream asks how far it has come. One that breaks
// goes on from there, and not from a place that is long since compacted.
const askEvery = time.Minute

// atOnce is how many kept events are read ahead of who takes them.
const atOnce = 500

// reader reads one job's events.
type reader struct {
	*Etcd
	job string
	// seen is the place up to which every event was given.
	seen Cursor
	// lanes are the kept events of each service that are still to be given, as of
	// a revision. What comes after it is watched.
	lanes    []*lane
	revision int64
	watch    store.Watch
	// paused: what is kept is to be looked at anew.
	paused bool
}

// start looks at what is kept and begins behind what was seen.
func (r *reader) start(ctx context.Context) error {
	r.Close()
	for {
		err := r.open(ctx)
		if !errors.Is(err, store.ErrCompacted) || ctx.Err() != nil {
			return err
		}
	}
}

func (r *reader) open(ctx context.Context) error {
	marks, revision, err := store.Range(ctx, r.store, r.keys.Segments())
	if err != nil {
		return err
	}
	if r.seen.Revision > revision {
		return store.ErrFutureRevision
	}
	r.lanes, r.revision = nil, revision
	floor := int64(0)
	for _, run := range runs(r.keys, marks, revision) {
		kept, err := r.floor(ctx, run)
		if err != nil {
			return err
		}
		floor = max(floor, kept)
		if len(run.marks) > 0 {
			from, to := r.keys.ServiceEvents(r.job, run.service, run.at(r.seen.Revision))
			r.lanes = append(r.lanes, &lane{from: from, to: to, more: true})
		}
	}
	// Who has seen everything before the floor misses nothing, whatever of it is
	// gone. A cursor in the midst of the revision before may.
	if r.seen != (Cursor{}) && r.seen.Compare(allOf(floor-1)) < 0 {
		return compacted(Cursor{Revision: floor})
	}
	return nil
}

// floor is the revision from which on all events of the job are kept that the
// service wrote.
func (r *reader) floor(ctx context.Context, run run) (int64, error) {
	key := r.keys.EventFloor(r.job, run.service)
	page, err := r.store.Page(ctx, store.PageRequest{From: key, To: key + "\x00", Revision: r.revision, Limit: 1})
	if err != nil || len(page.KVs) == 0 {
		return run.floor, err
	}
	raised, err := floorOf(page.KVs[0])
	return max(run.floor, raised), err
}

// Next implements Reader.
func (r *reader) Next(ctx context.Context) ([]*berthv1.Event, error) {
	if r.paused {
		if err := r.start(ctx); err != nil {
			return nil, translate(err)
		}
		r.paused = false
	}
	for {
		events, err := r.next(ctx)
		switch {
		case errors.Is(err, store.ErrCompacted):
			// etcd's history has gone on without this reader. What it has not seen
			// may be kept all the same.
			err = r.start(ctx)
		case len(events) > 0:
			return events, nil
		}
		if err != nil {
			return nil, translate(err)
		}
	}
}

// next answers what comes next, or nothing: then it is to be asked again.
func (r *reader) next(ctx context.Context) ([]*berthv1.Event, error) {
	var batch []placed
	var err error
	if r.watch == nil {
		batch, err = r.kept(ctx)
	} else {
		batch, err = r.watched(ctx)
	}
	if err != nil {
		return nil, err
	}
	var events []*berthv1.Event
	for _, p := range batch {
		if p.at.Compare(r.seen) > 0 {
			events, r.seen = append(events, p.event), p.at
		}
	}
	if len(batch) == 0 && r.watch != nil {
		r.sawAll(r.revision)
	}
	return events, nil
}

// sawAll notes that every event up to and with a revision was given.
func (r *reader) sawAll(revision int64) {
	if all := allOf(revision); all.Compare(r.seen) > 0 {
		r.seen = all
	}
}

// allOf is the place behind every event of a revision.
func allOf(revision int64) Cursor { return Cursor{revision, math.MaxInt64} }

// kept answers kept events, and turns to the watch after the last.
func (r *reader) kept(ctx context.Context) ([]placed, error) {
	var batch []placed
	for len(batch) < atOnce {
		first, err := r.first(ctx)
		if err != nil {
			return nil, err
		}
		if first == nil {
			if len(batch) == 0 {
				r.watch = r.store.Watch(r.keys.JobEvents(r.job), r.revision+1)
			}
			break
		}
		batch = append(batch, first.take())
	}
	return batch, nil
}

// first is the lane with the earliest event; nil when none has any.
func (r *reader) first(ctx context.Context) (*lane, error) {
	var first *lane
	for _, l := range r.lanes {
		if err := l.fill(ctx, r.Etcd, r.revision); err != nil {
			return nil, err
		}
		if len(l.page) > 0 && (first == nil || l.page[0].at.Compare(first.page[0].at) < 0) {
			first = l
		}
	}
	return first, nil
}

// watched waits for events that are written now, or for word that there are
// none.
func (r *reader) watched(ctx context.Context) ([]placed, error) {
	wait, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	batch, err := r.watch.Next(wait)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		r.watch.RequestProgress()
		return nil, nil
	case err != nil:
		return nil, err
	}
	r.revision = max(r.revision, batch.Revision)
	var put []store.KV
	for _, change := range batch.Changes {
		if !change.Deleted {
			put = append(put, change.KV)
		}
	}
	return r.decode(put)
}

// Pause implements Reader. A watch goes on to take what comes, however much; what is
// read page by page waits.
func (r *reader) Pause() {
	if r.watch != nil {
		r.Close()
		r.paused = true
	}
}

// Close implements Reader.
func (r *reader) Close() {
	if r.watch != nil {
		r.watch.Close()
	}
	r.watch = nil
}

// compacted refuses to resume at a cursor, and names one to go on from.
func compacted(from Cursor) error {
	return fault.New(fault.OutOfRange, fault.ReasonEventsCompacted,
		"events after this cursor are no longer kept; list the reservations, and go on with the cursor given").
		With("cursor", from.String())
}

// translate says what an error of the store means to who follows a stream.
func translate(err error) error {
	var told *fault.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, store.ErrFutureRevision):
		return fault.BadField(fault.ReasonInvalid, "since", "the cursor is of a revision that is yet to come")
	case errors.Is(err, context.Canceled), errors.Is(err, store.ErrAmbiguous):
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer").Because(err)
	default:
		return fault.New(fault.Internal, fault.ReasonInternal, "the events cannot be read").Because(err)
	}
}
