// Package internal gives the core of the registry definite answers: it repeats each call
// to another service until the outcome is known or the term ends, and checks every answer
// before the core sees it. It also serves the registry's gRPC API.
package internal

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
)

// Calls sends the cycles and dispatches of the queue to other services. It repeats each
// call until the outcome is definite or the term ends.
type Calls struct {
	inventory controlv1.InventoryClient
	assigner  controlv1.DispatchClient
	tracer    trace.Tracer
	log       *slog.Logger
}

// NewCalls returns a Calls that sends through a gateway.
func NewCalls(gateway grpc.ClientConnInterface, tracer trace.Tracer, log *slog.Logger) *Calls {
	return &Calls{
		inventory: controlv1.NewInventoryClient(gateway), assigner: controlv1.NewDispatchClient(gateway),
		tracer: tracer, log: log,
	}
}

// Perform implements loop.Config.
func (c *Calls) Perform(t *loop.Term, _ *queue.Core, action model.Action) {
	switch a := action.(type) {
	case model.Cycle:
		t.Go(model.ServiceExecutorState, refusedCycle(a, errPanicked), func(ctx context.Context) { c.schedule(ctx, t, a) })
	case model.Dispatch:
		t.Go(model.ServiceAssigner, refusedDispatch(a, errPanicked), func(ctx context.Context) { c.dispatch(ctx, t, a) })
	default:
		panic(fmt.Sprintf("registry: unknown action %T", action))
	}
}

func (c *Calls) schedule(ctx context.Context, t *loop.Term, cycle model.Cycle) {
	request := &controlv1.CycleRequest{Term: cycle.Term, Cycle: cycle.Number, Cut: cycle.Cut}
	request.Candidates = make([]*controlv1.Candidate, 0, len(cycle.Candidates))
	for _, e := range cycle.Candidates {
		request.Candidates = append(request.Candidates, candidateOf(e))
	}
	traced, granted := c.traceCycle(ctx, cycle, request)
	answer, err := replica.Definite(ctx, c.log, "cycle", func(ctx context.Context) (*controlv1.CycleAnswer, error) {
		return c.inventory.TryAllocateAndLease(ctx, request)
	})
	if ctx.Err() != nil {
		return
	}
	done, err := cycleOf(cycle, answer, err)
	if err != nil {
		c.log.WarnContext(traced, "a scheduling cycle was refused", "cycle", cycle.Number, "error", err)
		done.Newest, done.TooHigh = newestCycle(err)
	}
	for _, o := range done.Outcomes {
		if o.Result == model.Granted {
			granted()
		}
	}
	t.Post(done)
}

// newestCycle returns the newest cycle number that executor-state has seen, if it refused
// a cycle because of its number. It reports whether the cycle's number was too high.
func newestCycle(err error) (newest int64, tooHigh bool) {
	f := fault.Of(err)
	newest, parseErr := strconv.ParseInt(f.Meta[fault.MetaNewestCycle], 10, 64)
	if parseErr != nil {
		return 0, false
	}
	return newest, f.Reason != fault.ReasonLowerCycle
}

// candidateOf returns the message of a candidate, which has at most request.CandidateSize
// bytes.
func candidateOf(e model.Candidate) *controlv1.Candidate {
	if e.Unchanged {
		return &controlv1.Candidate{Uid: e.UID, Unchanged: e.Mod, Group: e.Group, NextAt: e.NextAt, Splits: e.Splits}
	}
	return &controlv1.Candidate{
		Key: wire.Key(e.Key), Uid: e.UID, Epoch: e.Epoch, Mod: e.Mod, Group: e.Group,
		Constraints: wire.Constraints(e.Constraints), AvoidFailed: e.Constraints.AvoidFailed,
		RefusedBy: e.Constraints.RefusedBy,
		Workers:   wire.Runs(e.Workers), Trace: string(e.Trace), Volume: wire.VolumeRequest(e.Volume),
		Hold: e.Hold, Chosen: e.Chosen, NextAt: e.NextAt, Splits: e.Splits,
	}
}

func (c *Calls) dispatch(ctx context.Context, t *loop.Term, dispatch model.Dispatch) {
	request := &controlv1.CreateTasksRequest{Term: dispatch.Term}
	for _, task := range dispatch.Tasks {
		request.Tasks = append(request.Tasks, &controlv1.CreateTask{Key: wire.Key(task.Key), Uid: task.UID, Mod: task.Mod,
			Lease: task.Lease})
	}
	ctx, span := c.traceDispatch(ctx, dispatch)
	defer span.End()
	answer, err := replica.Definite(ctx, c.log, "dispatch",
		func(ctx context.Context) (*controlv1.CreateTasksAnswer, error) {
			return c.assigner.CreateAssignmentTasks(ctx, request)
		})
	if ctx.Err() != nil {
		return
	}
	done, err := dispatchOf(dispatch, answer, err)
	if err != nil {
		c.log.WarnContext(ctx, "a dispatch was refused", "tasks", len(dispatch.Tasks), "error", err)
	}
	t.Post(done)
}
