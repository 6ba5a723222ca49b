package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) getExecutors(flags *getFlags) *cobra.Command {
	var sku, pool, state string
	cmd := &cobra.Command{
		Use:     "executors [ID]",
		Aliases: []string{"executor"},
		Short:   "Show the inventory: all executors or one",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := enumFlag(cmd, "state", state, berthv1.Executor_STATE_UNSPECIFIED.Descriptor())
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return a.show(cmd, flags, oneExecutor(args[0]))
			}
			return a.show(cmd, flags, allExecutors(&berthv1.ListExecutorsRequest{
				Sku: sku, Pool: pool, State: berthv1.Executor_State(number), PageSize: pageSize,
			}))
		},
	}
	cmd.Flags().StringVar(&sku, "sku", "", "only of this SKU")
	cmd.Flags().StringVar(&pool, "pool", "", "only of this pool")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(berthv1.Executor_STATE_UNSPECIFIED.Descriptor()))
	return cmd
}

func oneExecutor(id string) view {
	return view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Executor(ctx, id) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Executors([]*berthv1.Executor{m.(*berthv1.Executor)}, now, wide)
		},
		empty: func(proto.Message) string { return "" },
	}
}

func allExecutors(request *berthv1.ListExecutorsRequest) view {
	return view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return whole(ctx, request, c.ExecutorsPage)
		},
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Executors(m.(*berthv1.ListExecutorsAnswer).GetExecutors(), now, wide)
		},
		empty: func(proto.Message) string { return "No executors." },
	}
}

func (a *app) getUsage(flags *getFlags) *cobra.Command {
	var sku string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show how much of each SKU is used, and how much more is asked for",
		Long: `Show how many executors of each SKU there are, and how many more what waits for
executors needs (PENDING). WANTED is the size that the SKU's scale rule advises.
While the registry is not ready it knows only a part of what waits, and says that
instead (exit code 4).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.show(cmd, flags, view{
				fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Usage(ctx, sku) },
				table: func(m proto.Message, _ time.Time, wide bool) *show.Table {
					return show.Usage(m.(*berthv1.GetUsageAnswer), wide)
				},
				empty: func(proto.Message) string { return "No SKUs, and nothing that asks for one." },
			})
		},
	}
	cmd.Flags().StringVar(&sku, "sku", "", "only of this SKU")
	return cmd
}

func (a *app) getSKUs(flags *getFlags) *cobra.Command {
	return a.kind(flags, "skus", "sku", "Show the specifications of SKUs", view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.SKUs(ctx) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.SKUs(m.(*berthv1.ListSkusAnswer).GetSkus(), now, wide)
		},
		empty: func(proto.Message) string { return "No SKUs." },
	})
}

func (a *app) getPools(flags *getFlags) *cobra.Command {
	return a.kind(flags, "pools", "pool", "Show the pools", view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Pools(ctx) },
		table: func(m proto.Message, now time.Time, _ bool) *show.Table {
			return show.Pools(m.(*berthv1.ListPoolsAnswer).GetPools(), now)
		},
		empty: func(proto.Message) string { return "No pools." },
	})
}
