package internal

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/agenttest"
	"berth.dev/testkit/looptest"
)

// No answer of an agent makes the assigner panic. An invalid answer counts as a failed
// attempt.
func TestAnInvalidAnswerOfAnAgentIsAFailedAttempt(t *testing.T) {
	for _, lie := range agenttest.Lies() {
		t.Run(lie.Name, func(t *testing.T) {
			liar := agenttest.Serve(t, lie.Script)
			o := newSender(t)
			for _, p := range []bundle{
				{submitOf(liar.Address, "u", "e", 0)},
				{submitOf(liar.Address, "u", "e", 0), submitOf(liar.Address, "u", "e", 1)},
			} {
				if len(p) == 1 && lie.Script.Submit == nil {
					continue
				}
				for i, outcome := range o.submitAll(t.Context(), p) {
					if !unknown(outcome) {
						t.Errorf("outcome %d of %d is %#v", i, len(p), outcome)
					}
				}
			}
			if lie.Script.Stop == nil {
				return
			}
			if result := o.stop(t.Context(), dispatch.Stop{Request: dispatch.Request{Executor: "e", Address: liar.Address,
				Timeout: 10 * time.Second}}); !unknown(result) {
				t.Errorf("result of a stop: %#v", result)
			}
		})
	}
}

// gRPC never delivers nil outcomes, but the checks must not depend on that.
func TestANilOutcomeIsInvalid(t *testing.T) {
	if got := startOf(dispatch.Submit{}, nil); !unknown(got) {
		t.Errorf("%#v", got)
	}
	if got := acceptedOf(dispatch.Submit{}, 1, nil); !unknown(got) {
		t.Errorf("%#v", got)
	}
	if got := stopOf(nil); !unknown(got) {
		t.Errorf("%#v", got)
	}
}

// PERMISSION_DENIED counts as a refusal, even if another program answers at the agent's
// address.
func TestPermissionDeniedIsARefusal(t *testing.T) {
	liar := agenttest.Serve(t, agenttest.Denial())
	o := newSender(t)
	for _, outcome := range o.submitAll(t.Context(), bundle{submitOf(liar.Address, "u", "e", 0),
		submitOf(liar.Address, "u", "e", 1)}) {
		if !refused(fault.ReasonPermissionDenied)(outcome) {
			t.Errorf("%#v", outcome)
		}
	}
	if result := o.stop(t.Context(), dispatch.Stop{Request: dispatch.Request{Executor: "e", Address: liar.Address,
		Timeout: 10 * time.Second}}); !refused(fault.ReasonPermissionDenied)(result) {
		t.Errorf("result of a stop: %#v", result)
	}
}

// The reason of a refusal becomes a metric label and part of records, so its format is
// limited.
func TestReasonsOfAgentsAreLimited(t *testing.T) {
	long := make([]byte, 1000)
	for i := range long {
		long[i] = 'A'
	}
	for given, want := range map[fault.Reason]fault.Reason{
		"NOT_ALLOWED": "NOT_ALLOWED", "": fault.ReasonInvalid, "two words": fault.ReasonInvalid,
		fault.Reason(long): fault.ReasonInvalid,
	} {
		if got := refusalOf(fault.New(fault.Precondition, given, "no")); !refused(want)(got) {
			t.Errorf("%.20q is %#v", given, got)
		}
	}
}

