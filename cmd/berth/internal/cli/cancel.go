package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/client"
)

func (a *app) cancel() *cobra.Command {
	return a.asks(&cobra.Command{
		Use:   "cancel JOB[/STAGE[/NAME]]",
		Short: "Cancel a job, a stage or one reservation, and stop its workers",
		Long: `Cancel every reservation of a job, those of a stage, or one. Once it returns,
nothing of them will be started any more; workers that run are told to go.
Cancelling what is not there succeeds.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args[0], 1)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				switch {
				case key.Stage == "":
					count, err := c.CancelJob(ctx, key.Job)
					return a.cancelled(args[0], count, err)
				case key.Name == "":
					return a.cancelStage(ctx, c, key)
				default:
					count, err := c.Cancel(ctx, key)
					return a.cancelled(args[0], count, err)
				}
			})
		},
	})
}

// cancelStage cancels the stage's reservations one by one: there is no call
// for a stage, and one made meanwhile is not of those meant.
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
	return a.cancelled(key.Job+"/"+key.Stage, total, nil)
}

func (a *app) cancelled(what string, count int, err error) error {
	if err != nil {
		return err
	}
	return a.print(show.Cancelled(what, count))
}
