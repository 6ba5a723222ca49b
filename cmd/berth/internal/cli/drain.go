package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// defaultDeadline is how long drain --wait waits by default: long enough for graceful stops.
const defaultDeadline = 10 * time.Minute

func (a *app) drain() *cobra.Command {
	var (
		lasts    time.Duration
		until    string
		reason   string
		wait     bool
		grace    time.Duration
		deadline time.Duration
		output   string
	)
	cmd := a.calls(&cobra.Command{
		Use:   "drain ID…",
		Short: "Disable executors and stop their workers",
		Long: `Disable executors until the request expires or is undone, and ask their workers to
stop. The command returns at once. With --wait it returns when no worker is left, and
prints the number of remaining workers when it changes. With --grace the workers have less
time to end, also if a drain or a cancel stops them already. Berth starts workers with
'onWorkerLoss: REPLACE' on other executors. 'berth enable ID…' undoes the request, but
does not restart stopped workers. Unknown executors are reported (exit code 3); the
others are drained.`,
		Example: "  berth drain ex-1 ex-2 --wait --reason 'new disks'\n  berth drain ex-3 --for 2h" +
			"\n  berth drain ex-1 --grace 0s",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete(executorNames),
		RunE: func(cmd *cobra.Command, ids []string) error {
			expire, err := expiry(cmd, a.Now(), lasts, until)
			if err != nil {
				return err
			}
			body := &berthv1.DrainExecutorRequest{Reason: reason, ExpireTime: wire.Timestamp(expire)}
			if cmd.Flags().Changed("grace") {
				body.Grace = durationpb.New(grace)
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				if err := a.checkIDs(ctx, c, cmd, ids); err != nil {
					return err
				}
				progress := &printer{app: a, output: output}
				drained, rejected := progress.drainEach(ctx, c, ids, body)
				if wait {
					if err := progress.untilEmpty(ctx, c, drained, deadline); err != nil {
						return err
					}
				}
				return rejected
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	holdFlags(cmd, &lasts, &until, &reason)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no worker is left on the executors")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time that the workers have to end, at most that of their task; 0s kills them at once")
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "maximum time to wait with --wait")
	return cmd
}

// drainEach drains executors one after another, and skips unknown executors. It returns the
// executors that it drained and the first error.
func (p *printer) drainEach(ctx context.Context, c *client.Client, ids []string,
	body *berthv1.DrainExecutorRequest) (drained []*berthv1.Executor, rejected error) {
	for _, id := range ids {
		body.Id = id
		e, err := p.drainOne(ctx, c, body)
		if err == nil {
			drained = append(drained, e)
			err = p.object(e, show.Draining(e), e.GetId())
		}
		if err != nil && rejected == nil {
			rejected = fmt.Errorf("%s: %w", id, err)
		}
		if err != nil && fault.Of(err).Kind != fault.NotFound {
			break // the other executors would fail in the same way
		}
	}
	return drained, rejected
}

func (a *app) drainOne(ctx context.Context, c *client.Client, body *berthv1.DrainExecutorRequest) (*berthv1.Executor,
	error) {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	return c.Drain(ctx, body)
}

// untilEmpty polls executors until no executor has workers, and prints each change. It
// starts no poll after the deadline.
func (p *printer) untilEmpty(ctx context.Context, c *client.Client, drained []*berthv1.Executor,
	deadline time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		drained = slices.DeleteFunc(drained, func(e *berthv1.Executor) bool { return e.GetWorkers() == 0 })
		if len(drained) == 0 {
			return nil
		}
		if store.Sleep(waiting, p.every) != nil {
			return cmp.Or(ctx.Err(), notDrained(drained))
		}
		for i, e := range drained {
			left, err := p.readExecutor(ctx, c, e.GetId())
			if err != nil {
				return fmt.Errorf("%s: %w", e.GetId(), err)
			}
			if left.GetWorkers() != e.GetWorkers() {
				if err := p.object(left, show.Draining(left), left.GetId()); err != nil {
					return err
				}
			}
			drained[i] = left
		}
	}
}

// notDrained returns the error about executors that still have workers.
func notDrained(left []*berthv1.Executor) error {
	workers := int32(0)
	for _, e := range left {
		workers += e.GetWorkers()
	}
	which := left[0].GetId() + " is"
	if len(left) > 1 {
		which = fmt.Sprintf("%s and %d more are", left[0].GetId(), len(left)-1)
	}
	return fault.New(fault.Precondition, "", "%s not drained yet, workers left: %d", which, workers)
}

func (a *app) readExecutor(ctx context.Context, c *client.Client, id string) (*berthv1.Executor, error) {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	return c.Executor(ctx, id)
}