// Agents of all versions refuse commands that are not allowed with the same reason. Only newer
// agents say which other failures are faults of the task. Each answer and report carries that.
func TestFaultsOfTheTaskAreKept(t *testing.T) {
	for _, c := range []struct {
		f    *fault.Error
		want bool
	}{
		{fault.New(fault.Precondition, fault.ReasonNotAllowed, "no"), true},
		{fault.BadField(fault.ReasonRequired, "task.command", "no"), true},
		{fault.New(fault.Precondition, fault.ReasonStartFailed, "no").With(fault.MetaBadTask, "true"), true},
		{fault.New(fault.Precondition, fault.ReasonStartFailed, "no"), false},
		{fault.New(fault.Invalid, fault.ReasonInvalid, "no"), false}, // perhaps another program at the address
		{fault.New(fault.Denied, fault.ReasonPermissionDenied, "no"), false},
	} {
		one := refusalOf(rpc.FromStatus(rpc.ToStatus(c.f))).(dispatch.Refused)
		several := startOf(dispatch.Submit{}, &controlv1.SubmitOutcome{Failure: rpc.Pack(c.f)}).(dispatch.Refused)
		if one.BadTask != c.want || several.BadTask != c.want {
			t.Errorf("%v: a fault of the task is %t and %t, want %t", c.f, one.BadTask, several.BadTask, c.want)
		}
	}
	for _, bad := range []bool{true, false} {
		w := &controlv1.WorkerReport{Job: "j", Stage: "s", Epoch: 1, State: berthv1.Assignment_FAILED, BadTask: bad}
		one := acceptedOf(dispatch.Submit{}, 1, w).(dispatch.Accepted)
		several := startOf(dispatch.Submit{}, &controlv1.SubmitOutcome{State: w.State, BadTask: bad}).(dispatch.Accepted)
		report := reportOf(&controlv1.ExecutorReport{Workers: []*controlv1.WorkerReport{w}})
		if one.BadTask != bad || several.BadTask != bad || report.Workers[0].BadTask != bad {
			t.Errorf("%t became %t, %t and %t", bad, one.BadTask, several.BadTask, report.Workers[0].BadTask)
		}
	}
}

// The reason of a FAILED worker is START_TIMEOUT or absent, in each answer and report of an
// agent. Anything else that an agent sends as a reason is dropped.
func TestOnlyStartTimeoutIsAReasonOfAnEnd(t *testing.T) {
	failed, evicted := berthv1.Assignment_FAILED, berthv1.Assignment_EVICTED
	for _, c := range []struct {
		state  berthv1.Assignment_State
		reason string
		want   fault.Reason
	}{
		{failed, "START_TIMEOUT", fault.ReasonStartTimeout}, {failed, "", ""}, {failed, "ROUNDS_EXHAUSTED", ""},
		{evicted, "START_TIMEOUT", ""}, {berthv1.Assignment_COMPLETED, "START_TIMEOUT", ""},
	} {
		w := &controlv1.WorkerReport{Job: "j", Stage: "s", Epoch: 1, State: c.state, Reason: c.reason}
		one := acceptedOf(dispatch.Submit{}, 1, w).(dispatch.Accepted)
		several := startOf(dispatch.Submit{}, &controlv1.SubmitOutcome{State: c.state, Reason: c.reason}).(dispatch.Accepted)
		stopped := stopOf(&controlv1.StopTaskAnswer{Worker: w}).(dispatch.Ended)
		report := reportOf(&controlv1.ExecutorReport{Workers: []*controlv1.WorkerReport{w}})
		for name, got := range map[string]fault.Reason{
			"SubmitTask": one.Reason, "SubmitTasks": several.Reason, "StopTask": stopped.Reason,
			"a report": report.Workers[0].Reason,
		} {
			if got != c.want {
				t.Errorf("%s: %s with %q has the reason %q, want %q", name, c.state, c.reason, got, c.want)
			}
		}
	}
}

// A report of a STARTING worker says when its start began. Without a time, it is queued.
func TestReportsSayWhenAStartBegan(t *testing.T) {
	began := time.Unix(7, 0)
	starting, running := berthv1.Assignment_STARTING, berthv1.Assignment_RUNNING
	report := reportOf(&controlv1.ExecutorReport{Workers: []*controlv1.WorkerReport{
		{State: starting}, {State: starting, Since: timestamppb.New(began)}, {State: running},
	}})
	for i, queued := range []bool{true, false, false} {
		if w := report.Workers[i]; w.Queued != queued || w.Begun.Equal(began) != (i == 1) {
			t.Errorf("worker %d: %+v", i, w)
		}
	}
}

