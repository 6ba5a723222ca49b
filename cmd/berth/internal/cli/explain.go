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
	return a.onReservation(&cobra.Command{
		Use:   "explain",
		Short: "Explain why a reservation is pending",
		Long: `Explain why a reservation is pending: its position in the queue, how many of its
workers fit now, and the first check that each unsuitable executor fails.`,
		Example: "  berth explain train/gpu",
	}, &output, func(ctx context.Context, c *client.Client, key client.Key) error {
		ctx, cancel := a.limited(ctx)
		defer cancel()
		e, err := c.Explain(ctx, key)
		if err != nil {
			return err
		}
		text := strings.TrimSuffix(show.Explain(e, a.Now()), "\n")
		return a.object(output, e, text, named(client.KeyOf(e.GetReservation())))
	})
}
