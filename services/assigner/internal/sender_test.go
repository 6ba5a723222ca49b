package internal

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/porttest"
)

// agent is an executor's agent whose answers are scripted.
type agent struct {
	controlv1.UnimplementedExecutorServer
	address string
	conns   atomic.Int64
	submit  func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error)
	several func(context.Context, *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error)
	stop    func(context.Context, *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error)
	drop    func(context.Context, *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer, error)
	output  func(context.Context, *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer, error)
	signal  func(context.Context, *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error)
}

func (a *agent) SignalTask(ctx context.Context, req *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error) {
	return a.signal(ctx, req)
}

func (a *agent) ReadOutput(ctx context.Context, req *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer,
	error) {
	return a.output(ctx, req)
}

func (a *agent) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	return a.submit(ctx, req)
}

func (a *agent) StopTask(ctx context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	return a.stop(ctx, req)
}

func (a *agent) DropVolumes(ctx context.Context, req *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer,
	error) {
	return a.drop(ctx, req)
}

func (a *agent) SubmitTasks(ctx context.Context, req *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer,
	error) {
	return a.several(ctx, req)
}

// counted is a listener that counts the connections it has accepted.
type counted struct {
	net.Listener
	conns *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.conns.Add(1)
	}
	return conn, err
}

func serve(t *testing.T, a *agent) *agent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.address = l.Addr().String()
	server := rpc.NewServer(rpc.ServerOptions{Log: slog.New(slog.DiscardHandler)})
	controlv1.RegisterExecutorServer(server, a)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(counted{l, &a.conns}) }() // returns after Stop
	t.Cleanup(func() { server.Stop(); <-done })
	return a
}

func newSender(t *testing.T) *Sender {
	o := NewSender(nil, nil, slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	return o
}

// fullTask is a task in which every field is set.
var fullTask = model.Task{
	Command: "true", Args: []string{"-a"}, Env: map[string]string{"KIND": "batch"}, Payload: []byte{0, 1},
	StopGrace: 3 * time.Second,
}

func submitTo(a *agent) dispatch.Submit {
	return dispatch.Submit{Attempt: 2, Task: &fullTask, Request: dispatch.Request{
		Term: 7, Executor: "e", Address: a.address, Incarnation: 3, UID: "u", Epoch: 5, Timeout: 10 * time.Second,
		Worker: model.Worker{Job: "j", Stage: "s", ID: model.WorkerID{Index: 4, Number: 1}},
	}}
}

func TestSubmit(t *testing.T) {
	code := int32(9)
	var got *controlv1.SubmitTaskRequest
	refuse := func(err error) func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
		return func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
			return nil, err
		}
	}
	for _, test := range []struct {
		name   string
		submit func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error)
		want   func(outcome any) bool
	}{
		{"accepted", func(_ context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
			got = req
			return &controlv1.SubmitTaskAnswer{Sequence: 11, Worker: &controlv1.WorkerReport{State: berthv1.Assignment_FAILED,
				ExitCode: &code, Error: "broke"}}, nil
		}, func(outcome any) bool {
			a, ok := outcome.(dispatch.Accepted)
			return ok && a.State == model.WorkerFailed && a.Incarnation == 3 && a.Sequence == 11 && *a.ExitCode == 9 &&
				a.Error == "broke"
		}},
		{"not allowed", refuse(fault.New(fault.Precondition, fault.ReasonNotAllowed, "no")), refused(fault.ReasonNotAllowed)},
		{"lower term", refuse(fault.New(fault.Conflict, fault.ReasonLowerTerm, "no")), refused(fault.ReasonLowerTerm)},
		{"invalid", refuse(fault.New(fault.Invalid, fault.ReasonInvalid, "no")), refused(fault.ReasonInvalid)},
		{"agent failing", refuse(fault.New(fault.Internal, fault.ReasonInternal, "oh")), unknown},
		{"agent stopping", refuse(fault.New(fault.Unavailable, fault.ReasonUnavailable, "oh")), unknown},
		{"not an agent", refuse(status.Error(codes.Unimplemented, "what?")), unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := serve(t, &agent{submit: test.submit})
			if outcome := newSender(t).submitAll(t.Context(), bundle{submitTo(a)})[0]; !test.want(outcome) {
				t.Errorf("the outcome is %#v", outcome)
			}
		})
	}
	want := &berthv1.Task{
		Command: "true", Args: []string{"-a"}, Env: map[string]string{"KIND": "batch"}, Payload: []byte{0, 1},
		StopGrace: durationpb.New(3 * time.Second),
	}
	w := got.GetWorker()
	if got.GetTerm() != 7 || got.GetExecutor() != "e" || got.GetIncarnation() != 3 || got.GetAttempt() != 2 ||
		!proto.Equal(got.GetTask(), want) ||
		w.GetJob() != "j" || w.GetStage() != "s" || w.GetIndex() != 4 || w.GetNumber() != 1 || w.GetEpoch() != 5 ||
		w.GetUid() != "u" {
		t.Errorf("the agent received %v", got)
	}
}

