package stream

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// Etcd reads the events that the services wrote to etcd. It reads the stored events at one
// revision, and watches from the next revision on. Whether a cursor can be resumed does not
// depend on etcd's history but on the stored events: the marks of segments and the floors of
// the job at that revision show which events are certainly stored.
type Etcd struct {
	// Readable, if set, returns an error while the events of the services cannot be read. Then
	// every read fails with it: an answer without events would be wrong. Readable must be set
	// before the first read.
	Readable func(ctx context.Context) error
	store    store.Store
	keys     keyspace.Space
}

// NewEtcd returns the source of a cluster's events.
func NewEtcd(s store.Store, keys keyspace.Space) *Etcd {
	return &Etcd{store: limited{s, make(chan struct{}, maxReads)}, keys: keys}
}

// maxReads is the maximum number of concurrent reads of etcd. When a gateway exits, all its
// readers reconnect to another gateway at once. Without the limit, their reads would time
// out.
const maxReads = 32

// limited is a store that limits the number of concurrent reads of pages.
type limited struct {
	store.Store
	reads chan struct{}
}

// Page implements store.Store.
func (l limited) Page(ctx context.Context, req store.PageRequest) (store.Page, error) {
	select {
	case l.reads <- struct{}{}:
		defer func() { <-l.reads }()
		return l.Store.Page(ctx, req)
	case <-ctx.Done():
		return store.Page{}, ctx.Err()
	}
}

// Open implements Source.
func (e *Etcd) Open(ctx context.Context, job string, since Cursor, stored bool) (Reader, error) {
	if err := e.readable(ctx); err != nil {
		return nil, err
	}
	r := &reader{Etcd: e, job: job, seen: since, storedOnly: stored}
	if err := r.start(ctx); err != nil {
		return nil, translate(err)
	}
	return r, nil
}

// Stored calls each with the stored events of a job in order. It may repeat events if etcd
// compacts the revision that it reads.
func (e *Etcd) Stored(ctx context.Context, job string, each func(*berthv1.Event)) error {
	if err := e.readable(ctx); err != nil {
		return err
	}
	r := &reader{Etcd: e, job: job}
	err := r.start(ctx)
	for err == nil {
		var next *stored
		if next, err = r.first(ctx); errors.Is(err, store.ErrCompacted) {
			err = r.start(ctx)
			continue
		}
		if err != nil || next == nil {
			break
		}
		each(next.page[0].event)
		next.page = next.page[1:]
	}
	if err != nil {
		return translate(err)
	}
	return nil
}

func (e *Etcd) readable(ctx context.Context) error {
	if e.Readable == nil {
		return nil
	}
	return e.Readable(ctx)
}

const (
	// progressInterval is the interval at which a quiet stream requests the progress of its
	// watch. If the watch breaks, the watch resumes from the last progress, and not from a
	// revision that was compacted long ago.
	progressInterval = time.Minute
	// pageSize is the number of stored events in one page.
	pageSize = 500
)

// reader reads one job's events.
type reader struct {
	*Etcd
	job string
	// seen is the position up to which Next has returned every event.
	seen Cursor
	// stored has, for each service, the stored events at revision that Next has not
	// returned. watch returns later events. It is nil until Next has returned all events
	// in stored.
	stored   []*stored
	revision int64
	watch    store.Watch
	// storedOnly is true if the reader ends after the stored events.
	storedOnly bool
	// paused is true after Pause has closed the watch. The stored events must then be read
	// again.
	paused bool
}

// start finds the stored events after seen. It repeats open if etcd compacts the revision
// meanwhile.
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
	r.stored, r.revision = nil, revision
	floor := int64(0)
	for _, s := range segmentsOf(r.keys, marks, revision) {
		of, err := r.floor(ctx, s)
		if err != nil {
			return err
		}
		floor = max(floor, of)
		if len(s.marks) > 0 {
			from, to := r.keys.ServiceEvents(r.job, s.service, s.at(r.seen.Revision))
			r.stored = append(r.stored, &stored{from: from, to: to, more: true})
		}
	}
	// A reader that has seen every event before the floor misses no event. A reader whose
	// cursor is within the revision before the floor may miss events.
	if r.seen != (Cursor{}) && r.seen.Compare(endOf(floor-1)) < 0 {
		return compacted(Cursor{Revision: floor})
	}
	return nil
}

