package internal

import (
	"context"
	"math"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/testkit/looptest"
)

// outputAgent starts a leader that knows one executor with a scripted agent.
func outputAgent(t *testing.T) (*Dispatch, *agent) {
	a, s := serve(t, &agent{}), store.NewFake(store.FakeConfig{})
	looptest.Write(t, s, &model.Live{ID: "e", Incarnation: 3},
		&model.Executor{ID: "e", Address: a.address, Incarnation: 3, Ordinal: 1, Nonce: "n"})
	return NewDispatch(startOn(t, s), newSender(t)), a
}

func outputRequest() *berthv1.ReadOutputRequest {
	return &berthv1.ReadOutputRequest{Job: "j", Stage: "s", Index: 4, Executor: "e"}
}

// The agent gets the request with the nonce and the incarnation of its executor. The caller
// gets the answer, and the errors that are about the output.
func TestReadOutput(t *testing.T) {
	d, a := outputAgent(t)
	answer := &berthv1.ReadOutputAnswer{Executor: "other", Number: 1, Epoch: 5, Offset: 3, Data: []byte("x"), End: 4,
		Complete: true}
	var got *controlv1.ReadWorkerOutputRequest
	a.output = func(_ context.Context, req *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer, error) {
		got = req
		return answer, nil
	}
	request := outputRequest()
	request.Tail, request.Follow, request.Number = proto.Int32(9), true, 1
	out, err := d.ReadOutput(t.Context(), request)
	if err != nil || string(out.GetData()) != "x" || out.GetExecutor() != "e" || !out.GetComplete() {
		t.Errorf("%v, %v", out, err)
	}
	if got.GetNonce() != "n" || got.GetIncarnation() != 3 || !proto.Equal(got.GetRequest(), request) {
		t.Errorf("the agent got %v", got)
	}
	for name, c := range map[string]struct {
		err    error
		kind   fault.Kind
		reason fault.Reason
	}{
		"no output":   {fault.New(fault.NotFound, fault.ReasonNotFound, "x"), fault.NotFound, fault.ReasonNotFound},
		"offset":      {fault.BadField(fault.ReasonInvalid, "offset", "x"), fault.Invalid, fault.ReasonInvalid},
		"unsupported": {fault.New(fault.Precondition, fault.ReasonUnsupported, "x"), fault.Precondition, fault.ReasonUnsupported},
		"older agent": {status.Error(codes.Unimplemented, "x"), fault.Precondition, fault.ReasonUnsupported},
		"overloaded":  {fault.New(fault.Unavailable, fault.ReasonOverloaded, "x"), fault.Unavailable, fault.ReasonOverloaded},
		"nonce": {fault.New(fault.Denied, fault.ReasonPermissionDenied, "x"), fault.Unavailable,
			fault.ReasonExecutorUnreachable},
		"incarnation": {fault.New(fault.Conflict, fault.ReasonOtherIncarnation, "x"), fault.Unavailable,
			fault.ReasonExecutorUnreachable},
		"not leader": {fault.New(fault.Precondition, fault.ReasonNotLeader, "x"), fault.Unavailable,
			fault.ReasonExecutorUnreachable},
		"other field": {fault.BadField(fault.ReasonInvalid, "job", "x"), fault.Unavailable, fault.ReasonExecutorUnreachable},
		"stopping":    {fault.New(fault.Unavailable, fault.ReasonUnavailable, "x"), fault.Unavailable, fault.ReasonExecutorUnreachable},
	} {
		a.output = func(context.Context, *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer, error) {
			return nil, c.err
		}
		_, err := d.ReadOutput(t.Context(), outputRequest())
		if f := fault.Of(err); f.Kind != c.kind || f.Reason != c.reason {
			t.Errorf("%s: %v", name, err)
		}
		if c.kind == fault.NotFound && fault.Of(err).Meta["executor"] != "e" {
			t.Errorf("%s does not name the executor: %v", name, err)
		}
	}
	answer = &berthv1.ReadOutputAnswer{}
	for name, spoil := range map[string]func(){
		"much data":          func() { answer.Data, answer.End = make([]byte, wire.MaxOutput+1), math.MaxInt64 },
		"negative offset":    func() { answer.Offset = -1 },
		"data after the end": func() { answer.Data, answer.Offset, answer.End = []byte("xy"), 3, 4 },
		"end before":         func() { answer.Offset, answer.End = math.MaxInt64, math.MinInt64 },
		"not complete":       func() { answer.End, answer.Complete = 1, true },
		"negative number":    func() { answer.Number = -1 },
	} {
		answer = &berthv1.ReadOutputAnswer{}
		spoil()
		a.output = func(context.Context, *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer, error) {
			return answer, nil
		}
		if _, err := d.ReadOutput(t.Context(), outputRequest()); !fault.Is(err, fault.ReasonExecutorUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Invalid requests do not reach an agent, and the number of reads is limited.
func TestReadOutputRejects(t *testing.T) {
	d, a := outputAgent(t)
	a.output = func(context.Context, *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer, error) {
		return &berthv1.ReadOutputAnswer{}, nil
	}
	request := outputRequest()
	request.Tail = proto.Int32(-1)
	if _, err := d.ReadOutput(t.Context(), request); len(fault.Of(err).Fields) != 1 || a.conns.Load() > 0 {
		t.Error(err)
	}
	request = outputRequest()
	request.Executor = ""
	if _, err := d.ReadOutput(t.Context(), request); !fault.Is(err, fault.ReasonNotFound) || a.conns.Load() > 0 {
		t.Error(err)
	}
	for range maxOutputReads {
		d.outputs.reads <- struct{}{}
	}
	if _, err := d.ReadOutput(t.Context(), outputRequest()); !fault.Is(err, fault.ReasonOverloaded) {
		t.Error(err)
	}
	<-d.outputs.reads
	if _, err := d.ReadOutput(t.Context(), outputRequest()); err != nil || len(d.outputs.reads) != maxOutputReads-1 {
		t.Error(err)
	}
	if _, err := NewDispatch(d.loop, nil).ReadOutput(t.Context(), outputRequest()); !fault.Is(err,
		fault.ReasonUnsupported) {
		t.Error(err)
	}
}
