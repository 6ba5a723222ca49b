package internal

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/store"
	"berth.dev/services/registry/queue"
	"berth.dev/testkit/looptest"
)

// begin starts a registry with the given configuration and without other services.
func begin(t *testing.T, config queue.Config) *loop.Loop[*queue.Core] {
	silent := func(*loop.Term, *queue.Core, model.Action) {}
	return looptest.Start(t, store.NewFake(store.FakeConfig{}), model.ServiceRegistry,
		func() *queue.Core { return queue.New(config) }, silent)
}

func refusedFor(err error, kind fault.Kind, reason fault.Reason) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Kind == kind && f.Reason == reason
}

// Before MarkReady the registry reports no demand. MarkReady opens the queue.
func TestMarkReadyOpensTheQueue(t *testing.T) {
	l := begin(t, queue.Config{Readiness: queue.ReadyOnSignal})
	s, q := NewReservations(l, nil), NewQueue(l)
	ctx := t.Context()
	made, err := s.UpsertReservation(ctx, upsert("j", "map", ""))
	if err != nil || made.GetState() != berthv1.Reservation_QUEUED ||
		made.GetReason() != string(fault.ReasonRegistryNotReady) {
		t.Fatal(made, err)
	}
	if pending, err := s.ListPending(ctx, &berthv1.ListPendingRequest{}); pending != nil ||
		!refusedFor(err, fault.Unavailable, fault.ReasonRegistryNotReady) {
		t.Errorf("pending before the registry is ready: %v, %v", pending, err)
	}
	standing, err := q.Standing(ctx, &berthv1.ExplainReservationRequest{Job: "j", Stage: "map"})
	if err != nil || standing.GetReason() != string(fault.ReasonRegistryNotReady) || standing.GetGroup() == "" {
		t.Errorf("explanation before the registry is ready: %v, %v", standing, err)
	}

	first, err := s.MarkReady(ctx, &berthv1.MarkReadyRequest{RequestId: "a"})
	if err != nil || first.GetReadySince().AsTime().IsZero() {
		t.Fatal(first, err)
	}
	again, err := s.MarkReady(ctx, &berthv1.MarkReadyRequest{RequestId: "b"})
	if err != nil || !again.GetReadySince().AsTime().Equal(first.GetReadySince().AsTime()) {
		t.Errorf("a repeat answers %v, %v; not %v", again, err, first)
	}
	if pending, err := s.ListPending(ctx, &berthv1.ListPendingRequest{}); err != nil || !pending.GetReady() ||
		len(pending.GetGroups()) != 1 {
		t.Errorf("pending: %v, %v", pending, err)
	}
	if got, err := s.GetReservation(ctx, &berthv1.GetReservationRequest{Job: "j", Stage: "map"}); err != nil ||
		got.GetState() != berthv1.Reservation_LEASING {
		t.Errorf("the head is not a candidate: %v, %v", got, err)
	}
}

