package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) cancel() *cobra.Command {
	var workers []string
	var grace time.Duration
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "cancel [reservation] JOB[/STAGE[/NAME]]",
		Short: "Cancel a job, a stage, a reservation or workers",
		Long: `Cancel every reservation of a job or of a stage, or one reservation. After the
command has returned, none of their workers is started. Running workers are asked
to stop. Cancelling something that has ended succeeds. A name that Berth does not know
is an error (exit code 3): it may be misspelled.

With --workers, cancel only those workers of a stage, whether they are queued, leased
or running. Write each as INDEX.NUMBER, as 'berth get assignments' shows it.

With --grace, the workers have at most this time to end after their termination
signal, also if an earlier cancel or a drain is stopping them. A time that is longer
than 'task.stopGrace' has no effect.`,
		Example: "  berth cancel train/gpu\n  berth cancel train/gpu --workers 2.1,3.1\n" +
			"  berth cancel train --grace 0s",
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
			var within *time.Duration
			if cmd.Flags().Changed("grace") {
				if within = &grace; grace < 0 {
					return badUsage(cmd, "--grace must not be negative")
				}
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				switch {
				case len(ids) > 0:
					count, known, err := c.CancelWorkersWith(ctx, key.Job, key.Stage, within, ids...)
					if err != nil {
						return err
					}
					if !known {
						return unknownWorkers(ctx, c, key, workers)
					}
					return a.object(output, &berthv1.CancelWorkersAnswer{Cancelled: int32(count)},
						show.Counted(named(key), "cancelled", count, "worker", "nothing to cancel"), named(key))
				case key.Stage != "" && key.Name == "":
					count, known, err := cancelStage(ctx, c, key, within)
					return a.cancelled(ctx, c, output, key, count, known, err)
				default:
					count, known, err := c.CancelWith(ctx, key, within)
					return a.cancelled(ctx, c, output, key, count, known, err)
				}
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().StringSliceVar(&workers, "workers", nil, "cancel only these workers, INDEX.NUMBER[,INDEX.NUMBER…]")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time that the workers have to end, at most that of their task; 0s kills them at once")
	return cmd
}

// cancelStage cancels the reservations of a stage one by one, because the API has no call
// that cancels a stage. It may miss reservations that are created while it runs.
func cancelStage(ctx context.Context, c *client.Client, key client.Key, grace *time.Duration) (total int, known bool,
	err error) {
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage}) {
		if err != nil {
			return total, known, err
		}
		known = true
		if client.Ended(r.GetState()) {
			continue
		}
		count, _, err := c.CancelWith(ctx, client.KeyOf(r), grace)
		if err != nil {
			return total, known, fmt.Errorf("%s: %w", client.KeyOf(r), err)
		}
		total += count
	}
	if !known { // a stage outlives its reservations
		return c.CancelWith(ctx, key, grace)
	}
	return total, known, nil
}

// unknownWorkers returns the error about worker IDs that a stage has not used.
func unknownWorkers(ctx context.Context, c *client.Client, key client.Key, workers []string) error {
	if err := checkKey(ctx, c, key); err != nil {
		return err
	}
	return fault.New(fault.NotFound, fault.ReasonNotFound, "%s has had no worker %s: 'berth get assignments --job %s' lists workers",
		named(key), strings.Join(workers, ", "), key.Job)
}

func (a *app) cancelled(ctx context.Context, c *client.Client, output string, key client.Key, count int, known bool,
	err error) error {
	switch what := named(key); {
	case err != nil:
		return err
	case !known && output != "text": // for programs that read the answer
		return cmp.Or(a.object(output, &berthv1.CancelAnswer{Unknown: proto.Bool(true)}, "", what), unknownKey(ctx, c, key))
	case !known:
		return unknownKey(ctx, c, key)
	default:
		return a.object(output, &berthv1.CancelAnswer{Cancelled: int32(count)},
			show.Counted(what, "cancelled", count, "reservation", "nothing to cancel"), what)
	}
}
