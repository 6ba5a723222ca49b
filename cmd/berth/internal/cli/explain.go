package cli

import (
	"context"

	"github.com/spf13/cobra"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) explain() *cobra.Command {
	var output string
	cmd := a.asks(&cobra.Command{
		Use:   "explain JOB/STAGE[/NAME]",
		Short: "Say why a reservation waits, and what would let it go on",
		Long: `Say why a reservation waits: its place in the queue, how many of its workers
would fit now, and what the executors that it cannot use fail at first.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args[0], 2)
			if err != nil {
				return err
			}
			if err := oneOf(cmd, "output", output, "text", "json", "yaml"); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				e, err := c.Explain(ctx, key)
				if err != nil {
					return err
				}
				text := []byte(show.Explain(e, a.Now()))
				switch output {
				case "json":
					text, err = show.JSON(e)
				case "yaml":
					text, err = show.YAML(e)
				}
				if err != nil {
					return err
				}
				_, err = a.Out.Write(text)
				return err
			})
		},
	})
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	return cmd
}