func TestFlushAndExplain(t *testing.T) {
	l := begin(t, queue.Config{})
	s, q := NewReservations(l, nil), NewQueue(l)
	ctx := t.Context()
	for _, job := range []string{"j", "j2", "k"} {
		if _, err := s.UpsertReservation(ctx, upsert(job, "map", "")); err != nil {
			t.Fatal(err)
		}
	}
	standing, err := q.Standing(ctx, &berthv1.ExplainReservationRequest{Job: "k", Stage: "map"})
	if err != nil {
		t.Fatal(err)
	}
	if standing.GetPosition() != 3 || standing.GetQueued() != 3 || standing.GetHead().GetJob() != "j" ||
		standing.GetNeeded() != 3 ||
		standing.GetReason() != string(fault.ReasonBehindHead) || standing.GetReservation().GetUid() == "" ||
		standing.GetReservation().GetWorkers() != nil ||
		standing.GetHeadAge().AsDuration() < standing.GetAge().AsDuration() || standing.Tried != nil {
		t.Errorf("standing %v", standing)
	}
	if _, err := q.Standing(ctx, &berthv1.ExplainReservationRequest{Job: "nobody", Stage: "map"}); !refusedFor(err,
		fault.NotFound, fault.ReasonNotFound) {
		t.Errorf("explanation of an unknown reservation: %v", err)
	}
	if findings, err := q.QueueFindings(ctx, &berthv1.ListFindingsRequest{}); err != nil ||
		len(findings.GetFindings()) != 0 {
		t.Errorf("findings: %v, %v", findings, err)
	}

	if _, err := s.FlushReservations(ctx, &berthv1.FlushReservationsRequest{}); !refusedFor(err, fault.Invalid,
		fault.ReasonRequired) {
		t.Errorf("a flush of nothing: %v", err)
	}
	if answer, err := s.FlushReservations(ctx, &berthv1.FlushReservationsRequest{Job: "j"}); err != nil ||
		answer.GetCancelled() != 1 {
		t.Errorf("the job: %v, %v", answer, err)
	}
	for range 2 {
		answer, err := s.FlushReservations(ctx, &berthv1.FlushReservationsRequest{Group: standing.GetGroup(), RequestId: "f"})
		if err != nil || answer.GetCancelled() != 2 {
			t.Errorf("the group: %v, %v", answer, err)
		}
	}
	after, err := q.Standing(ctx, &berthv1.ExplainReservationRequest{Job: "k", Stage: "map"})
	if err != nil || after.GetGroup() != "" || after.GetReason() != string(fault.ReasonFlushed) ||
		after.HeadAge != nil {
		t.Errorf("after the flush: %v, %v", after, err)
	}
}

// Each finding names the service that reports it.
func TestQueueFindings(t *testing.T) {
	l := begin(t, queue.Config{Readiness: queue.ReadyOnSignal})
	var begun []queue.Finding
	findings := func(c *queue.Core) { begun = c.Findings(time.Now().Add(time.Hour)) }
	if err := l.Read(t.Context(), false, findings); err != nil {
		t.Fatal(err)
	}
	if len(begun) != 1 || begun[0].Kind != queue.FindingNotReady || begun[0].Object != model.ServiceRegistry {
		t.Errorf("%+v", begun)
	}
	if answer, err := NewQueue(l).QueueFindings(t.Context(), &berthv1.ListFindingsRequest{}); err != nil ||
		len(answer.GetFindings()) != 0 {
		t.Errorf("%v, %v", answer, err)
	}
	var _ controlv1.QueueServer = NewQueue(l)
}

func TestMetricsOfExpiryAndRestarts(t *testing.T) {
	metrics, err := process.NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	metrics.Collect(func(f process.Scrape) {
		showCounts(f, queue.Counts{ExpiredQueued: 2, ExpiredActive: 1,
			Restarts: map[fault.Reason]uint64{fault.ReasonStartTimeout: 3, "COMPLETED": 4}})
	})
	answer := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`berth_registry_expired_total{state="QUEUED"} 2`, `berth_registry_expired_total{state="ACTIVE"} 1`,
		`berth_registry_restarts_total{reason="START_TIMEOUT"} 3`, `berth_registry_restarts_total{reason="COMPLETED"} 4`,
	} {
		if !strings.Contains(answer.Body.String(), line+"\n") {
			t.Errorf("no line %q in:\n%s", line, answer.Body)
		}
	}
}