// floor returns the revision from which on every event of the job that the service wrote is
// stored.
func (r *reader) floor(ctx context.Context, s segments) (int64, error) {
	key := r.keys.EventFloor(r.job, s.service)
	page, err := r.store.Page(ctx, store.PageRequest{From: key, To: key + "\x00", Revision: r.revision, Limit: 1})
	if err != nil || len(page.KVs) == 0 {
		return s.floor, err
	}
	raised, err := floorOf(page.KVs[0])
	return max(s.floor, raised), err
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
			// etcd has compacted revisions that this reader has not read. The events
			// may still be stored.
			err = r.start(ctx)
		case len(events) > 0:
			return events, nil
		}
		if err != nil {
			return nil, translate(err)
		}
	}
}

// next returns the next events. If it returns no events and no error, it must be called
// again.
func (r *reader) next(ctx context.Context) ([]*berthv1.Event, error) {
	var batch []positioned
	var err error
	if r.watch == nil {
		batch, err = r.nextStored(ctx)
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
	if end := endOf(r.revision); len(batch) == 0 && r.watch != nil && end.Compare(r.seen) > 0 {
		r.seen = end
	}
	return events, nil
}

// endOf returns the position after every event of a revision.
func endOf(revision int64) Cursor { return Cursor{revision, math.MaxInt64} }

// nextStored returns stored events. When no stored event is left, it returns none and starts
// the watch.
func (r *reader) nextStored(ctx context.Context) ([]positioned, error) {
	var batch []positioned
	for len(batch) < pageSize {
		first, err := r.first(ctx)
		if err != nil {
			return nil, err
		}
		if first == nil {
			if len(batch) == 0 {
				if r.storedOnly {
					return nil, io.EOF
				}
				r.watch = r.store.Watch(r.keys.JobEvents(r.job), r.revision+1)
			}
			break
		}
		batch = append(batch, first.page[0])
		first.page = first.page[1:]
	}
	return batch, nil
}

// first returns the stored events of the service with the earliest event, or nil if no event
// is left.
func (r *reader) first(ctx context.Context) (*stored, error) {
	var first *stored
	for _, s := range r.stored {
		if err := s.fill(ctx, r.Etcd, r.revision); err != nil {
			return nil, err
		}
		if len(s.page) > 0 && (first == nil || s.page[0].at.Compare(first.page[0].at) < 0) {
			first = s
		}
	}
	return first, nil
}

// watched waits for new events or for progress of the watch.
func (r *reader) watched(ctx context.Context) ([]positioned, error) {
	wait, cancel := context.WithTimeout(ctx, progressInterval)
	defer cancel()
	batch, err := r.watch.Next(wait)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		r.watch.RequestProgress()
		return nil, r.readable(ctx) // a watch is silent while etcd does not answer
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

// Pause implements Reader. It closes the watch, because a watch would buffer all new events.
// Stored events need no such buffer: they are read page by page.
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

// compacted returns the error for a cursor that cannot be resumed. The error names the
// cursor with which the reader can continue.
func compacted(from Cursor) error {
	return fault.New(fault.OutOfRange, fault.ReasonEventsCompacted,
		"events after this cursor are no longer stored; list the reservations, and continue with the cursor in this error").
		With("cursor", from.String())
}

// translate returns the error of the store as an error for the caller of a stream.
func translate(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, store.ErrFutureRevision):
		return fault.BadField(fault.ReasonInvalid, "since", "the cursor has a revision in the future")
	case errors.Is(err, context.Canceled), errors.Is(err, store.ErrAmbiguous):
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer").Because(err)
	default:
		return fault.New(fault.Internal, fault.ReasonInternal, "the events cannot be read").Because(err)
	}
}
