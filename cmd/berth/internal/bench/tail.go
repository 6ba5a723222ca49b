package bench

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// tail calls observe with every event of the world and the time at which etcd's watch
// delivered the event. The events are in the order of the changes that they report. tail
// runs until stopTail is called, at the latest when the world ends.
func (w *World) tail(ctx context.Context, observe func(e *berthv1.Event, at time.Time)) error {
	from, err := w.revision(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	watch := w.Etcd.Watch(w.Space.Events()+w.Prefix, from+1)
	done := make(chan error, 1)
	go func() {
		defer watch.Close()
		for {
			batch, err := watch.Next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				done <- err
				return
			}
			at := time.Now()
			for _, change := range batch.Changes {
				key, ok := w.Space.ParseEvent(change.Key)
				e := &berthv1.Event{}
				if !change.Deleted && ok && key.Segment != 0 && proto.Unmarshal(change.Value, e) == nil {
					observe(e, at)
				}
			}
		}
	}()
	w.stopTail = sync.OnceValue(func() error { cancel(); return <-done })
	return nil
}

// starts reports when all workers of a batch are started. A worker is started when its
// executor has acknowledged it, so that it is STARTING or in a later state.
type starts struct {
	mu      sync.Mutex
	batches map[client.Key]*start
}

// start is a batch that waits for the start of its workers.
type start struct {
	workers int
	leased  time.Time
	// named has the indexes of the workers that events have named. An event about many
	// workers names no workers.
	named map[int32]bool
	// running is the sum of the counts of RUNNING events.
	running int
	done    chan struct{}
	at      time.Time // set before done is closed
}

// expect registers a batch for observe. It must be called before the batch is requested.
func (s *starts) expect(key client.Key, workers int) *start {
	one := &start{workers: workers, named: map[int32]bool{}, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[key] = one
	return one
}

func (s *starts) observe(e *berthv1.Event, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.batches[keyOf(e)]
	if one == nil {
		return
	}
	switch e.GetKind() {
	case berthv1.Event_RESERVATION_LEASED:
		one.leased = at
		return
	case berthv1.Event_WORKER_RUNNING:
		one.running += int(e.GetCount())
	case berthv1.Event_WORKER_STARTED, berthv1.Event_WORKER_COMPLETED:
	default:
		return
	}
	for _, worker := range e.GetWorkers() {
		one.named[worker.GetIndex()] = true
	}
	if len(one.named) >= one.workers || one.running >= one.workers {
		one.at = at
		close(one.done)
		delete(s.batches, keyOf(e))
	}
}

// freeFleet adds executors with free capacity for every batch that start requests, and
// observes the starts of their workers.
func (w *World) freeFleet(ctx context.Context, n int, resources string) error {
	if err := w.Simulate(ctx, "free", n, resources); err != nil {
		return err
	}
	return w.tail(ctx, w.starts.observe)
}

// start requests a batch and waits until all its workers are started. It returns the times
// at which the watch delivered the lease and the last start.
func (w *World) start(ctx context.Context, b Batch) (leased, started time.Time, err error) {
	return w.startAs(ctx, w.Client, b)
}

// startAs does the same as start, with the client of another caller.
func (w *World) startAs(ctx context.Context, c *client.Client, b Batch) (leased, started time.Time, err error) {
	one := w.starts.expect(b.Key(), b.Workers)
	if _, err := c.Reserve(ctx, b.Request()); err != nil {
		return leased, started, err
	}
	select {
	case <-one.done:
		return one.leased, one.at, nil
	case <-ctx.Done():
		return leased, started, context.Cause(ctx)
	}
}