func refused(reason fault.Reason) func(any) bool {
	return func(outcome any) bool {
		r, ok := outcome.(dispatch.Refused)
		return ok && r.Reason == reason
	}
}

func unknown(outcome any) bool {
	switch outcome.(type) {
	case dispatch.Unknown, dispatch.Inconclusive:
		return true
	}
	return false
}

// If an agent does not answer, the outcome of the request is unknown, because the request may
// have arrived.
func TestPromise2AnAttemptWithoutAnAnswerIsUnknown(t *testing.T) {
	ctx, giveUp := context.WithCancel(t.Context())
	a := serve(t, &agent{submit: func(ctx context.Context, _ *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer,
		error) {
		giveUp()
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	o := newSender(t)
	if outcome := o.submitAll(ctx, bundle{submitTo(a)})[0]; !unknown(outcome) {
		t.Errorf("no answer is %#v", outcome)
	}
	nobody := submitTo(&agent{address: porttest.Hold(t)})
	if outcome := o.stop(t.Context(), dispatch.Stop{Request: dispatch.Request{Address: nobody.Address,
		Timeout: time.Second}}); !unknown(outcome) {
		t.Errorf("result of a stop: %#v", outcome)
	}
}

func TestStop(t *testing.T) {
	for state, want := range map[berthv1.Assignment_State]any{
		berthv1.Assignment_EVICTING: dispatch.Stopping{},
		berthv1.Assignment_EVICTED:  dispatch.Ended{State: model.WorkerEvicted},
	} {
		a := serve(t, &agent{stop: func(_ context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer,
			error) {
			if req.GetGrace().AsDuration() != 3*time.Second {
				t.Errorf("grace %v", req.GetGrace())
			}
			return &controlv1.StopTaskAnswer{Worker: &controlv1.WorkerReport{State: state}}, nil
		}})
		if outcome := newSender(t).stop(t.Context(), dispatch.Stop{Request: dispatch.Request{Address: a.address,
			Timeout: 10 * time.Second}, Grace: 3 * time.Second}); outcome != want {
			t.Errorf("%v is %#v", state, outcome)
		}
	}
}

// A retry uses a new connection. Calls in flight on the old connection are not interrupted.
func TestPromise2ARetryUsesANewConnection(t *testing.T) {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	a := serve(t, &agent{submit: func(_ context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer,
		error) {
		if req.GetWorker().GetUid() == "slow" {
			entered <- struct{}{}
			<-release
		}
		return &controlv1.SubmitTaskAnswer{Worker: &controlv1.WorkerReport{State: berthv1.Assignment_RUNNING}}, nil
	}})
	o := newSender(t)
	slow, retry := submitTo(a), submitTo(a)
	slow.UID, retry.Fresh = "slow", true
	outcome := make(chan any, 1)
	go func() { outcome <- o.submitAll(t.Context(), bundle{slow})[0] }()
	<-entered
	old := o.connections[a.address]
	for _, submit := range []dispatch.Submit{submitTo(a), retry, submitTo(a)} {
		if _, ok := o.submitAll(t.Context(), bundle{submit})[0].(dispatch.Accepted); !ok {
			t.Error("a request was not accepted")
		}
	}
	if n := a.conns.Load(); n != 2 {
		t.Errorf("%d connections, want the first and one for the retry", n)
	}
	close(release)
	if got := <-outcome; got == nil || unknown(got) {
		t.Errorf("the call in flight was interrupted: %#v", got)
	}
	if state := old.conn.GetState(); state != connectivity.Shutdown {
		t.Errorf("the old connection is %v after its last call", state)
	}
}

// The sender closes a connection that was not used for a while.
func TestUnusedConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewSender(nil, nil, slog.New(slog.DiscardHandler))
		defer o.Close()
		_, done, err := o.connect("busy:1", false)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		var idle *grpc.ClientConn
		for _, address := range []string{"a:1", "b:1"} {
			_, done, err := o.connect(address, false)
			if err != nil {
				t.Fatal(err)
			}
			idle = o.connections[address].conn
			done()
		}
		time.Sleep(idleTimeout)
		_, other, err := o.connect("c:1", false)
		if err != nil {
			t.Fatal(err)
		}
		other()
		if len(o.connections) != 2 || o.connections["busy:1"] == nil || o.connections["c:1"] == nil ||
			idle.GetState() != connectivity.Shutdown {
			t.Errorf("kept: %v", o.connections)
		}
	})
}
