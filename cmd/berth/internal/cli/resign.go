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
	"berth.dev/pkg/store"
)

// successorPoll is the interval of polls for the successor of a leader that resigned. A successor
// leads after some tens of milliseconds.
const successorPoll = 20 * time.Millisecond

func (a *app) resign() *cobra.Command {
	var term int64
	cmd := a.calls(&cobra.Command{
		Use:   "resign SERVICE",
		Short: "Make the leader of a service resign",
		Long: `Make the leader of registry, executor-state or assigner finish its writes and give up
its term, and wait until a standby leads. Callers see a pause of some milliseconds. If
the service has one replica, it leads again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if term < 0 {
				return badUsage(cmd, "--term must not be negative, got %d", term)
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if term == 0 {
					// With the term, a retried call does not end the successor's term.
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
				return a.print(show.Resigned(answer, next))
			})
		},
	})
	cmd.Flags().Int64Var(&term, "term", 0, "term that must end (default: the current term)")
	return cmd
}

// leadership returns the leader of a service. For an unknown service it returns nil: its term
// is 0, and the gateway rejects the call.
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
