package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

func (a *app) wait() *cobra.Command {
	state := berthv1.Reservation_ACTIVE
	var deadline time.Duration
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "wait [reservation] JOB/STAGE[/NAME]",
		Short: "Wait until a reservation is in a state",
		Long: `Wait until the newest version of a reservation is in a state. By default, that is ACTIVE:
all its workers are placed, and their executors start them. The command fails if the
reservation ends in another state, or if the deadline passes (exit code 1). COMPLETED
means that all workers have ended; 'berth get assignments' and 'berth events' show how.`,
		Example:           "  berth wait train/gpu\n  berth wait train/gpu --for completed --deadline 2h",
		Args:              oneTarget,
		ValidArgsFunction: a.completeTarget(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 2)
			if err != nil {
				return err
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				if err := a.reach(ctx, c, key.Job); err != nil {
					return err
				}
				waiting, cancel := context.WithTimeout(ctx, deadline)
				defer cancel()
				r, err := c.WaitFor(waiting, key, state)
				if r != nil && waiting.Err() != nil {
					return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s is still %s after %v", key,
						r.GetState(), deadline)
				}
				if err != nil {
					return err
				}
				return a.object(output, r, named(client.KeyOf(r))+" "+r.GetState().String(), named(client.KeyOf(r)))
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	enumFlag(cmd, "for", "state to wait for (default ACTIVE)", &state)
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "maximum time to wait")
	return cmd
}
