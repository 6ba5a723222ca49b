package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) getReservations(flags *getFlags) *cobra.Command {
	var job, stage, state string
	cmd := &cobra.Command{
		Use:     "reservations [JOB[/STAGE[/NAME]]]",
		Aliases: []string{"reservation"},
		Short:   "Show reservations: all, a job's, a stage's or one",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := enumFlag(cmd, "state", state, berthv1.Reservation_STATE_UNSPECIFIED.Descriptor())
			if err != nil {
				return err
			}
			if len(args) > 0 {
				key, err := target(cmd, args[0], 1)
				if err != nil {
					return err
				}
				if key.Name != "" {
					return a.show(cmd, flags, oneReservation(key))
				}
				job, stage = key.Job, key.Stage
			}
			return a.show(cmd, flags, allReservations(&berthv1.ListReservationsRequest{
				Job: job, Stage: stage, State: berthv1.Reservation_State(number), PageSize: pageSize,
			}))
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "only of this job")
	cmd.Flags().StringVar(&stage, "stage", "", "only of this stage")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(berthv1.Reservation_STATE_UNSPECIFIED.Descriptor()))
	return cmd
}

func oneReservation(key client.Key) view {
	return view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Get(ctx, key) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Reservations([]*berthv1.Reservation{m.(*berthv1.Reservation)}, now, wide)
		},
		empty: func(proto.Message) string { return "" },
	}
}

func allReservations(request *berthv1.ListReservationsRequest) view {
	return view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return whole(ctx, request, c.ListPage)
		},
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Reservations(m.(*berthv1.ListReservationsAnswer).GetReservations(), now, wide)
		},
		empty: func(proto.Message) string { return "No reservations." },
	}
}

// kind is a command that shows all there is of a kind, without flags of its own.
func (a *app) kind(flags *getFlags, name, alias, short string, v view) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: []string{alias}, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.show(cmd, flags, v) },
	}
}

func (a *app) getPending(flags *getFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "pending",
		Short: "Show the queues: what waits in each, for how long and why",
		Long: `Show the queues, one row each: what waits in it, for how long its head has
waited, and why. While the registry is not ready it knows only a part of them,
and says that instead (exit code 4).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.show(cmd, flags, view{
				fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Pending(ctx) },
				table: func(m proto.Message, now time.Time, wide bool) *show.Table {
					return show.Pending(m.(*berthv1.ListPendingAnswer).GetGroups(), now, wide)
				},
				empty: func(proto.Message) string { return "Nothing is pending." },
			})
		},
	}
}

func (a *app) getAssignments(flags *getFlags) *cobra.Command {
	var job, executor, state string
	cmd := &cobra.Command{
		Use:     "assignments",
		Aliases: []string{"assignment"},
		Short:   "Show the workers on their executors",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			number, err := enumFlag(cmd, "state", state, berthv1.Assignment_STATE_UNSPECIFIED.Descriptor())
			if err != nil {
				return err
			}
			request := &berthv1.ListAssignmentsRequest{
				Job: job, Executor: executor, State: berthv1.Assignment_State(number), PageSize: pageSize,
			}
			return a.show(cmd, flags, view{
				fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) {
					return whole(ctx, request, c.AssignmentsPage)
				},
				table: func(m proto.Message, now time.Time, wide bool) *show.Table {
					return show.Assignments(m.(*berthv1.ListAssignmentsAnswer).GetAssignments(), now, wide)
				},
				empty: func(proto.Message) string { return "No assignments." },
			})
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "only of this job")
	cmd.Flags().StringVar(&executor, "executor", "", "only on this executor")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(berthv1.Assignment_STATE_UNSPECIFIED.Descriptor()))
	return cmd
}

func (a *app) getLeaders(flags *getFlags) *cobra.Command {
	return a.kind(flags, "leaders", "leader", "Show who leads each service", view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Leaders(ctx) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Leaders(m.(*berthv1.ListLeadersAnswer).GetServices(), now, wide)
		},
		empty: func(proto.Message) string { return "No services." },
	})
}

func (a *app) getFindings(flags *getFlags) *cobra.Command {
	return a.kind(flags, "findings", "finding", "Show what an operator should know of, in all services", view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return c.Findings(ctx) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table {
			return show.Findings(m.(*berthv1.ListFindingsAnswer).GetFindings(), now, wide)
		},
		empty: func(proto.Message) string { return "No findings." },
	})
}
