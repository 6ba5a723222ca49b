package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/store"
)

// topJobs is the maximum number of jobs that one update of top reads.
const topJobs = 10_000

func (a *app) top() *cobra.Command {
	var once bool
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "top",
		Short: "Show leaders, capacity, queues and the largest jobs",
		Long: `Show an overview of the cluster: the leader of each service, the executors of each SKU,
the queues whose heads have waited longest, and the jobs with the most workers. On a
terminal, the overview is updated in place every 2 seconds until you press Ctrl-C. With
--once, with -o json and if the output is not a terminal, the command prints the
overview once.

Each list has at most 8 rows. The jobs are the largest of the first 10000.`,
		Example: "  berth top\n  berth top --once",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return topArgument(cmd, args[0])
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				if once || !a.Terminal || output != "text" {
					return a.topOnce(ctx, c, output)
				}
				return a.topLive(ctx, c)
			})
		},
	})
	outputFlag(cmd.Flags(), &output, "text", "json", "yaml")
	cmd.Flags().BoolVar(&once, "once", false, "print the overview once")
	return cmd
}

// topArgument returns the error about an argument of top. kubectl's top has kinds, which
// get lists.
func topArgument(cmd *cobra.Command, word string) error {
	return usageError{fmt.Errorf("unexpected argument %q; usage: %s", word, usageOf(cmd)), cmd.CommandPath(),
		suggestion(cmd.Root(), []string{word})}
}

func (a *app) topOnce(ctx context.Context, c *client.Client, output string) error {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	o, err := overview(ctx, c)
	if err != nil {
		return err
	}
	return a.write(output, show.Top(o, a.Now(), show.Style{Color: a.colored()}), "",
		show.List("services", o.Services), show.Field("usage", o.Usage), show.Field("pending", o.Pending),
		show.List("jobs", o.Jobs))
}

// topLive updates the overview until ctx ends. The timeout applies to the first update;
// later, the client prints a notice while no gateway answers.
func (a *app) topLive(ctx context.Context, c *client.Client) error {
	callCtx, cancel := a.limited(ctx)
	defer cancel()
	for first := true; ; first = false {
		o, err := overview(callCtx, c)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		style := a.style()
		text := []byte(show.Top(o, a.Now(), style))
		a.draw(&text, style, first)
		if _, err := a.Out.Write(text); err != nil {
			return err
		}
		if store.Sleep(ctx, 2*a.every) != nil {
			return nil
		}
		callCtx = ctx
	}
}

// overview reads the state of the cluster. If the registry does not know all queues yet,
// the overview has the reason instead.
func overview(ctx context.Context, c *client.Client) (o show.Overview, err error) {
	leaders, err := c.Leaders(ctx)
	if err != nil {
		return o, err
	}
	o.Services = leaders.GetServices()
	o.Usage, err = c.Usage(ctx, "")
	if err == nil {
		o.Pending, err = c.Pending(ctx)
	}
	if fault.Is(err, fault.ReasonRegistryNotReady) {
		o.Usage, o.Pending, o.Missing = nil, nil, sentence(err)
	} else if err != nil {
		return o, err
	}
	for j, err := range c.Jobs(ctx, &berthv1.ListJobsRequest{PageSize: pageSize}) {
		if err != nil {
			return o, err
		}
		if o.Cut = len(o.Jobs) == topJobs; o.Cut {
			break
		}
		o.Jobs = append(o.Jobs, j)
	}
	return o, nil
}
