package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/client"
	"berth.dev/pkg/fault"
)

// defaultDeadline is how long drain --wait waits: some graceful stops.
const defaultDeadline = 10 * time.Minute

func (a *app) drain() *cobra.Command {
	var (
		reason   string
		wait     bool
		deadline time.Duration
	)
	cmd := a.asks(&cobra.Command{
		Use:   "drain ID…",
		Short: "Disable executors and tell their workers to go",
		Long: `Disable executors and tell their workers to go. It returns at once; with --wait
when no worker is left on any of them, telling how many are as they go. 'berth
enable ID' undoes it; workers that were told to go do not come back.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				drained := make([]*berthv1.Executor, len(ids))
				for i, id := range ids {
					e, err := a.drainOne(ctx, c, id, reason)
					if err != nil {
						return fmt.Errorf("%s: %w", id, err)
					}
					drained[i] = e
				}
				if !wait {
					return nil
				}
				over := time.NewTimer(deadline)
				defer over.Stop()
				for _, e := range drained {
					if err := a.untilEmpty(ctx, c, e, over.C); err != nil {
						return err
					}
				}
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no worker is left")
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "how long to wait at most")
	return cmd
}

func (a *app) drainOne(ctx context.Context, c *client.Client, id, reason string) (*berthv1.Executor, error) {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	e, err := c.Drain(ctx, id, reason)
	if err != nil {
		return nil, err
	}
	return e, a.print(show.Draining(e))
}

// untilEmpty looks at an executor until no worker is left on it, and tells of
// each change.
func (a *app) untilEmpty(ctx context.Context, c *client.Client, e *berthv1.Executor, over <-chan time.Time) error {
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	for e.GetWorkers() > 0 {
		select {
		case <-tick.C:
		case <-over:
			return fault.New(fault.Precondition, "", "%s is not drained yet, workers left: %d", e.GetId(), e.GetWorkers())
		case <-ctx.Done():
			return ctx.Err()
		}
		left, err := a.readExecutor(ctx, c, e.GetId())
		if err != nil {
			return err
		}
		if left.GetWorkers() != e.GetWorkers() {
			if err := a.print(show.Draining(left)); err != nil {
				return err
			}
		}
		e = left
	}
	return nil
}

func (a *app) readExecutor(ctx context.Context, c *client.Client, id string) (*berthv1.Executor, error) {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	return c.Executor(ctx, id)
}
