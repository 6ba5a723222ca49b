package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) plan() *cobra.Command {
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "plan JOB[/STAGE]",
		Short: "Compare what a job requests with what it has",
		Long: `Compare what a job requests with what it has, one row for each worker index:

  TARGET      target size of the stage
  BOUND       yes if the worker has an executor: it is leased or assigned
  PERSISTENT  yes if the index has a volume that its next worker uses
  SATISFIED   yes if the worker is ASSIGNED, STARTING or RUNNING
  CURRENT     state of the worker, or of its version until the worker is assigned
  EXECUTOR    executor of the worker, or else of the volume
  VOLUME      ID of the volume, and its state unless it is READY
  WHY         why the worker is pending or has ended, or what the volume waits for

A row without a state is a volume that is left of an index.`,
		Example:           "  berth plan db\n  berth plan db/data -o json",
		Args:              oneTarget,
		ValidArgsFunction: a.completeTarget(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := stageTarget(cmd, args)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				plan, err := c.Plan(ctx, key.Job)
				if err != nil {
					return orUnknown(ctx, c, key, err)
				}
				if key.Stage != "" {
					plan.Stages = slices.DeleteFunc(plan.Stages, func(s client.StagePlan) bool { return s.Stage != key.Stage })
					if len(plan.Stages) == 0 {
						return orUnknown(ctx, c, key, fault.New(fault.NotFound, fault.ReasonNotFound,
							"stage %s has neither workers nor volumes", named(key)))
					}
				}
				table := show.Plan(plan)
				return a.value(output, plan, table.Styled(show.Style{Color: a.colored()}), table.Names())
			})
		},
	})
	outputFlag(cmd.Flags(), &output, "table", "json", "yaml", "name")
	return cmd
}
