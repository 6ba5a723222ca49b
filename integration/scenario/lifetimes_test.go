package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/testkit/fixedseed"
)

// Acceptance checks of lifetimes with more replicas than a played file can have. Each is a
// reservation of one worker.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	hosts := 12
	if *acceptance {
		hosts = 120
	}
	w := start(t, fleet.Config{LogLevel: "warn"})
	w.startSim("newest", 4, 10)
	w.startSim("mass", hosts, 10)
	w.awaitReady(4 + hosts)
	t.Run("lifetimes 1: newest first", func(t *testing.T) { newestFirst(newTimeline(w, t, "newest")) })
	t.Run("lifetimes 7: all expire at once", func(t *testing.T) {
		allExpire(newTimeline(w, t, "mass"), hosts*10-hosts/3)
	})
	w.quiesce()
}

// newestFirst has 60 replicas for 40 slots. The newest ones run, and when one of them
// expires, the next one does.
func newestFirst(l *timeline) {
	const replicas, slots = 60, 40
	disabled, err := l.client.Disable(l.ctx, &berthv1.DisableExecutorsRequest{
		Selector: &berthv1.ExecutorSelector{Ids: []string{"newest-0", "newest-1", "newest-2", "newest-3"}}})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range rand.New(rand.NewPCG(fixedseed.Or(*seed), 2)).Perm(replicas) {
		l.request(i, time.Time{})
	}
	began := time.Now()
	_, err = l.client.Enable(l.ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: disabled.GetRequestId()})
	if err != nil {
		l.t.Fatal(err)
	}
	l.until(func() bool { return len(l.running) >= slots })
	l.limit("the start of the newest replicas", time.Since(began), 2*time.Second)
	for i := range replicas {
		if newest := i >= replicas-slots; l.running[name(i)] != newest {
			l.t.Errorf("%s runs: %v", name(i), !newest)
		}
	}

	began = time.Now()
	l.request(replicas-1, began)
	next := name(replicas - slots - 1)
	l.until(func() bool { return l.running[next] && l.expired[name(replicas-1)] })
	l.limit("the start of the next replica", time.Since(began), time.Second)
	if len(l.running) != slots+1 {
		l.t.Errorf("%d replicas ran, want %d", len(l.running), slots+1)
	}
	if _, err := l.client.CancelJob(l.ctx, l.job); err != nil {
		l.t.Fatal(err)
	}
}

// allExpire starts many replicas, and lets all of them expire within a second.
func allExpire(l *timeline, replicas int) {
	began := time.Now()
	l.requestAll(replicas, func(int) time.Time { return time.Time{} })
	l.until(func() bool { return len(l.running) == replicas })
	l.limit("the start of all replicas", time.Since(began), 5*time.Second)

	first := time.Now().Add(time.Second)
	if *acceptance {
		first = first.Add(2 * time.Second) // until all requests are accepted
	}
	l.requestAll(replicas, func(i int) time.Time {
		return first.Add(time.Duration(i) * time.Second / time.Duration(replicas))
	})
	l.until(func() bool { return len(l.expired) == replicas })
	l.limit("the end of all replicas", time.Since(first), 5*time.Second)
	if len(l.running) != replicas {
		l.t.Errorf("%d replicas ran, want %d", len(l.running), replicas)
	}
	slices.Sort(l.lags)
	l.limit("the delay of 99 of 100 events", l.lags[len(l.lags)*99/100], time.Second)
}

// timeline follows the replicas of a job by its events.
type timeline struct {
	*world
	t      *testing.T
	job    string
	events chan read
	// running has the replicas that became RUNNING, expired those that ended EXPIRED.
	running, expired map[string]bool
	lags             []time.Duration
}

// read is an event, and the time from its change until it was read.
type read struct {
	*berthv1.Event
	lag time.Duration
}

func newTimeline(w *world, t *testing.T, job string) *timeline {
	l := &timeline{world: w, t: t, job: job, events: make(chan read, 100_000), running: map[string]bool{},
		expired: map[string]bool{}}
	ctx, stop := context.WithCancel(w.ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for event, err := range w.client.Events(ctx, job, "") {
			if err != nil {
				break
			}
			l.events <- read{event, time.Since(event.GetTime().AsTime())}
		}
	})
	t.Cleanup(func() { stop(); reader.Wait() })
	return l
}

// until reads events until a condition holds.
func (l *timeline) until(holds func() bool) {
	l.t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case e := <-l.events:
			l.lags = append(l.lags, e.lag)
			switch e.GetKind() {
			case berthv1.Event_WORKER_RUNNING:
				l.running[e.GetReservation()] = true
			case berthv1.Event_RESERVATION_EXPIRED:
				l.expired[e.GetReservation()] = true
			}
		case <-timeout:
			l.t.Fatalf("after %v, %d replicas have run and %d have expired", patience, len(l.running), len(l.expired))
		}
	}
}

// limit fails if something took longer than an acceptance check allows.
func (l *timeline) limit(what string, took, most time.Duration) {
	l.t.Helper()
	l.t.Logf("%s took %v", what, took.Round(time.Millisecond))
	if *acceptance && took > most {
		l.t.Errorf("%s took %v, want at most %v", what, took, most)
	}
}

func name(i int) string { return fmt.Sprintf("hour-%d", i) }

// request requests the i-th replica, the oldest first. If expireAt is set, the replica must
// exist and gets that expiry.
func (l *timeline) request(i int, expireAt time.Time) {
	r := &berthv1.Reservation{
		Job: l.job, Stage: "replica", Name: name(i), Count: 1, Constraints: &berthv1.Constraints{Sku: l.job},
		Priority: &berthv1.Priority{Order: proto.Int64(int64(-i))},
		Task:     &berthv1.Task{Payload: []byte(`{"readyAfter": "50ms"}`), Readiness: berthv1.Readiness_REPORTED.Enum()},
	}
	want := berthv1.UpsertReservationRequest_CREATED
	if !expireAt.IsZero() {
		r.ExpireAt, want = timestamppb.New(expireAt), berthv1.UpsertReservationRequest_EXTENDED
	}
	if answer, err := l.client.Reserve(l.ctx, r); err != nil || answer.GetChange() != want {
		l.t.Errorf("%s: %v, %v, want %v", r.GetName(), answer.GetChange(), err, want)
	}
}

// requestAll requests replicas, many at a time.
func (l *timeline) requestAll(n int, expireAt func(i int) time.Time) {
	var callers sync.WaitGroup
	const callersAtOnce = 32
	for caller := range callersAtOnce {
		callers.Go(func() {
			for i := caller; i < n; i += callersAtOnce {
				l.request(i, expireAt(i))
			}
		})
	}
	callers.Wait()
}
