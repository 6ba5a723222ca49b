package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) whoami() *cobra.Command {
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "whoami",
		Short: "Show the identity with which the gateway sees you",
		Long: `Show the identity with which the gateway sees you, and its role. The identity comes
from a certificate or a bearer token. Without TLS and without a token, a caller is
trusted and has every role. The formats json and yaml also list the methods that you
may call.`,
		Args:    cobra.NoArgs,
		Example: "  berth whoami\n  berth whoami -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				caller, err := c.Caller(ctx)
				if err != nil {
					return err
				}
				return a.write(output, show.Caller(caller), cmp.Or(caller.GetIdentity(), show.NoIdentity(caller))+"\n",
					show.Part{Value: caller})
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}
