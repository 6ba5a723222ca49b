package internal

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/registry/queue"
	"berth.dev/testkit/looptest"
)

// sampled starts a replica of the registry that samples its queues until the test ends.
func sampled(t *testing.T, db store.Store, config queue.Config) (s *Reservations, l *loop.Loop[*queue.Core],
	leads chan bool) {
	t.Helper()
	leads = make(chan bool, 10)
	l = looptest.Run(t, db, model.ServiceRegistry, func() *queue.Core { return queue.New(config) },
		func(*loop.Term, *queue.Core, model.Action) {}, func(serving bool) { leads <- serving })
	s = NewReservations(l, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Sample(ctx, l.Peek) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, l, leads
}

func points(t *testing.T, s *Reservations) []*berthv1.PendingPoint {
	t.Helper()
	answer, err := s.GetPendingHistory(t.Context(), &berthv1.GetPendingHistoryRequest{})
	if err != nil || answer.GetInterval().AsDuration() != 15*time.Second || len(answer.GetPoints()) > 240 {
		t.Fatalf("%d points every %v: %v", len(answer.GetPoints()), answer.GetInterval().AsDuration(), err)
	}
	for i, p := range answer.GetPoints() {
		if at := p.GetTime().AsTime(); i > 0 && at.Sub(answer.GetPoints()[i-1].GetTime().AsTime()) != 15*time.Second ||
			time.Since(at) > time.Hour {
			t.Fatalf("point %d is of %v: %v", i, at, answer.GetPoints())
		}
	}
	return answer.GetPoints()
}

// A standby samples the same queues as the leader. So the history continues after a failover.
// It is limited to one hour.
func TestTheHistoryContinuesAfterAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := store.NewFake(store.FakeConfig{})
		first, l, leads := sampled(t, db, queue.Config{})
		if !<-leads {
			t.Fatal("no leader")
		}
		second, _, leads := sampled(t, db, queue.Config{})
		for _, job := range []string{"a", "b", "c"} {
			q := upsert(job, "map", "")
			if job == "c" {
				q.Reservation.Constraints = &berthv1.Constraints{Sku: "gpu"}
			}
			if _, err := first.UpsertReservation(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute + time.Second)
		before := points(t, first)
		if n := len(before); n != 4 || before[3].GetGroups() != 2 || before[3].GetReservations() != 3 ||
			before[3].GetWorkers() != 9 {
			t.Fatalf("the leader has %v", before)
		}
		if _, err := second.GetPendingHistory(t.Context(), &berthv1.GetPendingHistoryRequest{}); !fault.Is(err,
			fault.ReasonNotLeader) {
			t.Errorf("the standby answers %v", err)
		}
		if err := l.Resign(t.Context(), l.Status().Term); err != nil {
			t.Fatal(err)
		}
		if !<-leads {
			t.Fatal("the standby does not lead")
		}
		time.Sleep(time.Minute)
		if _, err := second.CancelJob(t.Context(), &berthv1.CancelJobRequest{Job: "b"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		after := points(t, second)
		if n := len(after); n != 12 || after[0].GetReservations() != 3 || after[n-1].GetReservations() != 2 ||
			after[n-1].GetWorkers() != 6 {
			t.Errorf("the new leader has %v", after)
		}
		time.Sleep(time.Hour)
		if n := len(points(t, second)); n != 240 {
			t.Errorf("%d points after an hour", n)
		}
	})
}

// Until the registry is ready, it knows only a part of the queues, and the history has no
// points.
func TestNoHistoryBeforeReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, leads := sampled(t, store.NewFake(store.FakeConfig{}), queue.Config{Readiness: queue.ReadyOnSignal})
		if !<-leads {
			t.Fatal("no leader")
		}
		time.Sleep(time.Minute + time.Second) // from here on between two points
		if list := points(t, s); len(list) != 0 {
			t.Errorf("points before readiness: %v", list)
		}
		if _, err := s.MarkReady(t.Context(), &berthv1.MarkReadyRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if list := points(t, s); len(list) != 4 {
			t.Errorf("points after readiness: %v", list)
		}
	})
}