// If the assigner panics while it handles an agent's answer, the panic becomes a finding
// about the agent. The outcome is unknown.
func TestAPanicInACallIsAFinding(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := looptest.Start(t, s, model.ServiceAssigner, func() *dispatch.Core { return dispatch.New(dispatch.Config{}) },
		func(*loop.Term, *dispatch.Core, model.Action) {})
	if l.Guard("executor e", func() { panic("a lie") }) {
		t.Error("a panic counts as a return")
	}
	findings, err := NewDispatch(l, nil).DispatchFindings(t.Context(), &berthv1.ListFindingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(findings.GetFindings()) != 1 || findings.GetFindings()[0].GetKind() != loop.FindingPeerPanic ||
		findings.GetFindings()[0].GetObject() != "executor e" {
		t.Errorf("findings %v", findings.GetFindings())
	}
}

// Invalid reports are rejected before they reach the core. The other reports of the same
// request are accepted.
func TestAnInvalidReportIsLeftOut(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	looptest.Write(t, s, &model.Executor{ID: "e", Address: "a:1", Ordinal: 1, Incarnation: 3})
	l := looptest.Start(t, s, model.ServiceAssigner, func() *dispatch.Core { return dispatch.New(dispatch.Config{}) },
		NewSender(nil, nil, slog.New(slog.DiscardHandler)).Perform)
	h := NewDispatch(l, nil)
	bad := &controlv1.ExecutorReport{Executor: "e", Incarnation: 3, Sequence: -1, Complete: true}
	if _, err := h.ReportWorkers(t.Context(),
		&controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{bad}}); !fault.Is(err, fault.ReasonInvalid) {
		t.Errorf("a single invalid report: %v", err)
	}
	good := &controlv1.ExecutorReport{Executor: "e", Incarnation: 3, Sequence: 1, Complete: true}
	answer, err := h.ReportWorkers(t.Context(), &controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{bad,
		nil, good}})
	if err != nil || len(answer.GetAnswers()) != 1 || answer.GetAnswers()[0].GetExecutor() != "e" {
		t.Errorf("answered %v, %v", answer, err)
	}
}

// FuzzAgentAnswers checks the outcomes that result from arbitrary answers of an agent.
func FuzzAgentAnswers(f *testing.F) {
	f.Add(int32(3), int64(1), false, int32(0), "", []byte(nil))
	f.Add(int32(7), int64(2), true, int32(9), "exited with 9", []byte(nil))
	f.Add(int32(0), int64(0), false, int32(0), "", []byte{0x12, 0x01, 'x'})
	f.Add(int32(259), int64(-1), true, int32(-1), "x", rpc.Pack(fault.New(fault.Conflict, fault.ReasonLowerTerm,
		"term 9 was seen")))
	f.Fuzz(func(t *testing.T, state int32, sequence int64, exits bool, code int32, problem string, failure []byte) {
		var exit *int32
		if exits {
			exit = &code
		}
		submit := dispatch.Submit{Request: dispatch.Request{Incarnation: 3}}
		for _, outcome := range []any{
			startOf(submit, &controlv1.SubmitOutcome{State: berthv1.Assignment_State(state), Sequence: sequence, ExitCode: exit,
				Error: problem, Failure: failure}),
			acceptedOf(submit, sequence, &controlv1.WorkerReport{State: berthv1.Assignment_State(state), ExitCode: exit,
				Error: problem}),
			stopOf(&controlv1.StopTaskAnswer{Sequence: sequence,
				Worker: &controlv1.WorkerReport{State: berthv1.Assignment_State(state), ExitCode: exit, Error: problem}}),
		} {
			switch o := outcome.(type) {
			case dispatch.Accepted:
				if !o.State.Reportable() || o.Sequence < 0 || o.ExitCode != nil && !o.State.Terminal() {
					t.Errorf("accepted %+v", o)
				}
			case dispatch.Ended:
				if !o.State.Terminal() || !o.State.Reportable() {
					t.Errorf("ended %+v", o)
				}
			case dispatch.Refused:
				if len(o.Reason) > maxReason || o.Reason == "" {
					t.Errorf("refused %+v", o)
				}
			case dispatch.Stopping, dispatch.Inconclusive:
			default:
				t.Errorf("the outcome is %#v", outcome)
			}
		}
	})
}
