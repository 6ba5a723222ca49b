package stream

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// Etcd reads events where the services wrote them. A stream from the start
// ranges over the keys at one revision and watches from the next. A resumed
// stream only watches, from the revision of its cursor: etcd's history also has
// the events whose keys ran out since, so nothing can be missed unnoticed.
// When the history no longer reaches back that far, the cursor is refused.
type Etcd struct {
	store store.Store
	keys  keyspace.Space
}

// NewEtcd makes the source of a cluster's events.
func NewEtcd(s store.Store, keys keyspace.Space) *Etcd { return &Etcd{s, keys} }

// Open implements Source.
func (e *Etcd) Open(ctx context.Context, job string, since Cursor) (Reader, error) {
	prefix := e.keys.JobEvents(job)
	if since == (Cursor{}) {
		kvs, revision, err := store.Range(ctx, e.store, prefix)
		if err != nil {
			return nil, translate(err)
		}
		kept, err := decode(kvs, since)
		if err != nil {
			return nil, err
		}
		return &reader{kept: kept, watch: e.store.Watch(prefix, revision+1)}, nil
	}
	// A watch tells late that its start is compacted; a read tells at once.
	_, err := e.store.Page(ctx, store.PageRequest{From: prefix, To: prefix + "\x00", Revision: since.Revision, Limit: 1})
	if err != nil {
		return nil, translate(err)
	}
	return &reader{since: since, watch: e.store.Watch(prefix, since.Revision)}, nil
}

// reader reads one job's events.
type reader struct {
	// kept are the events that were there at the start.
	kept  []*berthv1.Event
	since Cursor
	watch store.Watch
}

// Next implements Reader.
func (r *reader) Next(ctx context.Context) ([]*berthv1.Event, error) {
	if kept := r.kept; len(kept) > 0 {
		r.kept = nil
		return kept, nil
	}
	for {
		batch, err := r.watch.Next(ctx)
		if err != nil {
			return nil, translate(err)
		}
		var put []store.KV
		for _, change := range batch.Changes {
			if !change.Deleted {
				put = append(put, change.KV)
			}
		}
		events, err := decode(put, r.since)
		if err != nil || len(events) > 0 {
			return events, err
		}
	}
}

// Close implements Reader.
func (r *reader) Close() { r.watch.Close() }

// decode reads the events after a cursor and puts them in the order of the
// stream, which is not that of their keys.
func decode(kvs []store.KV, since Cursor) ([]*berthv1.Event, error) {
	type placed struct {
		at    Cursor
		event *berthv1.Event
	}
	var list []placed
	for _, kv := range kvs {
		event := &berthv1.Event{}
		err := proto.Unmarshal(kv.Value, event)
		index, errIndex := strconv.ParseInt(event.GetCursor(), 10, 64)
		if err := errors.Join(err, errIndex); err != nil {
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "%s holds no event", kv.Key).Because(err)
		}
		// The revision is known only once the event is written, so whoever reads
		// it adds that.
		at := Cursor{kv.Mod, index}
		event.Revision, event.Cursor = at.Revision, at.String()
		if at.Compare(since) > 0 {
			list = append(list, placed{at, event})
		}
	}
	slices.SortFunc(list, func(a, b placed) int { return a.at.Compare(b.at) })
	events := make([]*berthv1.Event, len(list))
	for i, p := range list {
		events[i] = p.event
	}
	return events, nil
}

// translate says what an error of the store means to who follows a stream.
func translate(err error) error {
	switch {
	case errors.Is(err, store.ErrCompacted):
		return fault.New(fault.OutOfRange, fault.ReasonEventsCompacted,
			"events after this cursor are no longer kept; start again with the cursor given").
			With("cursor", Cursor{}.String())
	case errors.Is(err, store.ErrFutureRevision):
		return fault.BadField(fault.ReasonInvalid, "since", "the cursor is of a revision that is yet to come")
	case errors.Is(err, context.Canceled), errors.Is(err, store.ErrAmbiguous):
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer").Because(err)
	default:
		return fault.New(fault.Internal, fault.ReasonInternal, "the events cannot be read").Because(err)
	}
}
