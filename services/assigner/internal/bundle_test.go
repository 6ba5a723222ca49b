package internal

import (
	"context"
	"fmt"
	"testing"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

func submitOf(address, uid, executor string, index int32) dispatch.Submit {
	s := submitTo(&agent{address: address})
	s.UID, s.Executor, s.Worker.ID.Index = uid, executor, index
	return s
}

func TestBundlesHaveOneAddressAndReservation(t *testing.T) {
	var submits []dispatch.Submit
	for i := range int32(18) {
		submits = append(submits, submitOf("a:1", "u", "e0", i))
	}
	fresh := submitOf("a:1", "u", "e1", 19)
	fresh.Fresh = true
	submits = append(submits, submitOf("a:1", "u", "e1", 18), fresh, submitOf("a:2", "u", "e2", 20),
		submitOf("a:1", "v", "e0", 0))
	var got []string
	for _, p := range bundles(submits) {
		line := fmt.Sprintf("%s %s %v:", p[0].Address, p[0].UID, p[0].Fresh)
		for _, a := range p {
			line += fmt.Sprintf(" %s/%d", a.Executor, a.Worker.ID.Index)
		}
		got = append(got, line)
	}
	want := []string{
		"a:1 u false: e0/0 e0/1 e0/2 e0/3 e0/4 e0/5 e0/6 e0/7 e0/8 e0/9 e0/10 e0/11 e0/12 e0/13 e0/14 e0/15",
		"a:1 u false: e0/16 e0/17 e1/18",
		"a:1 u true: e1/19",
		"a:2 u false: e2/20",
		"a:1 v false: e0/0",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q", got)
	}
}

func TestEachRequestOfABundleHasItsOutcome(t *testing.T) {
	a := serve(t, &agent{several: func(_ context.Context,
		req *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
		if req.GetTerm() != 7 || req.GetJob() != "j" || req.GetStage() != "s" || req.GetEpoch() != 5 || req.GetUid() != "u" ||
			req.GetTask().GetCommand() != "true" || len(req.GetOrders()) != 3 {
			t.Errorf("the agent received %v", req)
		}
		for i, o := range req.GetOrders() {
			if o.GetExecutor() != "e" || o.GetIncarnation() != 3 || o.GetIndex() != int32(i) || o.GetNumber() != 1 ||
				o.GetAttempt() != 2 {
				t.Errorf("request %d is %v", i, o)
			}
		}
		return &controlv1.SubmitTasksAnswer{Outcomes: []*controlv1.SubmitOutcome{
			{State: berthv1.Assignment_RUNNING, Sequence: 4},
			{Failure: rpc.Pack(fault.New(fault.Conflict, fault.ReasonLowerTerm, "no"))},
			{Failure: rpc.Pack(fault.New(fault.Unavailable, fault.ReasonUnavailable, "later"))},
		}}, nil
	}})
	got := newSender(t).submitAll(t.Context(), bundle{submitOf(a.address, "u", "e", 0), submitOf(a.address, "u", "e", 1),
		submitOf(a.address, "u", "e", 2)})
	if accepted, ok := got[0].(dispatch.Accepted); !ok || accepted.State != model.WorkerRunning ||
		accepted.Sequence != 4 || accepted.Incarnation != 3 {
		t.Errorf("the first is %#v", got[0])
	}
	if !refused(fault.ReasonLowerTerm)(got[1]) || !unknown(got[2]) {
		t.Errorf("the others are %#v and %#v", got[1], got[2])
	}
}

// If an answer has the wrong number of outcomes, all outcomes are unknown.
func TestAnAnswerOfAnotherLengthIsUnknown(t *testing.T) {
	a := serve(t, &agent{several: func(context.Context, *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer,
		error) {
		return &controlv1.SubmitTasksAnswer{Outcomes: []*controlv1.SubmitOutcome{{State: berthv1.Assignment_RUNNING}}}, nil
	}})
	for _, outcome := range newSender(t).submitAll(t.Context(),
		bundle{submitOf(a.address, "u", "e", 0), submitOf(a.address, "u", "e", 1)}) {
		if !unknown(outcome) {
			t.Errorf("%#v", outcome)
		}
	}
}

// Agents refuse a call with more than wire.MaxStartRequests requests, so the sender splits
// larger calls.
func TestRequestsInACallAreLimited(t *testing.T) {
	var submits []dispatch.Submit
	for i := range int32(wire.MaxStartRequests + 1) {
		submits = append(submits, submitOf("a:1", "u", fmt.Sprint("e", i), i))
	}
	if p := bundles(submits); len(p) != 2 || len(p[0]) != wire.MaxStartRequests || len(p[1]) != 1 {
		t.Errorf("%d requests", len(p))
	}
}
