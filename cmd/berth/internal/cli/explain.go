package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) explain() *cobra.Command {
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "explain [reservation] JOB/STAGE[/NAME]",
		Short: "Explain why a reservation is pending",
		Long: `Explain why a reservation is pending: its position in the queue, how many of its
workers fit now, and the first check that each unsuitable executor fails.`,
		Args:              oneTarget,
		Example:           "  berth explain train/gpu",
		ValidArgsFunction: a.completeTarget(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 2)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				e, err := c.Explain(ctx, key)
				if err != nil {
					return err
				}
				text := strings.TrimSuffix(show.Explain(e, a.Now()), "\n")
				return a.object(output, e, text, named(client.KeyOf(e.GetReservation())))
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}
