package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// lastEvents is the number of events that describe shows.
const lastEvents = 10

func (a *app) describe() *cobra.Command {
	cmd := a.calls(&cobra.Command{
		Use:   "describe [reservation] JOB/STAGE[/NAME]",
		Short: "Show details of a reservation or executor",
		Long: `Show the request, the workers and the last events of a reservation. With
'berth describe executor ID', show the state, resources and workers of an executor.`,
		Args:              oneTarget,
		ValidArgsFunction: a.completeTarget(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 2)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				return a.describeOne(ctx, c, key)
			})
		},
	})
	cmd.AddCommand(a.describeExecutor())
	return cmd
}

func (a *app) describeExecutor() *cobra.Command {
	return &cobra.Command{
		Use:               "executor ID",
		Aliases:           []string{"executors"},
		Short:             "Show the state, resources and workers of an executor",
		Args:              cobra.ExactArgs(1),
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
				_, err = io.WriteString(a.Out, show.Executor(e, list.GetAssignments(), a.Now()))
				return err
			})
		},
	}
}

func (a *app) describeOne(ctx context.Context, c *client.Client, key client.Key) error {
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
	_, err = io.WriteString(a.Out, show.Describe(r, assignments, events, a.Now()))
	return err
}
