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

// quarantined is the kind of the finding that a stop is not confirmed.
const quarantined = "QUARANTINED"

func (a *app) clearQuarantine() *cobra.Command {
	var yes bool
	cmd := a.asks(&cobra.Command{
		Use:   "clear-quarantine EXECUTOR",
		Short: "Give up workers whose stop an executor does not confirm",
		Long: `Give up the workers of an executor that were told to stop, should have ended by
now, and of which the executor does not say that they have (the finding
QUARANTINED). They become LOST, and their capacity is given out again at once.

This is dangerous: Berth takes your word that they do not run. One that does runs
on beside what is placed there next, and beside its replacement, until its agent
is reached and stops it. Make sure first that the host is off or the processes
are dead. Without --yes it only shows which workers are meant.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				workers, err := overdue(ctx, c, args[0])
				if err != nil {
					return err
				}
				if len(workers) == 0 {
					return a.print(show.Counted(args[0], "cleared", 0, "worker", "nothing is quarantined"))
				}
				if !yes {
					if _, err := show.Assignments(workers, a.Now(), false).WriteTo(a.Out); err != nil {
						return err
					}
					return fault.New(fault.Precondition, "", "nothing is cleared: if one of these still runs, it runs on beside what is placed on %s next; with --yes you say that none does", args[0])
				}
				count, err := c.ClearQuarantine(ctx, args[0], workers...)
				if err != nil {
					return err
				}
				return a.print(show.Counted(args[0], "cleared", count, "worker", "nothing is quarantined"))
			})
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: none of them runs")
	return cmd
}

// overdue are the workers on an executor whose stop is not confirmed in time. If the
// assigner does not list all such findings, they are all workers on the executor that
// are being stopped: the assigner refuses to clear one whose stop is not overdue.
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
	for _, state := range []berthv1.Assignment_State{berthv1.Assignment_EVICT, berthv1.Assignment_EVICTING} {
		for w, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Executor: executor, State: state}) {
			if err != nil {
				return nil, err
			}
			if !complete || listed[show.Worker(w)] {
				list = append(list, w)
			}
		}
	}
	return list, nil
}
