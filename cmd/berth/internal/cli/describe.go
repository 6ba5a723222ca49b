package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/client"
)

// lastEvents is how many events describe shows.
const lastEvents = 10

func (a *app) describe() *cobra.Command {
	return a.asks(&cobra.Command{
		Use:   "describe JOB/STAGE[/NAME]",
		Short: "Tell all of one reservation: what was asked, its workers, its last events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args[0], 2)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				return a.describeOne(ctx, c, key)
			})
		},
	})
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
	for event, err := range a.kept(ctx, c, r.GetJob(), "") {
		if err != nil {
			return err
		}
		if event.GetStage() == r.GetStage() && event.GetReservation() == r.GetName() {
			events = append(events, event)
		}
	}
	events = events[max(0, len(events)-lastEvents):]
	_, err = io.WriteString(a.Out, show.Describe(r, assignments, events, a.Now()))
	return err
}
