package cli

import (
	"context"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// lastEvents is the number of events that describe shows.
const lastEvents = 10

func (a *app) describe() *cobra.Command {
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "describe [reservation] JOB/STAGE[/NAME]",
		Short: "Show details of a reservation or executor",
		Long: `Show the request, the workers and the last events of a reservation. With
'berth describe executor ID', show the state, resources and workers of an executor.`,
		Args:              oneTarget,
		Example:           "  berth describe train/gpu\n  berth describe reservation train/gpu/main -o json",
		ValidArgsFunction: a.completeTarget(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 2)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				return a.describeOne(ctx, c, key, output)
			})
		},
	})
	outputFlag(cmd.PersistentFlags(), &output, textFormats...)
	cmd.AddCommand(a.describeExecutor(&output))
	return cmd
}

func (a *app) describeExecutor(output *string) *cobra.Command {
	return &cobra.Command{
		Use:               "executor ID",
		Aliases:           []string{"executors"},
		Short:             "Show the state, resources and workers of an executor",
		Args:              cobra.ExactArgs(1),
		Example:           "  berth describe executor ex-1",
		ValidArgsFunction: single(a.complete(executorNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				e, err := c.Executor(ctx, args[0])
				if err != nil {
					return err
				}
				list, err := whole(&berthv1.ListAssignmentsRequest{Executor: args[0], PageSize: pageSize},
					(*client.Client).AssignmentsPage)(c, ctx)
				if err != nil {
					return err
				}
				return a.write(*output, show.Executor(e, list.GetAssignments(), a.Now()), e.GetId()+"\n",
					show.Field("executor", e), show.List("assignments", list.GetAssignments()))
			})
		},
	}
}

func (a *app) describeOne(ctx context.Context, c *client.Client, key client.Key, output string) error {
	r, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	var assignments []*berthv1.Assignment
	for item, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: r.GetJob(), PageSize: pageSize}) {
		if err != nil {
			return err
		}
		if item.GetStage() == r.GetStage() && item.GetReservation() == r.GetName() {
			assignments = append(assignments, item)
		}
	}
	var events []*berthv1.Event
	for event, err := range only(client.KeyOf(r), a.stored(ctx, c, r.GetJob(), "")) {
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	events = events[max(0, len(events)-lastEvents):]
	return a.write(output, show.Describe(r, assignments, events, a.Now()), named(client.KeyOf(r))+"\n",
		show.Field("reservation", r), show.List("assignments", assignments), show.List("events", events))
}
