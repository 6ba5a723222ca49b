package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

func TestCallersWithBoundedOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []int
		l, err := callers(t.Context(), 4, bounds{most: 10}, func(_ context.Context, _, i int) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, i)
			return nil
		})
		slices.Sort(seen)
		if err != nil || !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) || len(l.Took) != 10 {
			t.Errorf("%v, did %v, %+v", err, seen, l)
		}
		// Ten operations of four callers take three rounds. The last round has two
		// operations.
		if l.Seconds != 3 || l.Took[0] != 1000 || l.Rate() != 10.0/3 {
			t.Errorf("%+v", l)
		}
	})
}

func TestCallersWithBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := callers(t.Context(), 2, bounds{time: 2500 * time.Millisecond}, func(context.Context, int, int) error {
			time.Sleep(time.Second)
			return nil
		})
		// Operations that began before the time limit still finish.
		if err != nil || len(l.Took) != 6 || l.Seconds != 3 {
			t.Errorf("%v, %+v", err, l)
		}
	})
}

func TestCallersReturnFirstError(t *testing.T) {
	broken := errors.New("broken")
	_, err := callers(t.Context(), 8, bounds{}, func(ctx context.Context, _, i int) error {
		if i == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestPacedPassesDueTime checks that an operation gets the time at which it was due even
// if it starts late.
func TestPacedPassesDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		due := map[int]time.Duration{}
		err := paced(t.Context(), 3, 10*time.Millisecond, func(_ context.Context, i int, at time.Time) error {
			time.Sleep(time.Second) // much longer than the interval
			mu.Lock()
			defer mu.Unlock()
			due[i] = at.Sub(began)
			return nil
		})
		if err != nil || due[0] != 0 || due[1] != 10*time.Millisecond || due[2] != 20*time.Millisecond {
			t.Errorf("%v, due %v", err, due)
		}
		if took := time.Since(began); took != 1020*time.Millisecond {
			t.Errorf("took %v: the operations did not run concurrently", took)
		}
		broken := errors.New("broken")
		err = paced(t.Context(), 1000, time.Minute, func(context.Context, int, time.Time) error { return broken })
		if !errors.Is(err, broken) || time.Since(began) > 2*time.Minute {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// TestStarts checks that a batch is started when all workers are acknowledged, and that
// each worker counts once, whether or not events name the worker.
func TestStarts(t *testing.T) {
	const started, running = berthv1.Event_WORKER_STARTED, berthv1.Event_WORKER_RUNNING
	type event struct {
		kind    berthv1.Event_Kind
		workers []int32
		count   int32
	}
	for _, tt := range []struct {
		name    string
		workers int
		events  []event
		at      int // the number of the event that completes the start, 0 for none
	}{
		{"one by one", 2, []event{{started, []int32{0}, 1}, {started, []int32{1}, 1}}, 2},
		{"twice the same", 2, []event{{started, []int32{0}, 1}, {running, []int32{0}, 1}}, 0},
		{"skipped", 2, []event{{started, []int32{0}, 1}, {running, []int32{1}, 1}}, 2},
		{"unnamed, so that only running counts", 300, []event{{started, nil, 300}, {running, nil, 299},
			{running, []int32{7}, 1}}, 3},
		{"assigned is not started", 1, []event{{berthv1.Event_WORKER_ASSIGNED, []int32{0}, 1}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := starts{batches: map[client.Key]*start{}}
			key := client.Key{Job: "j", Stage: "s", Name: "main"}
			one := s.expect(key, tt.workers)
			begun := time.Now()
			s.observe(&berthv1.Event{Kind: berthv1.Event_RESERVATION_LEASED, Job: "j", Stage: "s", Reservation: "main"}, begun)
			for i, given := range tt.events {
				e := &berthv1.Event{Kind: given.kind, Job: "j", Stage: "s", Reservation: "main", Count: given.count}
				for _, index := range given.workers {
					e.Workers = append(e.Workers, &berthv1.EventWorker{Index: index})
				}
				s.observe(e, begun.Add(time.Duration(i+1)))
			}
			if !one.leased.Equal(begun) {
				t.Errorf("leased at %v", one.leased)
			}
			select {
			case <-one.done:
				if got := int(one.at.Sub(begun)); got != tt.at {
					t.Errorf("started with event %d, want %d", got, tt.at)
				}
			default:
				if tt.at != 0 {
					t.Error("not started")
				}
			}
		})
	}
}
