package cli

import (
	"context"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// kind returns a command that shows all objects of a kind, without flags of its own.
func (a *app) kind(flags *getFlags, v view, name, short string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: aliases, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.show(cmd, flags, v) },
	}
}

func (a *app) getReservations(flags *getFlags) *cobra.Command {
	request := &berthv1.ListReservationsRequest{PageSize: pageSize}
	var state string
	cmd := &cobra.Command{
		Use:     "reservations [JOB[/STAGE[/NAME]]]",
		Aliases: []string{"reservation"},
		Short:   "Show reservations: all, a job's, a stage's or one",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := enumFlag(cmd, "state", state, request.State.Descriptor())
			if err != nil {
				return err
			}
			request.State = berthv1.Reservation_State(number)
			if len(args) > 0 {
				key, err := target(cmd, args[0], 1)
				if err != nil {
					return err
				}
				if key.Name != "" {
					get := func(c *client.Client, ctx context.Context) (*berthv1.Reservation, error) { return c.Get(ctx, key) }
					return a.show(cmd, flags, viewOf("", get, one, show.Reservations))
				}
				request.Job, request.Stage = key.Job, key.Stage
			}
			all := whole(request, (*client.Client).ListPage)
			return a.show(cmd, flags, viewOf("No reservations.", all, (*berthv1.ListReservationsAnswer).GetReservations, show.Reservations))
		},
	}
	cmd.Flags().StringVar(&request.Job, "job", "", "only of this job")
	cmd.Flags().StringVar(&request.Stage, "stage", "", "only of this stage")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(request.State.Descriptor()))
	return cmd
}

func (a *app) getPending(flags *getFlags) *cobra.Command {
	v := viewOf("Nothing is pending.", (*client.Client).Pending, (*berthv1.ListPendingAnswer).GetGroups, show.Pending)
	cmd := a.kind(flags, v, "pending", "Show the queues: what waits in each, for how long and why")
	cmd.Long = `Show the queues, one row each: what waits in it, for how long its head has
waited, and why. While the registry is not ready it knows only a part of them,
and says that instead (exit code 4).`
	return cmd
}

func (a *app) getAssignments(flags *getFlags) *cobra.Command {
	request := &berthv1.ListAssignmentsRequest{PageSize: pageSize}
	var state string
	cmd := &cobra.Command{
		Use:     "assignments",
		Aliases: []string{"assignment"},
		Short:   "Show the workers on their executors",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			number, err := enumFlag(cmd, "state", state, request.State.Descriptor())
			if err != nil {
				return err
			}
			request.State = berthv1.Assignment_State(number)
			all := whole(request, (*client.Client).AssignmentsPage)
			return a.show(cmd, flags, viewOf("No assignments.", all, (*berthv1.ListAssignmentsAnswer).GetAssignments, show.Assignments))
		},
	}
	cmd.Flags().StringVar(&request.Job, "job", "", "only of this job")
	cmd.Flags().StringVar(&request.Executor, "executor", "", "only on this executor")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(request.State.Descriptor()))
	return cmd
}

func (a *app) getExecutors(flags *getFlags) *cobra.Command {
	request := &berthv1.ListExecutorsRequest{PageSize: pageSize}
	var state string
	cmd := &cobra.Command{
		Use:     "executors [ID]",
		Aliases: []string{"executor"},
		Short:   "Show the inventory: all executors or one",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := enumFlag(cmd, "state", state, request.State.Descriptor())
			if err != nil {
				return err
			}
			if len(args) > 0 {
				get := func(c *client.Client, ctx context.Context) (*berthv1.Executor, error) {
					return c.Executor(ctx, args[0])
				}
				return a.show(cmd, flags, viewOf("", get, one, show.Executors))
			}
			request.State = berthv1.Executor_State(number)
			all := whole(request, (*client.Client).ExecutorsPage)
			return a.show(cmd, flags, viewOf("No executors.", all, (*berthv1.ListExecutorsAnswer).GetExecutors, show.Executors))
		},
	}
	cmd.Flags().StringVar(&request.Sku, "sku", "", "only of this SKU")
	cmd.Flags().StringVar(&request.Pool, "pool", "", "only of this pool")
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+states(request.State.Descriptor()))
	return cmd
}

func (a *app) getUsage(flags *getFlags) *cobra.Command {
	var sku string
	get := func(c *client.Client, ctx context.Context) (*berthv1.GetUsageAnswer, error) { return c.Usage(ctx, sku) }
	cmd := a.kind(flags, viewOf("No SKUs, and nothing that asks for one.", get, same, show.Usage),
		"usage", "Show how much of each SKU is used, and how much more is asked for")
	cmd.Long = `Show how many executors of each SKU there are, and how many more what waits for
executors needs (PENDING). WANTED is the size that the SKU's scale rule advises.
While the registry is not ready it knows only a part of what waits, and says that
instead (exit code 4).`
	cmd.Flags().StringVar(&sku, "sku", "", "only of this SKU")
	return cmd
}

func (a *app) getSKUs(flags *getFlags) *cobra.Command {
	v := viewOf("No SKUs.", (*client.Client).SKUs, (*berthv1.ListSkusAnswer).GetSkus, show.SKUs)
	return a.kind(flags, v, "skus", "Show the specifications of SKUs", "sku")
}

func (a *app) getPools(flags *getFlags) *cobra.Command {
	v := viewOf("No pools.", (*client.Client).Pools, (*berthv1.ListPoolsAnswer).GetPools, show.Pools)
	return a.kind(flags, v, "pools", "Show the pools", "pool")
}

func (a *app) getLeaders(flags *getFlags) *cobra.Command {
	v := viewOf("No services.", (*client.Client).Leaders, (*berthv1.ListLeadersAnswer).GetServices, show.Leaders)
	return a.kind(flags, v, "leaders", "Show who leads each service", "leader")
}

func (a *app) getFindings(flags *getFlags) *cobra.Command {
	v := viewOf("No findings.", (*client.Client).Findings, (*berthv1.ListFindingsAnswer).GetFindings, show.Findings)
	return a.kind(flags, v, "findings", "Show what an operator should know of, in all services", "finding")
}
