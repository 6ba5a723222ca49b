// Package internal is the shell of the registry: its calls to other services
// and its gRPC face.
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

// Calls carries out what the queue wants of other services. Each call is
// repeated until its outcome is definite or the term ends.
type Calls struct {
	inventory controlv1.InventoryClient
	handout   controlv1.HandoutClient
	tracer    trace.Tracer
	log       *slog.Logger
}

// NewCalls makes the calls through a gateway.
func NewCalls(gateway grpc.ClientConnInterface, tracer trace.Tracer, log *slog.Logger) *Calls {
	return &Calls{
		inventory: controlv1.NewInventoryClient(gateway), handout: controlv1.NewHandoutClient(gateway),
		tracer: tracer, log: log,
	}
}

// Perform implements loop.Config.
func (c *Calls) Perform(t *loop.Term, _ *queue.Core, action model.Action) {
	switch a := action.(type) {
	case model.Cycle:
		t.Go(model.ServiceExecutorState, passed(a, errPanicked), func(ctx context.Context) { c.pass(ctx, t, a) })
	case model.Dispatch:
		t.Go(model.ServiceAssigner, handedOver(a, errPanicked), func(ctx context.Context) { c.handOver(ctx, t, a) })
	default:
		panic(fmt.Sprintf("registry: unknown action %T", action))
	}
}

func (c *Calls) pass(ctx context.Context, t *loop.Term, pass model.Cycle) {
	request := &controlv1.PassRequest{Term: pass.Term, Pass: pass.Number, Cut: pass.Cut}
	request.Entries = make([]*controlv1.PassEntry, 0, len(pass.Candidates))
	for _, e := range pass.Candidates {
		request.Entries = append(request.Entries, entryOf(e))
	}
	traced, granted := c.tracePass(ctx, pass, request)
	answer, err := replica.Definite(ctx, c.log, "pass", func(ctx context.Context) (*controlv1.PassAnswer, error) {
		return c.inventory.TryAllocateAndLease(ctx, request)
	})
	if ctx.Err() != nil {
		return
	}
	done := passed(pass, err)
	if err == nil {
		done, err = passOf(pass, answer)
	}
	if err != nil {
		c.log.WarnContext(traced, "a pass was refused", "pass", pass.Number, "error", err)
		done.Newest, done.TooHigh = newestPass(err)
	}
	for _, o := range done.Outcomes {
		if o.Result == model.Granted {
			granted()
		}
	}
	t.Post(done)
}

// newestPass returns the newest cycle number that executor-state has seen, if it
// refuses a pass for its number, and whether that number is too high for it.
func newestPass(err error) (newest int64, tooHigh bool) {
	f := fault.Of(err)
	newest, parseErr := strconv.ParseInt(f.Meta[fault.MetaNewestPass], 10, 64)
	if parseErr != nil {
		return 0, false
	}
	return newest, f.Reason != fault.ReasonLowerPass
}

// entryOf is an entry as it is sent, of at most queue.CandidateBytes(e) bytes.
func entryOf(e model.Candidate) *controlv1.PassEntry {
	if e.Again {
		return &controlv1.PassEntry{Uid: e.UID, Again: e.Mod, Group: e.Group}
	}
	return &controlv1.PassEntry{
		Key: wire.Key(e.Key), Uid: e.UID, Epoch: e.Epoch, Mod: e.Mod, Group: e.Group,
		Constraints: wire.Constraints(e.Constraints), AvoidFailed: e.Constraints.AvoidFailed,
		Seats: wire.Runs(e.Seats), Trace: string(e.Trace),
	}
}

func (c *Calls) handOver(ctx context.Context, t *loop.Term, over model.Dispatch) {
	request := &controlv1.CreateTasksRequest{Term: over.Term}
	for _, task := range over.Tasks {
		request.Tasks = append(request.Tasks, &controlv1.CreateTask{Key: wire.Key(task.Key), Uid: task.UID, Mod: task.Mod, Lease: task.Lease})
	}
	ctx, span := c.traceHandOver(ctx, over)
	defer span.End()
	answer, err := replica.Definite(ctx, c.log, "hand-over", func(ctx context.Context) (*controlv1.CreateTasksAnswer, error) {
		return c.handout.CreateAssignmentTasks(ctx, request)
	})
	if ctx.Err() != nil {
		return
	}
	done := handedOver(over, err)
	if err == nil {
		done, err = handOverOf(over, answer)
	}
	if err != nil {
		c.log.WarnContext(ctx, "a hand-over was refused", "tasks", len(over.Tasks), "error", err)
	}
	t.Post(done)
}
