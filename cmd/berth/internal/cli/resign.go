package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// successorPoll is the interval of the polls for the next leader. A standby usually
// becomes the leader some tens of milliseconds after the old leader has resigned.
const successorPoll = 20 * time.Millisecond

func (a *app) resign() *cobra.Command {
	var term int64
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "resign SERVICE",
		Short: "Make the leader of a service resign",
		Long: `Make the leader of registry, executor-state or assigner finish its writes and end its
term, and wait until a standby becomes the leader. Callers see a pause of some
milliseconds. If the service has only one replica, that replica becomes the leader
again.`,
		Args:              cobra.ExactArgs(1),
		Example:           "  berth resign registry\n  berth resign assigner --term 42",
		ValidArgsFunction: single(cobra.FixedCompletions(model.Services, cobra.ShellCompDirectiveNoFileComp)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if term < 0 {
				return badUsage(cmd, "--term must not be negative, got %d", term)
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if term == 0 {
					// With the term, a retry of the call cannot end the term of the next
					// leader.
					now, err := leadership(ctx, c, args[0])
					if err != nil {
						return err
					}
					term = now.GetTerm()
				}
				answer, err := c.Resign(ctx, args[0], term)
				if err != nil {
					return err
				}
				next, err := successor(ctx, c, args[0], answer.GetTerm())
				if err != nil {
					return fmt.Errorf("%s resigned: %w", answer.GetReplica(), err)
				}
				return a.object(output, next, show.Resigned(answer, next), next.GetLeader())
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().Int64Var(&term, "term", 0, "term to end; a later term does not end (default: the current term)")
	return cmd
}

// leadership returns the leader of a service. For an unknown service it returns nil. The
// term of nil is 0, with which the gateway rejects the call for the unknown service.
func leadership(ctx context.Context, c *client.Client, service string) (*berthv1.ServiceLeadership, error) {
	answer, err := c.Leaders(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range answer.GetServices() {
		if s.GetService() == service {
			return s, nil
		}
	}
	return nil, nil
}

// successor waits until a service has a leader in a later term.
func successor(ctx context.Context, c *client.Client, service string, term int64) (*berthv1.ServiceLeadership, error) {
	for {
		now, err := leadership(ctx, c, service)
		if err != nil || now.GetTerm() > term {
			return now, err
		}
		if store.Sleep(ctx, successorPoll) != nil {
			return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s has no leader yet", service)
		}
	}
}
