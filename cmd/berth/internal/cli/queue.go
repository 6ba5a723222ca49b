package cli

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/model"
)

func (a *app) flush() *cobra.Command {
	var job, group, output string
	cmd := a.calls(&cobra.Command{
		Use:   "flush --job JOB | --group GROUP",
		Short: "Cancel the queued reservations of a job or a group",
		Long: `Cancel the queued reservations of a job, or of a group that 'berth get pending'
lists. Reservations that are held or have been dispatched are not cancelled. The
command requires no confirmation.`,
		Example: "  berth flush --job train\n  berth flush --group g-7f3a",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (job == "") == (group == "") {
				return badUsage(cmd, "give either --job or --group")
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				what, name := "job "+job, job
				if group != "" {
					what, name = "group "+group, group
				}
				count, known, err := c.FlushKnown(ctx, &berthv1.FlushReservationsRequest{Job: job, Group: group})
				if err != nil {
					return err
				}
				if !known {
					return a.unknownGroupOrJob(ctx, c, job, group)
				}
				return a.object(output, &berthv1.CancelAnswer{Cancelled: int32(count)},
					show.Counted(what, "flushed", count, "reservation", "nothing is queued"), name)
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().StringVar(&job, "job", "", "job whose queued reservations are cancelled")
	cmd.Flags().StringVar(&group, "group", "", "group whose queued reservations are cancelled")
	return cmd
}

// unknownGroupOrJob returns the error about a flush that names nothing that Berth knows.
func (a *app) unknownGroupOrJob(ctx context.Context, c *client.Client, job, group string) error {
	if job != "" {
		return unknownKey(ctx, c, client.Key{Job: job})
	}
	pending, _ := c.Pending(ctx) // only for similar IDs
	return unknownName("group", group, namesOf(pending.GetGroups(), (*berthv1.PendingGroup).GetId))
}

func (a *app) markReady() *cobra.Command {
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "mark-ready",
		Short: "Mark the registry as ready",
		Long: `Mark the registry as ready, after all job services have repeated their requests. With
'readiness: signal' the registry waits for this command in a new cluster and after
each restore. Until then it grants no leases. Repeating the command changes nothing.`,
		Example: "  berth mark-ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				since, err := c.MarkReady(ctx)
				if err != nil {
					return err
				}
				return a.object(output, &berthv1.MarkReadyAnswer{ReadySince: timestamppb.New(since)},
					show.Ready(since, a.Now()), model.ServiceRegistry)
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}
