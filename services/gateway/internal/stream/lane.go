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

// lane is the kept events that one service wrote of a job. Their keys are in the
// order of the stream, so a stream is merged from a page of each lane, and who
// reads slowly costs no more than that.
type lane struct {
	from, to string
	page     []placed
	more     bool // behind the page
}

// placed is an event and its place.
type placed struct {
	at    Cursor
	event *berthv1.Event
}

// fill reads the next page where the last one was taken.
func (l *lane) fill(ctx context.Context, e *Etcd, revision int64) error {
	for len(l.page) == 0 && l.more {
		page, err := e.store.Page(ctx, store.PageRequest{From: l.from, To: l.to, Revision: revision, Limit: atOnce})
		if err != nil {
			return err
		}
		if l.page, err = e.decode(page.KVs); err != nil {
			return err
		}
		if l.more = page.More; l.more {
			l.from = page.Next()
		}
	}
	return nil
}

func (l *lane) take() placed {
	first := l.page[0]
	l.page = l.page[1:]
	return first
}

// decode reads events, and leaves out what is none. It puts them in the order of
// the stream: one transaction may list its keys in another.
func (e *Etcd) decode(kvs []store.KV) ([]placed, error) {
	list := make([]placed, 0, len(kvs))
	for _, kv := range kvs {
		if key, ok := e.keys.ParseEvent(kv.Key); ok && key.Segment == 0 {
			continue // a floor
		}
		event := &berthv1.Event{}
		err := proto.Unmarshal(kv.Value, event)
		index, errIndex := strconv.ParseInt(event.GetCursor(), 10, 64)
		if err == nil && errIndex == nil && index < 0 {
			errIndex = fmt.Errorf("its number is %d", index)
		}
		if err := errors.Join(err, errIndex); err != nil {
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "%s holds no event", kv.Key).Because(err)
		}
		// The revision is known only once the event is written, so whoever reads
		// it adds that.
		at := Cursor{kv.Mod, index}
		event.Revision, event.Cursor = at.Revision, at.String()
		list = append(list, placed{at, event})
	}
	slices.SortFunc(list, func(a, b placed) int { return a.at.Compare(b.at) })
	return list, nil
}