// When a queue becomes empty, its metrics are deleted. No label contains a name that a user
// chose, and the number of series does not grow with the number of queues.
func TestMetricsOfAQueueEndWithIt(t *testing.T) {
	metrics, err := process.NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	l := begin(t, queue.Config{})
	s := NewReservations(l, nil)
	replica.CollectMetrics(&replica.Replica{Metrics: metrics}, l, TakeSnapshot, s.ShowMetrics)
	scrape := func() string {
		answer := httptest.NewRecorder()
		metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	ctx := t.Context()
	group := func(job string) string {
		standing, err := NewQueue(l).Standing(ctx, &berthv1.ExplainReservationRequest{Job: job, Stage: "mapstage"})
		if err != nil {
			t.Fatal(err)
		}
		return standing.GetGroup()
	}
	has := func(text string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no line %q in:\n%s", line, text)
			}
		}
	}

	for _, job := range []string{"jobname1", "jobname2"} {
		if _, err := s.UpsertReservation(ctx, upsert(job, "mapstage", "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.UpsertReservation(ctx, upsert("jobname1", "mapstage", "")); err != nil {
		t.Fatal(err)
	}
	bad := upsert("jobname3", "mapstage", "")
	bad.Reservation.Count = -1
	if _, err := s.UpsertReservation(ctx, bad); err == nil {
		t.Fatal("an invalid request was accepted")
	}
	id := group("jobname1")
	text := scrape()
	has(text,
		"berth_registry_ready 1", "berth_registry_queues 1", "berth_registry_leased_reservations 0",
		fmt.Sprintf(`berth_registry_queue_reservations{group=%q} 2`, id),
		fmt.Sprintf(`berth_registry_queue_workers{group=%q} 6`, id),
		`berth_registry_reservations{state="QUEUED"} 2`, `berth_registry_upserts_total{change="CREATED"} 2`,
		`berth_registry_upserts_total{change="UNCHANGED"} 1`,
		`berth_registry_upserts_refused_total{reason="INVALID"} 1`,
		`berth_registry_events_total{event="RESERVATION_QUEUED"} 2`,
		`berth_registry_events_total{event="RESERVATION_REQUEUED"} 0`, "berth_registry_cycles_total 1",
		`berth_registry_wakeups_total{cause="change"} 1`,
		`berth_registry_candidates_total{outcome="no_fit"} 0`, `berth_registry_dispatches_total{outcome="accepted"} 0`,
		"berth_registry_time_in_queue_duration_seconds_count 0",
	)
	if !strings.Contains(text, fmt.Sprintf("berth_registry_queue_head_age_seconds{group=%q} ", id)) {
		t.Error("no age of the head")
	}

	if _, err := s.FlushReservations(ctx, &berthv1.FlushReservationsRequest{Group: id}); err != nil {
		t.Fatal(err)
	}
	text = scrape()
	has(text, "berth_registry_queues 0", `berth_registry_events_total{event="RESERVATION_CANCELLED"} 2`,
		`berth_registry_reservations{state="CANCELLED"} 2`)
	if strings.Contains(text, id) || strings.Contains(text, "berth_registry_queue_") {
		t.Errorf("the metrics of a deleted queue are still exported:\n%s", text)
	}

	for i := range maxGroups + 20 {
		u := upsert("jobname4", fmt.Sprint("mapstage", i), "")
		u.Reservation.Count, u.Reservation.Constraints = int32(1+i), &berthv1.Constraints{Sku: fmt.Sprint("skuname", i)}
		if _, err := s.UpsertReservation(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	text = scrape()
	has(text, fmt.Sprintf("berth_registry_queues %d", maxGroups+20),
		`berth_registry_queue_reservations{group="other"} 20`, `berth_registry_queue_workers{group="other"} 210`)
	if n := strings.Count(text, "berth_registry_queue_workers{"); n != maxGroups+1 {
		t.Errorf("%d queues are shown", n)
	}
	for _, name := range []string{"jobname", "mapstage", "skuname"} {
		if strings.Contains(text, name) {
			t.Errorf("the metrics contain %s", name)
		}
	}
}

// The errors UNAVAILABLE and NOT_LEADER do not count as refusals. Other errors count by
// reason.
func TestRefusalsAreCountedByReason(t *testing.T) {
	var r refusals
	for _, err := range []error{
		nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "perhaps"),
		fault.New(fault.Precondition, fault.ReasonNotLeader, "there"),
		fault.New(fault.Conflict, fault.ReasonWorkerIDUsed, "used"), fault.BadField(fault.ReasonBadName, "job", "bad"),
		fault.BadField(fault.ReasonBadName, "stage", "bad"),
	} {
		r.count(err)
	}
	if all := r.all(); len(all) != 2 || all[fault.ReasonWorkerIDUsed] != 1 || all[fault.ReasonBadName] != 2 {
		t.Errorf("%v", all)
	}
}
