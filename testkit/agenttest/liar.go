// Package agenttest serves executor agents that give exactly the answers of a script,
// including false ones, for tests of the callers of agents.
//
//	liar := agenttest.Serve(t, agenttest.Lies()[0].Script)
//	go liar.Join(ctx, gateway, &controlv1.RegisterRequest{Id: "liar", …})
//
// A Script determines the answer of each call. Lies returns scripts with answers that no
// correct agent gives.
package agenttest

import (
	"context"
	"crypto/rand"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
)

// Script has the functions that answer the calls to an agent. If a function is nil, the
// agent answers the call with UNIMPLEMENTED.
type Script struct {
	Submit  func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error)
	Submits func(context.Context, *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error)
	Stop    func(context.Context, *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error)
}

// Liar is an agent whose answers come from a script.
type Liar struct {
	controlv1.UnimplementedExecutorServer
	// Address is the address at which the agent listens.
	Address string

	mu     sync.Mutex
	script Script
	// called contains one element after one or more calls.
	called chan struct{}
}

// Serve serves an agent on loopback until the test ends.
func Serve(t testing.TB, script Script) *Liar {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Liar{Address: listener.Addr().String(), script: script, called: make(chan struct{}, 1)}
	server := grpc.NewServer()
	controlv1.RegisterExecutorServer(server, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(func() { server.Stop(); <-done })
	return l
}

// Say replaces the script of the agent.
func (l *Liar) Say(script Script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script = script
}

// Called returns a channel that receives after one or more calls were answered.
func (l *Liar) Called() <-chan struct{} { return l.called }

func (l *Liar) says() Script {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.script
}

func answer[Q, A any](ctx context.Context, l *Liar, fn func(context.Context, Q) (A, error), request Q) (A, error) {
	defer func() {
		select {
		case l.called <- struct{}{}:
		default:
		}
	}()
	if fn == nil {
		var none A
		return none, grpcstatus.Error(codes.Unimplemented, "the agent does not implement the call")
	}
	return fn(ctx, request)
}

// SubmitTask implements the Executor service.
func (l *Liar) SubmitTask(ctx context.Context, r *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	return answer(ctx, l, l.says().Submit, r)
}

// SubmitTasks implements the Executor service.
func (l *Liar) SubmitTasks(ctx context.Context, r *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
	return answer(ctx, l, l.says().Submits, r)
}

// StopTask implements the Executor service.
func (l *Liar) StopTask(ctx context.Context, r *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	return answer(ctx, l, l.says().Stop, r)
}

// Join registers the agent through a gateway and sends heartbeats until ctx or the stream
// ends. If the request has no address, Join sets the agent's address; if it has no nonce,
// Join sets a new nonce. Each of the first heartbeats has one of the reports. Without
// reports, the first heartbeat has a complete report without workers.
func (l *Liar) Join(ctx context.Context, gateway grpc.ClientConnInterface, r *controlv1.RegisterRequest,
	reports ...*controlv1.ExecutorReport) error {
	if r.Address == "" {
		r.Address = l.Address
	}
	if r.Nonce == "" {
		r.Nonce = rand.Text()
	}
	registered, err := controlv1.NewAgentsClient(gateway).Register(ctx, r, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	stream, err := controlv1.NewHeartbeatsClient(gateway).Heartbeat(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	broken := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				broken <- err
				return
			}
		}
	}()
	if len(reports) == 0 {
		reports = append(reports, &controlv1.ExecutorReport{Sequence: 1, Complete: true})
	}
	beat := time.NewTicker(max(registered.GetHeartbeatEvery().AsDuration()/2, 10*time.Millisecond))
	defer beat.Stop()
	for {
		m := &controlv1.HeartbeatRequest{Id: r.GetId(), Incarnation: registered.GetIncarnation(), Nonce: r.GetNonce()}
		if len(reports) > 0 {
			m.Report, reports = reports[0], reports[1:]
		}
		_ = stream.Send(m) // Recv returns the error
		if len(reports) > 0 {
			continue
		}
		select {
		case err := <-broken:
			return err
		case <-beat.C:
		}
	}
}

