package cli

import (
	"context"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) bind() *cobra.Command {
	var output, pool string
	var keepHeld bool
	// parts returns the arguments before and after the two dashes.
	parts := func(cmd *cobra.Command, args []string) (before, command []string) {
		if at := cmd.ArgsLenAtDash(); at >= 0 {
			return args[:at], args[at:]
		}
		return args, nil
	}
	cmd := a.calls(&cobra.Command{
		Use:   "bind [reservation] JOB/STAGE[/NAME] [-- COMMAND [ARG...]]",
		Short: "Start the workers of a held reservation",
		Long: `Start the workers of a reservation that is HELD, on the executors that it holds. A
reservation is held if its job file has 'hold: HOLD'.

If cells keep executors for the reservation, the command chooses the cell with the
highest rating, or the one with the ID that --pool gives.

With a command, the workers run it instead of the task of the reservation. A
reservation that is not held stays as it is, and the command fails.`,
		Example: "  berth bind noon/batch\n  berth bind noon/batch -- /opt/batch --input today",
		Args: func(cmd *cobra.Command, args []string) error {
			before, _ := parts(cmd, args)
			return oneTarget(cmd, before)
		},
		ValidArgsFunction: a.completeTarget(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := parts(cmd, args)
			key, err := target(cmd, before, 2)
			if err != nil {
				return err
			}
			request := &berthv1.BindReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name}
			request.Pool, request.KeepHeld = pool, keepHeld
			if len(command) > 0 {
				request.Task = &berthv1.Task{Command: command[0], Args: command[1:]}
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				r, err := c.Bind(ctx, request)
				if err != nil {
					return err
				}
				return a.object(output, r, show.Applied(r), named(client.KeyOf(r)))
			})
		},
	})
	cmd.Flags().StringVar(&pool, "pool", "", "ID of the cell to choose, instead of the one with the highest rating")
	cmd.Flags().BoolVar(&keepHeld, "keep-held", false, "only choose the cell; the reservation stays HELD")
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}
