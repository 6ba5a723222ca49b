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
	var output string
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
					if err != nil {
						return err
					}
					return a.object(output, &berthv1.CancelWorkersAnswer{Cancelled: int32(count)},
						show.Counted(named(key), "cancelled", count, "worker", "nothing to cancel"), named(key))
				case key.Stage == "":
					count, err := c.CancelJob(ctx, key.Job)
					return a.cancelled(output, named(key), count, err)
				case key.Name == "":
					count, err := cancelStage(ctx, c, key)
					return a.cancelled(output, named(key), count, err)
				default:
					count, err := c.Cancel(ctx, key)
					return a.cancelled(output, named(key), count, err)
				}
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().StringSliceVar(&workers, "workers", nil, "cancel only these workers, INDEX.NUMBER[,INDEX.NUMBER…]")
	return cmd
}

// cancelStage cancels the reservations of a stage one by one, because the API has no call
// that cancels a stage. It may miss reservations that are created while it runs.
func cancelStage(ctx context.Context, c *client.Client, key client.Key) (int, error) {
	total := 0
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage}) {
		if err != nil {
			return total, err
		}
		if client.Ended(r.GetState()) {
			continue
		}
		count, err := c.Cancel(ctx, client.KeyOf(r))
		if err != nil {
			return total, fmt.Errorf("%s: %w", client.KeyOf(r), err)
		}
		total += count
	}
	return total, nil
}

func (a *app) cancelled(output, what string, count int, err error) error {
	if err != nil {
		return err
	}
	return a.object(output, &berthv1.CancelAnswer{Cancelled: int32(count)},
		show.Counted(what, "cancelled", count, "reservation", "nothing to cancel"), what)
}
