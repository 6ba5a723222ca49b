package cli

import (
	"context"

	"github.com/spf13/cobra"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) flush() *cobra.Command {
	var job, group string
	cmd := a.asks(&cobra.Command{
		Use:   "flush --job JOB | --group GROUP",
		Short: "Cancel all that is queued of a job or in a group",
		Long: `Cancel all that is queued of a job, or in a group as 'berth get pending' names
it. What has been dispatched stays. It does not ask before it acts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (job == "") == (group == "") {
				return badUsage(cmd, "give either --job or --group")
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				what, flush, name := "job "+job, c.FlushJob, job
				if group != "" {
					what, flush, name = "group "+group, c.FlushGroup, group
				}
				count, err := flush(ctx, name)
				if err != nil {
					return err
				}
				return a.print(show.Counted(what, "flushed", count, "reservation", "nothing is queued"))
			})
		},
	})
	cmd.Flags().StringVar(&job, "job", "", "all that is queued of this job")
	cmd.Flags().StringVar(&group, "group", "", "all that is queued in this group")
	return cmd
}

func (a *app) markReady() *cobra.Command {
	return a.asks(&cobra.Command{
		Use:   "mark-ready",
		Short: "Tell the registry that all job services have asked again",
		Long: `Tell the registry that all job services have asked again for what they want. It
waits for that where it runs with 'readiness: signal', once in a cluster's life
and after a restore, and leases nothing before. Repeating it changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				since, err := c.MarkReady(ctx)
				if err != nil {
					return err
				}
				return a.print(show.Ready(since, a.Now()))
			})
		},
	})
}
