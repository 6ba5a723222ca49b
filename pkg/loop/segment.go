package loop

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// writing is the segment that a term's job events go into.
type writing struct {
	number, lease int64
	granted       time.Time
	// marked is set once the segment's mark is durable. Until then the first
	// effect with events brings it along: it is the last of the first marking
	// effects.
	marked        bool
	marking       int
	events, bytes int
}

// room sees to a segment that takes a number of events more: the present one, or
// a new one on an etcd lease of its own.
func (d *Driver[C]) room(ctx context.Context, events int) error {
	w := &d.writing
	if w.lease == 0 || w.events+events > d.limits.segmentEvents() || w.bytes > d.limits.segmentBytes() ||
		d.now().Sub(w.granted) > d.limits.segmentAge() {
		lease, err := d.Grant(ctx, d.limits.segmentTTL())
		if err != nil {
			return err
		}
		number := w.number
		if w.marked {
			number++
		}
		*w = writing{number: number, lease: lease, granted: d.now()}
	}
	w.events += events
	return nil
}

// mark are the operations that mark the present segment and name it the newest.
func (d *Driver[C]) mark() ([]store.Op, error) {
	segment := &recordv1.EventSegment{Number: d.writing.number}
	if before, ranOut := d.kept.newestOf(d.service); before == d.writing.number-1 {
		segment.KeptFrom = ranOut
	}
	value, err := proto.Marshal(segment)
	if err != nil {
		return nil, err
	}
	return []store.Op{
		{Key: d.space.Segment(d.service, d.writing.number), Value: value, Lease: d.writing.lease},
		store.Put(d.space.NewestSegment(d.service), value),
	}, nil
}

// eventOp puts an event into the present segment.
func (d *Driver[C]) eventOp(event model.JobEvent) (store.Op, error) {
	d.events++
	value, err := wire.EncodeEvent(event, d.events)
	if err != nil {
		return store.Op{}, err
	}
	key := d.space.Event(keyspace.EventKey{
		Job: event.Key.Job, Service: d.service, Segment: d.writing.number, Number: d.events, Size: len(value),
	})
	d.writing.bytes += len(key) + len(value)
	return store.Op{Key: key, Value: value, Lease: d.writing.lease}, nil
}

// durable notes that the first effects that were encoded have become so.
func (w *writing) durable(effects int) {
	if w.marking > 0 {
		w.marking -= effects
		w.marked = w.marking <= 0
	}
}

// retainPause is how long the driver leaves alone what it could not revoke.
const retainPause = time.Second

// retain lets go of events where there are too many, a step at a time, and
// keeps the newest segment marked: a reader tells from it that nothing was
// dropped after. A step waits until the view has shown the one before.
func (d *Driver[C]) retain(ctx context.Context) error {
	if d.revision < d.retained || d.now().Before(d.retainAfter) {
		return nil
	}
	if number, ranOut := d.kept.newestOf(d.service); ranOut != 0 && number == d.writing.number && d.writing.marked {
		// Nothing was written since.
		d.writing.lease = 0
		return d.letGo(ctx)
	}
	e, some := d.kept.excess(d.service, d.limits)
	switch {
	case !some || e.job == "" && e.number == d.revoked:
		return nil
	case e.job != "":
		value, err := proto.Marshal(&recordv1.EventFloor{Segment: e.number, Revision: e.kept})
		if err != nil {
			return err
		}
		from, _ := d.space.SegmentEvents(e.job, d.service, 0)
		_, to := d.space.SegmentEvents(e.job, d.service, e.number)
		return d.letGo(ctx, store.DeleteRange(from, to), store.Put(d.space.EventFloor(e.job, d.service), value))
	}
	err := d.Revoke(ctx, e.lease)
	if err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
		d.retainAfter = d.now().Add(retainPause)
		return nil
	}
	d.revoked = e.number
	return nil
}

// letGo commits a step of retain. What it puts lives as long as the present
// segment, and so longer than any before.
func (d *Driver[C]) letGo(ctx context.Context, ops ...store.Op) error {
	err := d.room(ctx, 0)
	if isFull(err) {
		d.retainAfter = d.now().Add(retainPause)
		return nil
	}
	if err != nil {
		return err
	}
	for i := range ops {
		if !ops[i].Delete {
			ops[i].Lease = d.writing.lease
		}
	}
	if !d.writing.marked {
		marks, err := d.mark()
		if err != nil {
			return err
		}
		ops, d.writing.marking = append(marks, ops...), 1
	}
	committed, err := d.Log.Commit(ctx, []store.Write{{Ops: ops}})
	for _, c := range committed {
		d.writing.durable(c.Writes)
		d.retained = c.Revision
	}
	switch {
	case isFull(err):
		d.retainAfter = d.now().Add(retainPause)
		return nil
	case errors.Is(err, store.ErrFenced):
		return ErrFenced
	}
	return err
}
