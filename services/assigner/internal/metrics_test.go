package internal

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/looptest"
)

// quarantined writes a task with a worker whose stop has been overdue for an hour.
func quarantined(t *testing.T, s *store.Fake) {
	key := model.Key{Job: "secret-job", Stage: "map", Name: "main"}
	ago := time.Now().Add(-time.Hour)
	looptest.Write(t, s,
		&model.Executor{ID: "e1", Address: "a:1", Incarnation: 1, Ordinal: 1},
		&model.LeaseChunk{UID: "u", Key: key, Chunks: 1, Total: 2,
			Workers: []model.Placement{{Worker: model.WorkerID{Index: 4, Number: 1}, Ordinal: 1}}},
		&model.TaskHeader{UID: "u", Key: key, Epoch: 1, Chunks: 1, Workers: 2, Complete: true, Stopping: true,
			CreatedAt: ago},
		&model.TaskChunk{UID: "u", Workers: []model.TaskWorker{
			{ID: model.WorkerID{Index: 4, Number: 1}, Ordinal: 1, State: model.WorkerEvicting, Since: model.InstantOf(ago),
				Attempts: 2, LastError: model.Intern("hangs")},
			{ID: model.WorkerID{Index: 5, Number: 1}, Ordinal: 1, State: model.WorkerCompleted, Since: model.InstantOf(ago)},
		}},
	)
}

func TestDispatchFindings(t *testing.T) {
	l, _ := start(t)
	h := NewDispatch(l, nil)
	if answer, err := h.DispatchFindings(t.Context(), &berthv1.ListFindingsRequest{}); err != nil ||
		len(answer.GetFindings()) != 0 {
		t.Fatalf("without records: %v, %v", answer, err)
	}
	// A leader ignores its own records in the view, so the records must exist before it is
	// elected.
	s := store.NewFake(store.FakeConfig{})
	quarantined(t, s)
	h = NewDispatch(startOn(t, s), nil)
	answer, err := h.DispatchFindings(t.Context(), &berthv1.ListFindingsRequest{})
	if err != nil || len(answer.GetFindings()) != 1 {
		t.Fatal(answer, err)
	}
	f := answer.GetFindings()[0]
	if f.GetKind() != dispatch.FindingQuarantined || f.GetObject() != "secret-job/map/4.1" ||
		f.GetService() != "assigner" ||
		f.GetAction() == "" || !strings.Contains(f.GetMessage(), "e1") || !strings.Contains(f.GetMessage(), "hangs") ||
		time.Since(f.GetSince().AsTime()) < time.Hour {
		t.Errorf("found %v", f)
	}
}

// Executors of another cluster, or a faulty agent, may report many orphaned workers. These
// workers hide no other finding, and the answer still fits in a message.
func TestOrphansHideNoOtherFinding(t *testing.T) {
	const executors, each = 40, 1000
	s := store.NewFake(store.FakeConfig{})
	quarantined(t, s)
	for i := range executors {
		looptest.Write(t, s, &model.Executor{ID: fmt.Sprintf("x%d", i), Address: "a:1", Incarnation: 1,
			Ordinal: uint32(i + 2)})
	}
	h := NewDispatch(startOn(t, s), nil)
	request := &controlv1.ReportWorkersRequest{}
	for i := range executors {
		report := &controlv1.ExecutorReport{Executor: fmt.Sprintf("x%d", i), Incarnation: 1, Sequence: 1, Complete: true}
		for index := range int32(each) {
			report.Workers = append(report.Workers, &controlv1.WorkerReport{
				Job: fmt.Sprintf("foreign-%d", i), Stage: "s", Index: index, Number: 1, Epoch: 1, Uid: "f",
				State: berthv1.Assignment_RUNNING,
			})
		}
		request.Reports = append(request.Reports, report)
	}
	if answer, err := h.ReportWorkers(t.Context(), request); err != nil || len(answer.GetAnswers()) != executors {
		t.Fatal(answer, err)
	}
	answer, err := h.DispatchFindings(t.Context(), &berthv1.ListFindingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if size := proto.Size(answer); size > 1<<20 {
		t.Errorf("the answer takes %d bytes", size)
	}
	var others, rest []*berthv1.Finding
	orphans := 0
	for _, f := range answer.GetFindings() {
		switch {
		case f.GetKind() != dispatch.FindingOrphanedWorker:
			rest = append(rest, f)
		case f.GetObject() == model.OtherFindings:
			others = append(others, f)
		default:
			orphans++
		}
	}
	if len(rest) != 1 || rest[0].GetKind() != dispatch.FindingQuarantined {
		t.Errorf("other findings than orphans: %v", rest)
	}
	if want := fmt.Sprintf("%d more of this kind", executors*each-orphans); orphans == 0 || len(others) != 1 ||
		others[0].GetMessage() != want {
		t.Errorf("%d orphans are listed, other findings: %v", orphans, others)
	}
}

func TestMetrics(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	quarantined(t, s)
	l := startOn(t, s)
	// A report confirms the end of the worker an hour after it was due.
	_, err := NewDispatch(l, nil).ReportWorkers(t.Context(),
		&controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{{
			Executor: "e1", Incarnation: 1, Sequence: 1, Workers: []*controlv1.WorkerReport{
				{Job: "secret-job", Stage: "map", Index: 4, Number: 1, Epoch: 1, Uid: "u", State: berthv1.Assignment_FAILED},
			},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	text := scrape(t, func() (s Snapshot) {
		if err := l.Read(t.Context(), false, func(c *dispatch.Core) { s = TakeSnapshot(c) }); err != nil {
			t.Fatal(err)
		}
		s.metrics.Retries[fault.ReasonNotAllowed] = 3
		return s
	})
	for _, line := range []string{
		`berth_assigner_tasks 1`, `berth_assigner_workers{state="FAILED"} 1`, `berth_assigner_workers{state="COMPLETED"} 1`,
		`berth_assigner_workers{state="ASSIGNED"} 0`,
		`berth_assigner_evictions_overdue_total 1`, `berth_assigner_failures_total{reason="KILLED"} 1`,
		`berth_assigner_retries_total{reason="NOT_ALLOWED"} 3`,
		`berth_assigner_findings{kind="QUARANTINED"} 0`, `berth_assigner_agent_requests_in_flight 0`,
		`berth_assigner_assign_batch_duration_seconds_count 0`, `berth_assigner_attempts_total 0`,
		`berth_assigner_lifetimes_total 0`, `berth_assigner_load_seconds_count 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
	if names := regexp.MustCompile(`secret-job|"map"|"main"`).FindString(text); names != "" {
		t.Errorf("the metrics name %s", names)
	}
}

// scrape returns the metrics text of a snapshot.
func scrape(t *testing.T, take func() Snapshot) string {
	t.Helper()
	metrics, err := process.NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	metrics.Collect(func(f process.Scrape) { ShowMetrics(f, take()) })
	answer := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}
