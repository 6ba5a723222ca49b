package cli

import (
	"context"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/model"
)

// quarantined is the kind of the finding about a worker whose stop the executor has not
// confirmed in time.
const quarantined = "QUARANTINED"

func (a *app) clearQuarantine() *cobra.Command {
	var yes bool
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "clear-quarantine EXECUTOR",
		Short: "Declare quarantined workers of an executor dead",
		Long: `Declare the quarantined workers of an executor dead. A worker is quarantined (finding
QUARANTINED) if it was asked to stop, should have stopped already, and the executor has
not confirmed that. The workers become LOST, and their capacity is free at once.

This is dangerous: Berth does not check whether the workers run. If a worker still
runs, it keeps using its resources while Berth places other workers on the executor,
and it runs at the same time as its replacement. This ends when its agent is reachable
again and stops the worker. First make sure that the host is off or the processes have
exited. Without --yes the command only lists the workers.`,
		Example:           "  berth clear-quarantine ex-2\n  berth clear-quarantine ex-2 --yes",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: single(a.complete(executorNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				workers, err := overdue(ctx, c, args[0])
				if err != nil {
					return err
				}
				if len(workers) == 0 {
					if err := checkExecutor(ctx, c, args[0]); err != nil {
						return err
					}
					return a.object(output, &berthv1.ClearQuarantineAnswer{},
						show.Counted(args[0], "cleared", 0, "worker", "nothing is quarantined"), args[0])
				}
				if !yes {
					table := show.Assignments(workers, a.Now(), output == "wide")
					err := a.write(output, table.Styled(show.Style{Color: a.colored()}), table.Names(),
						show.Part{Value: &berthv1.ListAssignmentsAnswer{Assignments: workers}})
					if err != nil {
						return err
					}
					return fault.New(fault.Precondition, "",
						"nothing was cleared: a worker that still runs would share its resources with new workers on %s; if none of these runs, repeat the command with --yes", args[0])
				}
				count, err := c.ClearQuarantine(ctx, args[0], workers...)
				if err != nil {
					return err
				}
				return a.object(output, &berthv1.ClearQuarantineAnswer{Cleared: int32(count)},
					show.Counted(args[0], "cleared", count, "worker", "nothing is quarantined"), args[0])
			})
		},
	})
	outputFlag(cmd.Flags(), &output, listFormats...)
	cmd.Flags().BoolVar(&yes, "yes", false, "declare that none of the workers runs, and clear them")
	return cmd
}

// overdue returns the workers on an executor whose stop was not confirmed in time. If the
// assigner does not list all findings about them, overdue returns all workers on the
// executor that are being stopped. The assigner then rejects the workers whose stop is
// not overdue. A LOST worker is quarantined if its executor has never answered.
func overdue(ctx context.Context, c *client.Client, executor string) ([]*berthv1.Assignment, error) {
	answer, err := c.Findings(ctx)
	if err != nil {
		return nil, err
	}
	listed, complete := map[string]bool{}, true
	for _, f := range answer.GetFindings() {
		if f.GetKind() == quarantined {
			listed[f.GetObject()] = true
			complete = complete && f.GetObject() != model.OtherFindings
		}
	}
	var list []*berthv1.Assignment
	for _, state := range []berthv1.Assignment_State{berthv1.Assignment_EVICT, berthv1.Assignment_EVICTING,
		berthv1.Assignment_LOST} {
		for w, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Executor: executor, State: state}) {
			if err != nil {
				return nil, err
			}
			if !complete && state != berthv1.Assignment_LOST || listed[show.Worker(w)] {
				list = append(list, w)
			}
		}
	}
	return list, nil
}
