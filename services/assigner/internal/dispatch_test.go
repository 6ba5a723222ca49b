package internal

import (
	"fmt"
	"testing"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/looptest"
)

func start(t *testing.T) (*loop.Loop[*dispatch.Core], *store.Fake) {
	s := store.NewFake(store.FakeConfig{})
	return startOn(t, s), s
}

func startOn(t *testing.T, s store.Store) *loop.Loop[*dispatch.Core] {
	silent := func(*loop.Term, *dispatch.Core, model.Action) {}
	return looptest.Start(t, s, model.ServiceAssigner, func() *dispatch.Core { return dispatch.New(dispatch.Default) },
		silent)
}

func TestCreateAssignmentTasks(t *testing.T) {
	l, s := start(t)
	h := NewDispatch(l, nil)
	term := looptest.Write(t, s, &model.Leader{Service: model.ServiceRegistry, Replica: "r"})
	answer, err := h.CreateAssignmentTasks(t.Context(), &controlv1.CreateTasksRequest{Term: term})
	if err != nil || len(answer.GetOutcomes()) != 0 {
		t.Errorf("without tasks: %v, %v", answer, err)
	}
	answer, err = h.CreateAssignmentTasks(t.Context(), &controlv1.CreateTasksRequest{Term: term,
		Tasks: []*controlv1.CreateTask{
			{Key: &berthv1.ReservationKey{Job: "j", Stage: "s", Name: "main"}, Uid: "gone", Mod: term, Lease: term},
		}})
	if err != nil || len(answer.GetOutcomes()) != 1 {
		t.Fatal(answer, err)
	}
	if o := answer.GetOutcomes()[0]; o.GetUid() != "gone" || o.GetResult() != controlv1.CreateOutcome_REFUSED ||
		o.GetReason() == "" {
		t.Errorf("a task without records: %v", o)
	}
	if _, err := h.CreateAssignmentTasks(t.Context(), &controlv1.CreateTasksRequest{Term: term - 1}); !fault.Is(err,
		fault.ReasonLowerTerm) {
		t.Errorf("a call of an earlier leader: %v", err)
	}
}

// Each accepted report gets its own answer. A refused report gets no answer.
func TestReportWorkers(t *testing.T) {
	l, s := start(t)
	h := NewDispatch(l, nil)
	request := &controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{{Executor: "stranger",
		Incarnation: 1}}}
	var revision int64
	for i := range 20 {
		id := fmt.Sprintf("e%d", i)
		revision = looptest.Write(t, s, &model.Executor{ID: id, Address: "a:1", Incarnation: 1, Ordinal: uint32(i + 1)})
		request.Reports = append(request.Reports, &controlv1.ExecutorReport{Executor: id, Incarnation: 1, Sequence: int64(i),
			Complete: true,
			Workers: []*controlv1.WorkerReport{{Job: "j", Stage: "s", Index: 1, Epoch: 3, Uid: "u",
				State: berthv1.Assignment_COMPLETED}}})
	}
	for l.Status().Revision < revision {
		if err := l.Read(t.Context(), false, func(*dispatch.Core) {}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := h.ReportWorkers(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int64{}
	for _, a := range answer.GetAnswers() {
		seen[a.GetExecutor()] = a.GetSequence()
	}
	if len(seen) != 20 || seen["stranger"] != 0 || seen["e7"] != 7 || len(answer.GetAnswers()) != 20 {
		t.Errorf("answered %v", answer)
	}
}

func TestClearQuarantineRefuses(t *testing.T) {
	l, s := start(t)
	a := NewAssignments(l, NewMembers(l, nil), nil)
	looptest.Write(t, s, &model.Executor{ID: "e", Address: "a:1", Incarnation: 1, Ordinal: 1})
	named := &berthv1.AssignedWorker{Job: "j", Stage: "s", Epoch: 7}
	for field, req := range map[string]*berthv1.ClearQuarantineRequest{
		"executor":         {Workers: []*berthv1.AssignedWorker{named}},
		"workers":          {Executor: "e"},
		"workers[0].job":   {Executor: "e", Workers: []*berthv1.AssignedWorker{{Stage: "s", Epoch: 7}}},
		"workers[1].stage": {Executor: "e", Workers: []*berthv1.AssignedWorker{named, {Job: "j", Epoch: 7}}},
		"workers[0].epoch": {Executor: "e", Workers: []*berthv1.AssignedWorker{{Job: "j", Stage: "s"}}},
	} {
		_, err := a.ClearQuarantine(t.Context(), req)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("without %s: %v", field, err)
		}
	}
	many := &berthv1.ClearQuarantineRequest{Executor: "e", Workers: make([]*berthv1.AssignedWorker, maxCleared+1)}
	if _, err := a.ClearQuarantine(t.Context(), many); !fault.Is(err, fault.ReasonTooLarge) {
		t.Errorf("too many: %v", err)
	}
	if _, err := a.ClearQuarantine(t.Context(), &berthv1.ClearQuarantineRequest{Executor: "x",
		Workers: []*berthv1.AssignedWorker{named}}); !fault.Is(err, fault.ReasonNotFound) {
		t.Errorf("on an unknown executor: %v", err)
	}
}

func TestListAssignmentsRefuses(t *testing.T) {
	l, _ := start(t)
	a := NewAssignments(l, NewMembers(l, nil), nil)
	if answer, err := a.ListAssignments(t.Context(), &berthv1.ListAssignmentsRequest{}); err != nil ||
		len(answer.GetAssignments()) != 0 || answer.GetCursor() != wire.CursorOf(answer.GetRevision()) {
		t.Errorf("without assignments: %v, %v", answer, err)
	}
	for name, req := range map[string]*berthv1.ListAssignmentsRequest{
		"page size":                 {PageSize: 1001},
		"page token":                {PageToken: "%"},
		"stage without job":         {Stage: "s"},
		"reservation without stage": {Job: "j", Reservation: "main"},
	} {
		if _, err := a.ListAssignments(t.Context(), req); fault.Of(err) == nil || fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
