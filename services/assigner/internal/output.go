package internal

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/transport"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// The limits of reading the output of workers. Output passes through the leader, because
// only the assigner has the nonces of agents. The limits keep readers from delaying start
// and stop requests.
const (
	// maxOutputReads is the maximum number of reads in progress.
	maxOutputReads = 64
	// outputRate is the maximum number of bytes of all answers in a second.
	outputRate = 16 << 20
	// outputTimeout is the maximum time for the answer of an agent.
	outputTimeout = wire.OutputWait + 2*time.Second
)

// outputs reads the output of workers from agents.
type outputs struct {
	loop   loop.Owner[*dispatch.Core]
	agents *Sender
	reads  chan struct{}
	rate   *rate.Limiter
}

func newOutputs(l loop.Owner[*dispatch.Core], agents *Sender) *outputs {
	return &outputs{l, agents, make(chan struct{}, maxOutputReads), rate.NewLimiter(outputRate, wire.MaxTail)}
}

// read reads a part of the output of a worker.
func (o *outputs) read(ctx context.Context, req *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	if err := wire.CheckReadOutput(req); err != nil {
		return nil, err
	}
	if o.agents == nil {
		return nil, fault.New(fault.Precondition, fault.ReasonUnsupported, "this cluster has no agents that keep output")
	}
	select {
	case o.reads <- struct{}{}:
		defer func() { <-o.reads }()
	default:
		return nil, fault.New(fault.Unavailable, fault.ReasonOverloaded, "the assigner has %d readers of output, its maximum",
			maxOutputReads)
	}
	worker := model.Worker{Job: req.GetJob(), Stage: req.GetStage(),
		ID: model.WorkerID{Index: req.GetIndex(), Number: req.GetNumber()}}
	var to dispatch.Request
	var unknown error
	if err := o.loop.Read(ctx, false, func(c *dispatch.Core) {
		to, unknown = c.Output(worker, req.GetEpoch(), req.GetExecutor())
	}); cmp.Or(err, unknown) != nil {
		return nil, cmp.Or(err, unknown)
	}
	request := proto.CloneOf(req)
	request.Executor, request.Number, request.Epoch = to.Executor, to.Worker.ID.Number, to.Epoch
	answer, err := o.agents.readOutput(ctx, to, request)
	if err != nil {
		return nil, err
	}
	if err := o.rate.WaitN(ctx, len(answer.GetData())); err != nil {
		return nil, fault.New(fault.Unavailable, fault.ReasonOverloaded,
			"the assigner passes on at most %d bytes of output per second: repeat the call", outputRate)
	}
	return answer, nil
}

// readOutput sends a request for output to the agent of its executor.
func (s *Sender) readOutput(ctx context.Context, to dispatch.Request,
	request *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, outputTimeout)
	defer cancel()
	agent, done, err := s.connect(to.Address, false)
	if err != nil {
		return nil, unreachable(to.Executor, err.Error())
	}
	defer done()
	answer, err := agent.client.ReadOutput(transport.ToExecutors(ctx, to.Executor), &controlv1.ReadWorkerOutputRequest{
		Incarnation: to.Incarnation, Nonce: string(to.Nonce), Request: request,
	})
	if err != nil {
		return nil, outputError(to.Executor, err)
	}
	return outputOf(request, answer)
}

// outputOf checks the answer of an agent to a request for output.
func outputOf(request *berthv1.ReadOutputRequest, m *berthv1.ReadOutputAnswer) (*berthv1.ReadOutputAnswer, error) {
	size, left := int64(len(m.GetData())), m.GetEnd()-m.GetOffset()
	if size > wire.MaxOutput || m.GetOffset() < 0 || m.GetEnd() < 0 || size > left || m.GetComplete() && size < left ||
		m.GetNumber() < 0 || m.GetEpoch() < 0 {
		return nil, unreachable(request.GetExecutor(), "its answer is invalid")
	}
	m.Executor = request.GetExecutor()
	return m, nil
}

// outputError returns the error of a read for the caller. It passes on only the errors that
// an agent returns about the output: others, such as NOT_LEADER, would have another meaning
// for a gateway.
func outputError(executor string, err error) error {
	f := rpc.FromStatus(err)
	passed := &fault.Error{Kind: f.Kind, Reason: f.Reason, Message: f.Message}
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fault.New(fault.Precondition, fault.ReasonUnsupported,
			"the agent of %s is of an older version, which does not return output", executor)
	case f.Kind == fault.NotFound && f.Reason == fault.ReasonNotFound:
		return passed.With("executor", executor)
	case f.Kind == fault.Invalid && len(f.Fields) == 1 && f.Fields[0].Name == "offset":
		return fault.BadField(fault.ReasonInvalid, "offset", "%s", f.Fields[0].Problem)
	case f.Kind == fault.Precondition && f.Reason == fault.ReasonUnsupported,
		f.Kind == fault.Unavailable && f.Reason == fault.ReasonOverloaded:
		return passed
	}
	return unreachable(executor, f.Message)
}

func unreachable(executor, why string) error {
	return fault.New(fault.Unavailable, fault.ReasonExecutorUnreachable, "the agent of %s does not return output: %s",
		executor, why)
}
