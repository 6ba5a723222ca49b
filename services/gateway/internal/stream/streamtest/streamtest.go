// Package streamtest writes job events with exactly the keys, marks and floors that the
// services write, so that tests of readers need no service.
package streamtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// TB is the part of testing.TB that rapid.T also implements.
type TB interface {
	Helper()
	Fatal(args ...any)
}

var _ TB = (testing.TB)(nil)

// Writer is a service that writes events.
type Writer struct {
	TB
	Store   store.Store
	Keys    keyspace.Space
	Service string
	// Segments are the segments of the service so far, oldest first.
	Segments []Segment
	fresh    bool // true if the newest segment has no mark yet
	n        int64
	// cut has, for each job, the segment up to which the job's events are deleted.
	cut map[string]int64
}

// Segment is an etcd lease and the events that are attached to it.
type Segment struct {
	Number, Lease int64
	// Created is the first revision of the segment. Dropped is a revision after the segment
	// has expired.
	Created, Dropped int64
}

// Rotate begins a new segment.
func (w *Writer) Rotate() {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	lease, err := w.Store.Grant(ctx, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	w.Segments = append(w.Segments, Segment{Number: int64(len(w.Segments) + 1), Lease: lease.ID})
	w.fresh = true
}

// Write writes count events of a job in one transaction, with the operations in reverse
// order. It returns the cursors and UIDs of the events.
func (w *Writer) Write(job string, count int) []string {
	w.Helper()
	if n := len(w.Segments); n == 0 || w.Segments[n-1].Dropped != 0 {
		w.Rotate()
	}
	segment := &w.Segments[len(w.Segments)-1]
	ops := make([]store.Op, count)
	first := w.n + 1
	for i := range count {
		w.n++
		event := model.JobEvent{Kind: model.EventWorkerRunning, Time: time.Now(), Key: model.Key{Job: job}, UID: w.uid(w.n)}
		value, err := wire.EncodeEvent(event, w.n)
		if err != nil {
			w.Fatal(err)
		}
		key := w.Keys.Event(keyspace.EventKey{Job: job, Service: w.Service, Segment: segment.Number, Number: w.n,
			Size: len(value)})
		ops[count-1-i] = store.Op{Key: key, Value: value, Lease: segment.Lease}
	}
	if w.fresh {
		marked := &recordv1.EventSegment{Number: segment.Number}
		if segment.Number > 1 {
			marked.KeptFrom = w.Segments[segment.Number-2].Dropped
		}
		mark := w.encode(marked)
		ops = append(ops, store.Op{Key: w.Keys.Segment(w.Service, segment.Number), Value: mark, Lease: segment.Lease},
			store.Put(w.Keys.NewestSegment(w.Service), mark))
	}
	revision := w.commit(ops...)
	if w.fresh {
		w.fresh, segment.Created = false, revision
	}
	written := make([]string, count)
	for i := range written {
		written[i] = fmt.Sprintf("%d-%d %s", revision, first+int64(i), w.uid(first+int64(i)))
	}
	return written
}

// Cut deletes the events of a job up to and including a segment, and raises the floor. The
// segment must be before the newest segment. Like the services, Cut never lowers a floor.
func (w *Writer) Cut(job string, number int64) {
	w.Helper()
	if number <= w.cut[job] {
		return
	}
	if w.cut == nil {
		w.cut = map[string]int64{}
	}
	w.cut[job] = number
	from, _ := w.Keys.SegmentEvents(job, w.Service, 0)
	_, to := w.Keys.SegmentEvents(job, w.Service, number)
	floor := w.encode(&recordv1.EventFloor{Segment: number, Revision: w.Segments[number].Created})
	w.commit(store.DeleteRange(from, to), store.Op{
		Key: w.Keys.EventFloor(job, w.Service), Value: floor, Lease: w.Segments[len(w.Segments)-1].Lease,
	})
}

// Drop makes a segment expire.
func (w *Writer) Drop(number int64) {
	w.Helper()
	segment := &w.Segments[number-1]
	ctx, cancel := patient()
	defer cancel()
	if err := w.Store.Revoke(ctx, segment.Lease); err != nil {
		w.Fatal(err)
	}
	page, err := w.Store.Page(ctx, store.PageRequest{From: "a", To: "b", Limit: 1})
	if err != nil {
		w.Fatal(err)
	}
	segment.Dropped = page.Revision
}

// patient returns the context of a call. Its deadline is longer than the store's default,
// because etcd may be slow on a busy machine.
func patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func (w *Writer) uid(n int64) string { return fmt.Sprintf("%s-%d", w.Service, n) }

func (w *Writer) encode(m proto.Message) []byte {
	value, err := proto.Marshal(m)
	if err != nil {
		w.Fatal(err)
	}
	return value
}

func (w *Writer) commit(ops ...store.Op) int64 {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	result, err := w.Store.Txn(ctx, store.Txn{Then: ops})
	if err != nil {
		w.Fatal(err)
	}
	return result.Revision
}
