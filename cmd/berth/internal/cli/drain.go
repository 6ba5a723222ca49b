package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// defaultDeadline is how long drain --wait waits: some graceful stops.
const defaultDeadline = 10 * time.Minute

func (a *app) drain() *cobra.Command {
	var (
		lasts    time.Duration
		until    string
		reason   string
		wait     bool
		deadline time.Duration
	)
	cmd := a.asks(&cobra.Command{
		Use:   "drain ID…",
		Short: "Disable executors and tell their workers to go",
		Long: `Disable executors until the request expires or is undone, and tell their workers
to go. It returns at once; with --wait when no worker is left on any of them,
telling how many are as they go. 'berth enable ID…' undoes it; workers that were
told to go do not come back. One that is not there does not stop the others from
being drained.`,
		Example: "  berth drain ex-1 ex-2 --wait --reason 'new disks'\n  berth drain ex-3 --for 2h",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			expire, err := expiry(cmd, a.Now(), lasts, until)
			if err != nil {
				return err
			}
			body := &berthv1.DrainExecutorRequest{Reason: reason}
			if !expire.IsZero() {
				body.ExpireTime = timestamppb.New(expire)
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				drained, refused := a.drainEach(ctx, c, ids, body)
				if wait {
					over := time.NewTimer(deadline)
					defer over.Stop()
					if err := a.untilEmpty(ctx, c, drained, over.C); err != nil {
						return err
					}
				}
				return refused
			})
		},
	})
	holdFlags(cmd, &lasts, &until, &reason)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no worker is left")
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "how long to wait at most")
	return cmd
}

// drainEach drains executors one after another, those that are not there left out,
// and answers those that it could. The error is that of the first that it could not.
func (a *app) drainEach(ctx context.Context, c *client.Client, ids []string, body *berthv1.DrainExecutorRequest) (drained []*berthv1.Executor, refused error) {
	for _, id := range ids {
		body.Id = id
		e, err := a.drainOne(ctx, c, body)
		if err == nil {
			drained = append(drained, e)
			err = a.print(show.Draining(e))
		}
		if err != nil && refused == nil {
			refused = fmt.Errorf("%s: %w", id, err)
		}
		if err != nil && fault.Of(err).Kind != fault.NotFound {
			break // the others would fare no better
		}
	}
	return drained, refused
}

func (a *app) drainOne(ctx context.Context, c *client.Client, body *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	return c.Drain(ctx, body)
}

// untilEmpty looks at executors until no worker is left on any, and tells of each
// change.
func (a *app) untilEmpty(ctx context.Context, c *client.Client, drained []*berthv1.Executor, over <-chan time.Time) error {
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	for {
		drained = slices.DeleteFunc(drained, func(e *berthv1.Executor) bool { return e.GetWorkers() == 0 })
		if len(drained) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-over:
			return notDrained(drained)
		case <-ctx.Done():
			return ctx.Err()
		}
		for i, e := range drained {
			left, err := a.readExecutor(ctx, c, e.GetId())
			if err != nil {
				return fmt.Errorf("%s: %w", e.GetId(), err)
			}
			if left.GetWorkers() != e.GetWorkers() {
				if err := a.print(show.Draining(left)); err != nil {
					return err
				}
			}
			drained[i] = left
		}
	}
}

// notDrained is the error of executors that still have workers.
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
