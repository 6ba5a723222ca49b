package agent

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/wire"
)

// The limits of a server for agents. Anyone who can connect to the port can send
// requests, and the server can check the nonce in a request only after it has decoded the
// request.
const (
	// MaxRequest is the maximum size of a request in bytes. A request contains a task, which
	// fits into one message of the public API, and the workers to start.
	MaxRequest = 2 << 20
	// MaxFields is the maximum number of top-level fields of a request, not counting the
	// workers to start.
	MaxFields = 32
	// MaxCalls is the maximum number of calls in progress on one connection.
	MaxCalls = 256
)

// Server receives the assigner's requests for the agents of one process, and passes each
// request to the agent with its executor ID. Its errors are *fault.Error: an interceptor
// of the gRPC server must convert them to gRPC statuses.
type Server struct {
	controlv1.UnimplementedExecutorServer

	mu     sync.RWMutex
	agents map[string]*Agent
}

// NewServer returns a server of the agents. Add adds further agents.
func NewServer(agents ...*Agent) *Server {
	s := &Server{agents: map[string]*Agent{}}
	for _, a := range agents {
		s.Add(a)
	}
	return s
}

// Register registers the server with a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { controlv1.RegisterExecutorServer(r, s) }

// Add adds an agent. It replaces an earlier agent with the same ID.
func (s *Server) Add(a *Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents[a.cfg.ID] = a
}

// SubmitTask implements the Executor service.
func (s *Server) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer,
	error) {
	a, err := s.agent(req.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.SubmitTask(ctx, req)
}

// SubmitTasks implements the Executor service. It accepts all start requests before it
// waits for the result of the first.
func (s *Server) SubmitTasks(ctx context.Context, req *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer,
	error) {
	waiting, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	starts := req.GetOrders()
	if len(starts) > wire.MaxStartRequests {
		return nil, fault.BadField(fault.ReasonTooLarge, "orders", "must be at most %d, got %d", wire.MaxStartRequests,
			len(starts))
	}
	accepted, failures := make([]*submission, len(starts)), make([]error, len(starts))
	for i, start := range starts {
		accepted[i], failures[i] = s.accept(req, start)
	}
	answer := &controlv1.SubmitTasksAnswer{Outcomes: make([]*controlv1.SubmitOutcome, len(starts))}
	for i := range starts {
		var single *controlv1.SubmitTaskAnswer
		if failures[i] == nil {
			single, failures[i] = accepted[i].answer(ctx, waiting.Done())
		}
		if failures[i] != nil {
			answer.Outcomes[i] = &controlv1.SubmitOutcome{Failure: rpc.Pack(failures[i])}
			continue
		}
		w := single.GetWorker()
		answer.Outcomes[i] = &controlv1.SubmitOutcome{State: w.GetState(), ExitCode: w.ExitCode, Signal: w.GetSignal(),
			Error: w.GetError(), Reason: w.GetReason(), NeverStarted: w.GetNeverStarted(), BadTask: w.GetBadTask(),
			Sequence: single.GetSequence()}
	}
	return answer, nil
}

func (s *Server) accept(req *controlv1.SubmitTasksRequest, start *controlv1.SubmitOrder) (*submission, error) {
	a, err := s.agent(start.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.accept(&controlv1.SubmitTaskRequest{
		Term: req.GetTerm(), Executor: start.GetExecutor(), Incarnation: start.GetIncarnation(), Attempt: start.GetAttempt(),
		Task: req.GetTask(), Nonce: start.GetNonce(), Reservation: req.GetReservation(), Workers: req.GetWorkers(),
		Volume: start.GetVolume(),
		Worker: &controlv1.WorkerRef{
			Job: req.GetJob(), Stage: req.GetStage(), Index: start.GetIndex(), Number: start.GetNumber(), Epoch: req.GetEpoch(),
			Uid: req.GetUid(),
		},
	})
}

// StopTask implements the Executor service.
func (s *Server) StopTask(ctx context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	a, err := s.agent(req.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.StopTask(ctx, req)
}

// SignalTask implements the Executor service.
func (s *Server) SignalTask(ctx context.Context, req *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer,
	error) {
	a, err := s.agent(req.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.SignalTask(ctx, req)
}

// DropVolumes implements the Executor service.
func (s *Server) DropVolumes(ctx context.Context, req *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer,
	error) {
	a, err := s.agent(req.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.DropVolumes(ctx, req)
}

// ReadOutput implements the Executor service.
func (s *Server) ReadOutput(ctx context.Context, req *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer,
	error) {
	a, err := s.agent(req.GetRequest().GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.ReadOutput(ctx, req)
}

func (s *Server) agent(id string) (*Agent, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.agents[id]
	if !ok {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "executor %q is not served at this address", id)
	}
	return a, nil
}
