package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

// stored has the stored events that one service wrote for a job. The order of their keys is
// the order of the stream. A stream therefore merges one page of each service, and a slow
// reader takes no more memory than these pages.
type stored struct {
	from, to string
	page     []positioned
	more     bool // true if events follow after the page
}

// positioned is an event and its position.
type positioned struct {
	at    Cursor
	event *berthv1.Event
}

// fill reads the next page if the last one is empty.
func (s *stored) fill(ctx context.Context, e *Etcd, revision int64) error {
	for len(s.page) == 0 && s.more {
		page, err := e.store.Page(ctx, store.PageRequest{From: s.from, To: s.to, Revision: revision, Limit: pageSize})
		if err != nil {
			return err
		}
		if s.page, err = e.decode(page.KVs); err != nil {
			return err
		}
		if s.more = page.More; s.more {
			s.from = page.Next()
		}
	}
	return nil
}

// decode decodes events and sorts them in the order of the stream. Within a transaction, this
// order differs from the order of the keys. decode skips the keys of floors.
func (e *Etcd) decode(kvs []store.KV) ([]positioned, error) {
	list := make([]positioned, 0, len(kvs))
	for _, kv := range kvs {
		if key, ok := e.keys.ParseEvent(kv.Key); ok && key.Segment == 0 {
			continue // a floor
		}
		event := &berthv1.Event{}
		err := proto.Unmarshal(kv.Value, event)
		index, errIndex := strconv.ParseInt(event.GetCursor(), 10, 64)
		if err == nil && errIndex == nil && index < 0 {
			errIndex = fmt.Errorf("its index is %d", index)
		}
		if err := errors.Join(err, errIndex); err != nil {
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "the value of %s is not an event", kv.Key).Because(err)
		}
		// The service that writes an event does not know the event's revision.
		at := Cursor{kv.Mod, index}
		event.Revision, event.Cursor = at.Revision, at.String()
		list = append(list, positioned{at, event})
	}
	slices.SortFunc(list, func(a, b positioned) int { return a.at.Compare(b.at) })
	return list, nil
}
