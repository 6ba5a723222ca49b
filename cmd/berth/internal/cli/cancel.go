package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) cancel() *cobra.Command {
	var workers []string
	cmd := a.calls(&cobra.Command{
		Use:   "cancel [reservation] JOB[/STAGE[/NAME]]",
		Short: "Cancel a job, a stage, a reservation or workers",
		Long: `Cancel every reservation of a job or of a stage, or one reservation. After the
command has returned, none of their workers is started. Running workers are asked
to stop. Cancelling something that does not exist succeeds.

With --workers, cancel only those workers of a stage, whether they are queued, leased
or running. Write each as INDEX.NUMBER, as 'berth get assignments' shows it.`,
		Example:           "  berth cancel train/gpu\n  berth cancel train/gpu --workers 2.1,3.1",
		Args:              oneTarget,
		ValidArgsFunction: a.completeTarget(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 1)
			if err != nil {
				return err
			}
			ids, err := workerIDs(cmd, workers)
			if err != nil {
				return err
			}
			if len(ids) > 0 && (key.Stage == "" || key.Name != "") {
				return badUsage(cmd, "--workers requires JOB/STAGE: workers belong to a stage")
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				switch {
				case len(ids) > 0:
					count, err := c.CancelWorkers(ctx, key.Job, key.Stage, ids...)
					return a.cancelled(named(key), count, "worker", err)
				case key.Stage == "":
					count, err := c.CancelJob(ctx, key.Job)
					return a.cancelled(named(key), count, "reservation", err)
				case key.Name == "":
					return a.cancelStage(ctx, c, key)
				default:
					count, err := c.Cancel(ctx, key)
					return a.cancelled(named(key), count, "reservation", err)
				}
			})
		},
	})
	cmd.Flags().StringSliceVar(&workers, "workers", nil, "cancel only these workers, INDEX.NUMBER[,INDEX.NUMBER…]")
	return cmd
}

// cancelStage cancels the reservations of a stage one by one, because the API has no call
// that cancels a stage. It may miss reservations that are created while it runs.
func (a *app) cancelStage(ctx context.Context, c *client.Client, key client.Key) error {
	total := 0
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage}) {
		if err != nil {
			return err
		}
		if client.Ended(r.GetState()) {
			continue
		}
		count, err := c.Cancel(ctx, client.KeyOf(r))
		if err != nil {
			return fmt.Errorf("%s: %w", client.KeyOf(r), err)
		}
		total += count
	}
	return a.cancelled(named(key), total, "reservation", nil)
}

func (a *app) cancelled(what string, count int, one string, err error) error {
	if err != nil {
		return err
	}
	return a.print(show.Counted(what, "cancelled", count, one, "nothing to cancel"))
}
