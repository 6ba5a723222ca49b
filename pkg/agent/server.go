package agent

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/wire"
)

// The bounds of a server for agents: anybody who reaches the port may call it, and the
// nonce in a request is compared once the request is decoded.
const (
	// MaxRequest bounds a request in bytes: a task that came in one message of the public
	// API, and the orders.
	MaxRequest = 2 << 20
	// MaxFields bounds the fields at the top of a request other than orders.
	MaxFields = 32
	// MaxCalls bounds the calls that are in progress on one connection.
	MaxCalls = 256
)

// Server takes the assigner's orders for any number of agents of one process,
// told apart by the executor that an order names. Its errors are *fault.Error:
// the gRPC server it is registered with renders them in an interceptor.
type Server struct {
	controlv1.UnimplementedExecutorServer

	mu     sync.RWMutex
	agents map[string]*Agent
}

// NewServer makes a server of the agents; more can be added.
func NewServer(agents ...*Agent) *Server {
	s := &Server{agents: make(map[string]*Agent, len(agents))}
	for _, a := range agents {
		s.Add(a)
	}
	return s
}

// Register makes the server one of the services of a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { controlv1.RegisterExecutorServer(r, s) }

// Add lets the server take orders for an agent, in place of an earlier one of
// its id.
func (s *Server) Add(a *Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents[a.cfg.ID] = a
}

// Remove has orders for the executor refused from now on.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, id)
}

// SubmitTask implements the Executor service.
func (s *Server) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	a, err := s.agent(req.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.SubmitTask(ctx, req)
}

// SubmitTasks implements the Executor service. All workers are begun before the
// first of them is waited for.
func (s *Server) SubmitTasks(ctx context.Context, req *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
	prompt, cancel := context.WithTimeout(ctx, promptly)
	defer cancel()
	orders := req.GetOrders()
	if len(orders) > wire.MaxOrders {
		return nil, fault.BadField(fault.ReasonTooLarge, "orders", "must be at most %d, got %d", wire.MaxOrders, len(orders))
	}
	begun, failures := make([]*submission, len(orders)), make([]error, len(orders))
	for i, o := range orders {
		begun[i], failures[i] = s.begin(req, o)
	}
	answer := &controlv1.SubmitTasksAnswer{Outcomes: make([]*controlv1.SubmitOutcome, len(orders))}
	for i := range orders {
		var one *controlv1.SubmitTaskAnswer
		if failures[i] == nil {
			one, failures[i] = begun[i].answer(ctx, prompt.Done())
		}
		if failures[i] != nil {
			answer.Outcomes[i] = &controlv1.SubmitOutcome{Failure: rpc.Pack(failures[i])}
			continue
		}
		w := one.GetWorker()
		answer.Outcomes[i] = &controlv1.SubmitOutcome{State: w.GetState(), ExitCode: w.ExitCode, Signal: w.GetSignal(), Error: w.GetError(), Sequence: one.GetSequence()}
	}
	return answer, nil
}

func (s *Server) begin(req *controlv1.SubmitTasksRequest, o *controlv1.SubmitOrder) (*submission, error) {
	a, err := s.agent(o.GetExecutor())
	if err != nil {
		return nil, err
	}
	return a.begin(&controlv1.SubmitTaskRequest{
		Term: req.GetTerm(), Executor: o.GetExecutor(), Incarnation: o.GetIncarnation(), Attempt: o.GetAttempt(), Task: req.GetTask(), Nonce: o.GetNonce(),
		Worker: &controlv1.WorkerRef{
			Job: req.GetJob(), Stage: req.GetStage(), Index: o.GetIndex(), Number: o.GetNumber(), Epoch: req.GetEpoch(), Uid: req.GetUid(),
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

func (s *Server) agent(id string) (*Agent, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.agents[id]
	if !ok {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "no executor %q here", id)
	}
	return a, nil
}
