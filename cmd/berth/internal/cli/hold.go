package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/wire"
)

func (a *app) holdScaling() *cobra.Command {
	var (
		lasts         time.Duration
		until, output string
		clearHold     bool
	)
	cmd := a.calls(&cobra.Command{
		Use:   "hold-scaling SKU --for DURATION | --until TIME | --clear",
		Short: "Keep the wanted size of a SKU for a time",
		Long: `Keep the wanted size of a SKU until a time, for example during an incident or a
migration. Until then autoscalers neither add nor remove executors, and Berth rejects
claims for scale-down of the SKU. Reservations and workers are not affected. The hold
is the field scale.holdUntil of the SKU. It ends by itself, with --clear, or when
'berth apply' stores the SKU without it.`,
		Example: "  berth hold-scaling gpu-8 --for 2h\n" +
			"  berth hold-scaling gpu-8 --until 2026-01-02T15:04:05Z\n  berth hold-scaling gpu-8 --clear",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: single(a.complete(skuNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := expiry(cmd, a.Now(), lasts, until)
			if err != nil {
				return err
			}
			if end.IsZero() != clearHold {
				return badUsage(cmd, "give one of --for, --until and --clear")
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				sku, err := c.SKU(ctx, args[0])
				if err != nil {
					return err
				}
				if sku.Scale == nil {
					return fault.New(fault.Precondition, "", "SKU %s has no scale rule, so its size is not scaled", sku.GetName())
				}
				// All messages about the hold then show the same second.
				sku.Scale.HoldUntil = wire.Timestamp(end.Add(time.Second - 1).Truncate(time.Second))
				if sku, err = c.PutSKU(ctx, sku); err != nil {
					return err
				}
				return a.object(output, sku, show.Held(sku, a.Now()), sku.GetName())
			})
		},
	})
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration of the hold, such as 2h (at most 30 days)")
	cmd.Flags().StringVar(&until, "until", "", "time at which the hold ends, such as 2026-01-02T15:04:05Z")
	cmd.Flags().BoolVar(&clearHold, "clear", false, "end the hold now")
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}
