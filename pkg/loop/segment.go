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

// currentSegment is the segment to which the leader adds job events.
type currentSegment struct {
	number, lease int64
	granted       time.Time
	// marked is set once the segment's mark is durable. Until then every write with
	// events includes the mark.
	marked        bool
	events, bytes int
}

// ensureSegment ensures that a number of further events fits into the current segment. If
// they do not fit, or the segment is too old, it starts a new segment with a new etcd
// lease.
func (d *Driver[C]) ensureSegment(ctx context.Context, events int) error {
	s := &d.segment
	if s.lease == 0 || s.events+events > d.limits.segmentEvents() || s.bytes > d.limits.segmentBytes() ||
		d.now().Sub(s.granted) > d.limits.segmentAge() {
		lease, err := d.Grant(ctx, d.limits.segmentTTL())
		if err != nil {
			return err
		}
		number := s.number
		if s.marked {
			number++
		}
		*s = currentSegment{number: number, lease: lease, granted: d.now()}
	}
	s.events += events
	return nil
}

// markSegment returns the operations that mark the current segment as the newest.
func (d *Driver[C]) markSegment() ([]store.Op, error) {
	mark := &recordv1.EventSegment{Number: d.segment.number}
	if newest, expired := d.index.newestOf(d.service); newest == d.segment.number-1 {
		mark.KeptFrom = expired
	}
	value, err := proto.Marshal(mark)
	if err != nil {
		return nil, err
	}
	return []store.Op{
		{Key: d.space.Segment(d.service, d.segment.number), Value: value, Lease: d.segment.lease},
		store.Put(d.space.NewestSegment(d.service), value),
	}, nil
}

// eventOp puts an event into the current segment.
func (d *Driver[C]) eventOp(event model.JobEvent) (store.Op, error) {
	d.lastEvent++
	value, err := wire.EncodeEvent(event, d.lastEvent)
	if err != nil {
		return store.Op{}, err
	}
	key := d.space.Event(keyspace.EventKey{
		Job: event.Key.Job, Service: d.service, Segment: d.segment.number, Number: d.lastEvent, Size: len(value),
	})
	d.segment.bytes += len(key) + len(value)
	return store.Op{Key: key, Value: value, Lease: d.segment.lease}, nil
}

// retentionPause is how long the driver waits after a step of enforceLimits has failed.
const retentionPause = time.Second

// retention is the progress of enforceLimits.
type retention struct {
	// committed is the revision of the last step. revoked is the number of the last segment
	// that was deleted as a whole.
	committed, revoked int64
	notBefore          time.Time
}

// enforceLimits deletes events that exceed the limits, one step at a time. It keeps the
// mark on the newest segment, because readers rely on it: nothing after the mark was
// deleted. Each step waits until the view contains the previous step.
func (d *Driver[C]) enforceLimits(ctx context.Context) error {
	if d.revision < d.retention.committed || d.now().Before(d.retention.notBefore) {
		return nil
	}
	if newest, expired := d.index.newestOf(d.service); expired != 0 && newest == d.segment.number && d.segment.marked {
		// The newest segment has expired, and this leader has added no event since.
		d.segment.lease = 0
		return d.commitRetention(ctx)
	}
	e, found := d.index.excess(d.service, d.limits)
	switch {
	case !found:
		return nil
	case e.job != "":
		return d.deleteJobEvents(ctx, e)
	case e.segment == d.retention.revoked:
		return nil
	}
	err := d.Revoke(ctx, e.lease)
	if err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
		d.retention.notBefore = d.now().Add(retentionPause)
		return nil
	}
	d.retention.revoked = e.segment
	return nil
}

// deleteJobEvents deletes a job's events in one segment and in all earlier ones, and
// raises the job's floor.
func (d *Driver[C]) deleteJobEvents(ctx context.Context, e excess) error {
	value, err := proto.Marshal(&recordv1.EventFloor{Segment: e.segment, Revision: e.keptFrom})
	if err != nil {
		return err
	}
	from, _ := d.space.SegmentEvents(e.job, d.service, 0)
	_, to := d.space.SegmentEvents(e.job, d.service, e.segment)
	return d.commitRetention(ctx, store.DeleteRange(from, to), store.Put(d.space.EventFloor(e.job, d.service), value))
}

// commitRetention commits a step of enforceLimits. It attaches the puts to the etcd lease
// of the current segment, so they exist longer than every earlier segment.
func (d *Driver[C]) commitRetention(ctx context.Context, ops ...store.Op) error {
	err := d.ensureSegment(ctx, 0)
	if err == nil {
		err = d.commitInSegment(ctx, ops)
	}
	if isFull(err) {
		d.retention.notBefore = d.now().Add(retentionPause)
		return nil
	}
	return err
}

func (d *Driver[C]) commitInSegment(ctx context.Context, ops []store.Op) error {
	for i := range ops {
		if !ops[i].Delete {
			ops[i].Lease = d.segment.lease
		}
	}
	if !d.segment.marked {
		marks, err := d.markSegment()
		if err != nil {
			return err
		}
		ops = append(marks, ops...)
	}
	committed, err := d.Log.Commit(ctx, []store.Write{{Ops: ops}})
	for _, c := range committed {
		d.segment.marked = true
		d.retention.committed = c.Revision
	}
	return err
}