// Lie is a script with an answer to start and stop requests that no correct agent gives.
type Lie struct {
	Name   string
	Script Script
}

// Lies returns scripts whose answers are empty or cannot be true. The assigner must treat
// each of these answers as a failed attempt.
func Lies() []Lie {
	code := int32(7)
	ok := func() []byte {
		text, _ := proto.Marshal(&status.Status{Message: "no fault"}) // of code 0
		return text
	}()
	list := []Lie{
		{"empty", Script{
			Submit: func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
				return &controlv1.SubmitTaskAnswer{}, nil
			},
			Submits: func(context.Context, *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
				return &controlv1.SubmitTasksAnswer{}, nil
			},
			Stop: func(context.Context, *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
				return &controlv1.StopTaskAnswer{}, nil
			},
		}},
		{"too many outcomes", Script{
			Submits: func(_ context.Context, r *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
				return outcomes(len(r.GetOrders())+1, &controlv1.SubmitOutcome{State: berthv1.Assignment_RUNNING}), nil
			},
		}},
		{"too few outcomes", Script{
			Submits: func(_ context.Context, r *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
				return outcomes(len(r.GetOrders())-1, &controlv1.SubmitOutcome{State: berthv1.Assignment_RUNNING}), nil
			},
		}},
	}
	for name, o := range map[string]*controlv1.SubmitOutcome{
		"no state":                         {},
		"a failure of code 0":              {Failure: ok},
		"a failure that cannot be decoded": {Failure: []byte{0xff, 0xff, 0xff}},
		"a state without a name":           {State: 4711},
		"a state that overflows":           {State: 256 + berthv1.Assignment_RUNNING},
		"a negative state":                 {State: -1},
		"ASSIGNED":                         {State: berthv1.Assignment_ASSIGNED},
		"LOST":                             {State: berthv1.Assignment_LOST},
		"a negative sequence":              {State: berthv1.Assignment_RUNNING, Sequence: -1},
		"the highest sequence":             {State: berthv1.Assignment_RUNNING, Sequence: math.MaxInt64},
		"RUNNING with an exit code":        {State: berthv1.Assignment_RUNNING, ExitCode: &code},
	} {
		list = append(list, Lie{name, Script{
			Submit: func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
				return &controlv1.SubmitTaskAnswer{Worker: worker(o), Sequence: o.GetSequence()}, nil
			},
			Submits: func(_ context.Context, r *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
				return outcomes(len(r.GetOrders()), o), nil
			},
			Stop: func(context.Context, *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
				return &controlv1.StopTaskAnswer{Worker: worker(o), Sequence: o.GetSequence()}, nil
			},
		}})
	}
	return list
}

// Denial returns a script that answers every request with PERMISSION_DENIED, like an
// agent of another cluster.
func Denial() Script {
	err := grpcstatus.Error(codes.PermissionDenied, "the request does not carry the nonce of the registration")
	return Script{
		Submit: func(context.Context, *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
			return nil, err
		},
		Submits: func(context.Context, *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
			return nil, err
		},
		Stop: func(context.Context, *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) { return nil, err },
	}
}

func outcomes(n int, o *controlv1.SubmitOutcome) *controlv1.SubmitTasksAnswer {
	m := &controlv1.SubmitTasksAnswer{}
	for range n {
		m.Outcomes = append(m.Outcomes, o)
	}
	return m
}

// worker converts an outcome of SubmitTasks to the worker in the answer of SubmitTask.
func worker(o *controlv1.SubmitOutcome) *controlv1.WorkerReport {
	return &controlv1.WorkerReport{State: o.GetState(), ExitCode: o.ExitCode, Error: o.GetError()}
}
