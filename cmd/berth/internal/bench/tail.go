package bench

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// tail follows the events of a world as etcd gives them out, and stamps each
// with the time at which it was seen, until stopTail or the end of the world. One watch sees the events of all jobs in
// the order of the changes they tell of.
func (w *World) tail(ctx context.Context, see func(e *berthv1.Event, at time.Time)) error {
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
				if key, ok := w.Space.ParseEvent(change.Key); change.Deleted || !ok || key.Segment == 0 {
					continue
				}
				e := &berthv1.Event{}
				if err := proto.Unmarshal(change.Value, e); err != nil {
					done <- err
					return
				}
				see(e, at)
			}
		}
	}()
	w.stopTail = sync.OnceValue(func() error { cancel(); return <-done })
	return nil
}

// starts tells when every worker of a batch was acknowledged by its executor:
// STARTING, or a later state where that one was skipped.
type starts struct {
	mu      sync.Mutex
	batches map[client.Key]*start
}

// start is one batch under way.
type start struct {
	workers int
	leased  time.Time
	// named are the workers that events told of by name. An event of many workers
	// names none; the RUNNING ones add up by themselves.
	named   map[int32]bool
	running int
	done    chan struct{}
	at      time.Time // set before done is closed
}

func newStarts() *starts { return &starts{batches: map[client.Key]*start{}} }

// expect is called before the batch is asked for.
func (s *starts) expect(key client.Key, workers int) *start {
	one := &start{workers: workers, named: map[int32]bool{}, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[key] = one
	return one
}

// see takes an event in.
func (s *starts) see(e *berthv1.Event, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()}
	one := s.batches[key]
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
		delete(s.batches, key)
	}
}

// wait waits until all workers were acknowledged, and says when that was.
func (one *start) wait(ctx context.Context) (time.Time, error) {
	select {
	case <-one.done:
		return one.at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
