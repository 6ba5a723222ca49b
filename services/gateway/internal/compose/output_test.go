package compose_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/compose"
)

// assigner answers requests for output. It knows no assignments, so a request must name the
// executor.
type assigner struct {
	grpc.ClientConnInterface
	requests []*berthv1.ReadOutputRequest
	gone     bool
}

func (a *assigner) Invoke(_ context.Context, _ string, in, out any, _ ...grpc.CallOption) error {
	r := in.(*berthv1.ReadOutputRequest)
	a.requests = append(a.requests, r)
	switch {
	case r.GetExecutor() == "":
		return fault.New(fault.NotFound, fault.ReasonNotFound, "no assignment")
	case a.gone:
		return fault.New(fault.NotFound, fault.ReasonNotFound, "no output").With("executor", r.GetExecutor())
	}
	proto.Merge(out.(proto.Message), &berthv1.ReadOutputAnswer{Executor: r.GetExecutor(), Number: r.GetNumber()})
	return nil
}

// history has the stored events of a job.
type history struct {
	events []*berthv1.Event
	err    error
}

func (h *history) Stored(_ context.Context, job string, each func(*berthv1.Event)) error {
	for _, e := range h.events {
		if e.Job == job {
			each(e)
		}
	}
	return h.err
}

func event(stage string, kind berthv1.Event_Kind, index, number int32, executor string) *berthv1.Event {
	return &berthv1.Event{Job: "j", Stage: stage, Kind: kind, Workers: []*berthv1.EventWorker{
		{Index: index + 100, Number: 9, Executor: proto.String("e-other")},
		{Index: index, Number: number, Executor: &executor},
		{Index: index, Number: number},
	}}
}

// The executor of a worker without an assignment is the one that the job's events name for
// the newest worker of the index.
func TestOutputOfAnEndedWorker(t *testing.T) {
	const assigned, lost = berthv1.Event_WORKER_ASSIGNED, berthv1.Event_WORKER_LOST
	for _, c := range []struct {
		name           string
		events         []*berthv1.Event
		number         int32
		executor       string
		executorNumber int32
	}{
		{"no event", nil, 0, "", 0},
		{"another stage", []*berthv1.Event{event("other", assigned, 3, 1, "e-1")}, 0, "", 0},
		{"one", []*berthv1.Event{event("s", assigned, 3, 1, "e-1")}, 0, "e-1", 1},
		{"placed again", []*berthv1.Event{event("s", assigned, 3, 1, "e-1"), event("s", assigned, 3, 1, "e-2")}, 0, "e-2", 1},
		{"a late event about an earlier worker", []*berthv1.Event{event("s", assigned, 3, 2, "e-2"),
			event("s", lost, 3, 1, "e-1")}, 0, "e-2", 2},
		{"a job with the same name", []*berthv1.Event{event("s", lost, 3, 2, "e-2"), event("s", assigned, 3, 1, "e-3")},
			0, "e-3", 1},
		{"by number", []*berthv1.Event{event("s", assigned, 3, 1, "e-1"), event("s", assigned, 3, 2, "e-2")}, 1, "e-1", 1},
		{"another number", []*berthv1.Event{event("s", assigned, 3, 1, "e-1")}, 2, "", 0},
	} {
		a := &assigner{}
		s := compose.New(a, nil, &history{events: c.events})
		request := &berthv1.ReadOutputRequest{Job: "j", Stage: "s", Index: 3, Number: c.number, Offset: proto.Int64(5)}
		got, err := s.ReadOutput(t.Context(), request)
		if c.executor == "" {
			if !fault.Is(err, fault.ReasonNotFound) || len(a.requests) != 1 {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
			continue
		}
		want := proto.CloneOf(request)
		want.Executor, want.Number = c.executor, c.executorNumber
		if err != nil || got.GetExecutor() != c.executor || len(a.requests) != 2 || !proto.Equal(a.requests[1], want) {
			t.Errorf("%s: %v, %v after %v", c.name, got, err, a.requests)
		}
	}
}

// Events are not read for an invalid request, for a request with an executor, and if the
// executor has no output. Errors of the events reach the caller.
func TestOutputWithoutALookup(t *testing.T) {
	failed := fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer")
	a := &assigner{gone: true}
	s := compose.New(a, nil, &history{err: failed})
	request := &berthv1.ReadOutputRequest{Job: "j", Stage: "s", Executor: "e"}
	if _, err := s.ReadOutput(t.Context(), request); !fault.Is(err, fault.ReasonNotFound) {
		t.Error(err)
	}
	request.Tail = proto.Int32(-1)
	if _, err := s.ReadOutput(t.Context(), request); len(fault.Of(err).Fields) != 1 || len(a.requests) != 1 {
		t.Error(err)
	}
	request.Tail, request.Executor = nil, ""
	if _, err := s.ReadOutput(t.Context(), request); !fault.Is(err, fault.ReasonUnavailable) {
		t.Error(err)
	}
}
