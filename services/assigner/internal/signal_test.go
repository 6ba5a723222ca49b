package internal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/testkit/looptest"
)

// signalWorld starts a leader with a gang of three workers. The workers 1 and 3 are on an executor
// with a scripted agent, and the executor of worker 0 is not connected.
func signalWorld(t *testing.T) (*Assignments, *agent) {
	a, s := serve(t, &agent{}), store.NewFake(store.FakeConfig{})
	looptest.Write(t, s, &model.Live{ID: "e1", Incarnation: 3},
		&model.Executor{ID: "e0", Address: "gone:1", Incarnation: 3, Ordinal: 1, Nonce: "n"},
		&model.Executor{ID: "e1", Address: a.address, Incarnation: 3, Ordinal: 2, Nonce: "n"},
		&model.Reservation{Key: gangKey, UID: "u", State: model.Active, Workers: model.WorkerSet{{Last: 3, Number: 1}}},
		&model.TaskHeader{UID: "u", Key: gangKey, Epoch: 5, Complete: true, Chunks: 1, Workers: 3},
		&model.TaskChunk{UID: "u", Workers: []model.TaskWorker{running(0), running(1), running(3)}})
	l := startOn(t, s)
	return NewAssignments(l, NewMembers(l, nil), newSender(t)), a
}

func signalRequest(indexes ...int32) *berthv1.SignalWorkersRequest {
	r := &berthv1.SignalWorkersRequest{Job: "j", Stage: "s", Signal: "usr1", RequestId: "r"}
	for _, index := range indexes {
		r.Workers = append(r.Workers, &berthv1.WorkerID{Index: index})
	}
	return r
}

func showSignalled(answer *berthv1.SignalWorkersAnswer) string {
	text := fmt.Sprint(answer.GetSignalled(), " signalled")
	for _, f := range answer.GetFailed() {
		w := f.GetWorker()
		text += fmt.Sprintf(", %d.%d %s %s", w.GetIndex(), w.GetNumber(), f.GetExecutor(), f.GetReason())
	}
	return text
}

// Agents get the signal with the term of the leader, and the nonce and the incarnation of their
// executor. The answer says which workers did not get it, and why.
func TestSignalWorkers(t *testing.T) {
	s, a := signalWorld(t)
	var mu sync.Mutex
	var got []string
	a.signal = func(_ context.Context, req *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error) {
		mu.Lock()
		defer mu.Unlock()
		w := req.GetWorker()
		got = append(got, fmt.Sprint(w.GetIndex(), ".", w.GetNumber(), "@", w.GetEpoch(), " ", w.GetUid(), " ",
			req.GetTerm() == s.loop.Status().Term, " ", req.GetIncarnation(), " ", req.GetNonce(), " ", req.GetExecutor(), " ",
			req.GetSignal(), " ", req.GetRequestId()))
		return &controlv1.SignalTaskAnswer{}, nil
	}
	answer, err := s.SignalWorkers(t.Context(), signalRequest())
	if text := showSignalled(answer); err != nil || text != "2 signalled, 0.1 e0 EXECUTOR_UNREACHABLE" ||
		answer.GetFailedCount() != 1 {
		t.Error(text, err)
	}
	slices.Sort(got)
	if want := []string{"1.1@5 u true 3 n e1 SIGUSR1 r", "3.1@5 u true 3 n e1 SIGUSR1 r"}; !slices.Equal(got, want) {
		t.Errorf("the agent got %q", got)
	}
	answer, err = s.SignalWorkers(t.Context(), signalRequest(3, 2))
	if text := showSignalled(answer); err != nil || text != "1 signalled, 2.0  NOT_FOUND" {
		t.Error(text, err)
	}
	for name, c := range map[string]struct {
		err    error
		reason fault.Reason
	}{
		"has ended":   {fault.New(fault.NotFound, fault.ReasonNotFound, "x"), fault.ReasonNotFound},
		"function":    {fault.New(fault.Precondition, fault.ReasonUnsupported, "x"), fault.ReasonUnsupported},
		"older agent": {status.Error(codes.Unimplemented, "x"), fault.ReasonUnsupported},
		"lower term":  {fault.New(fault.Conflict, fault.ReasonLowerTerm, "x"), fault.ReasonExecutorUnreachable},
		"not leader":  {fault.New(fault.Precondition, fault.ReasonNotLeader, "x"), fault.ReasonExecutorUnreachable},
	} {
		a.signal = func(context.Context, *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error) {
			return nil, c.err
		}
		answer, err := s.SignalWorkers(t.Context(), signalRequest(1))
		if want := "0 signalled, 1.1 e1 " + string(c.reason); err != nil || showSignalled(answer) != want {
			t.Errorf("%s: %s, %v", name, showSignalled(answer), err)
		}
	}
	request := signalRequest()
	request.Stage = "other"
	if answer, err = s.SignalWorkers(t.Context(), request); err != nil || showSignalled(answer) != "0 signalled" {
		t.Error(showSignalled(answer), err)
	}
}

// A call whose deadline is near answers in time, and says that the workers did not get the signal.
func TestSignalWorkersAnswersInTime(t *testing.T) {
	s, a := signalWorld(t)
	a.signal = func(ctx context.Context, _ *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), signalReserve+signalTimeout/4)
	defer cancel()
	answer, err := s.SignalWorkers(ctx, signalRequest(1, 3))
	if want := "0 signalled, 1.1 e1 EXECUTOR_UNREACHABLE, 3.1 e1 EXECUTOR_UNREACHABLE"; err != nil ||
		showSignalled(answer) != want {
		t.Error(showSignalled(answer), err)
	}
}

// Invalid requests reach no agent, and the number of calls is limited.
func TestSignalWorkersRefuses(t *testing.T) {
	s, a := signalWorld(t)
	for field, edit := range map[string]func(*berthv1.SignalWorkersRequest){
		"job":               func(r *berthv1.SignalWorkersRequest) { r.Job = "" },
		"stage":             func(r *berthv1.SignalWorkersRequest) { r.Stage = "/" },
		"signal":            func(r *berthv1.SignalWorkersRequest) { r.Signal = "" },
		"requestId":         func(r *berthv1.SignalWorkersRequest) { r.RequestId = "a b" },
		"workers[0].index":  func(r *berthv1.SignalWorkersRequest) { r.Workers[0].Index = -1 },
		"workers[0].number": func(r *berthv1.SignalWorkersRequest) { r.Workers[0].Number = -1 },
		"workers":           func(r *berthv1.SignalWorkersRequest) { r.Workers = make([]*berthv1.WorkerID, maxSignalled+1) },
	} {
		request := signalRequest(1)
		edit(request)
		if _, err := s.SignalWorkers(t.Context(), request); len(fault.Of(err).Fields) != 1 ||
			fault.Of(err).Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	request := signalRequest(1)
	request.Signal = "RTMIN"
	if _, err := s.SignalWorkers(t.Context(), request); !fault.Is(err, fault.ReasonInvalid) {
		t.Error(err)
	}
	for range maxSignalCalls {
		s.signals.calls <- struct{}{}
	}
	if _, err := s.SignalWorkers(t.Context(), signalRequest(1)); !fault.Is(err, fault.ReasonOverloaded) {
		t.Error(err)
	}
	if a.conns.Load() > 0 {
		t.Error("a request reached the agent")
	}
	without := NewAssignments(s.loop, NewMembers(s.loop, nil), nil)
	if _, err := without.SignalWorkers(t.Context(), signalRequest(1)); !fault.Is(err, fault.ReasonUnsupported) {
		t.Error(err)
	}
}
