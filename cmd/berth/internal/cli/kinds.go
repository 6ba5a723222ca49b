package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// kind returns a command that lists all objects of a kind.
func (a *app) kind(flags *getFlags, v view, name, short string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: aliases, Short: short, Args: cobra.NoArgs,
		Example: "  berth get " + strings.Fields(name)[0] + "\n  berth get " + strings.Fields(name)[0] + " -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.show(cmd, flags, v) },
	}
}

// named returns a command that lists all objects of a kind, or shows those with the names in
// the arguments.
func (a *app) named(flags *getFlags, all view, byName func(names []string) view, list names, name, short string,
	aliases ...string) *cobra.Command {
	cmd := a.kind(flags, all, name, short, aliases...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = a.complete(list)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return a.show(cmd, flags, all)
		}
		return a.show(cmd, flags, byName(args))
	}
	return cmd
}

// waiting are the words for the states of a reservation that waits for executors. It is LEASING while
// a scheduling cycle tries it, and QUEUED before and after.
var waiting = map[string][]string{"QUEUED": {"QUEUED", "LEASING"}, "PENDING": {"QUEUED", "LEASING"}}

func (a *app) getReservations(flags *getFlags) *cobra.Command {
	request := &berthv1.ListReservationsRequest{PageSize: pageSize}
	var states []berthv1.Reservation_State
	list := func(c *client.Client, ctx context.Context,
		q *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
		in := states
		if len(in) > 1 && in[0] == berthv1.Reservation_QUEUED && in[1] == berthv1.Reservation_LEASING {
			if in = append(slices.Clone(in), in[0]); q.Group != "" && len(states) == 2 {
				in = nil // the whole queue of the group
			}
		}
		return inStates(in, func(s berthv1.Reservation_State) { q.State = s },
			func() (*berthv1.ListReservationsAnswer, error) { return whole(q, (*client.Client).ListPage)(c, ctx) },
			func(l *berthv1.ListReservationsAnswer) *[]*berthv1.Reservation { return &l.Reservations },
			func(r *berthv1.Reservation) string {
				return strings.Join([]string{r.Job, r.Stage, r.Name, r.Uid}, "\x00")
			})
	}
	get := func(c *client.Client, ctx context.Context) (*berthv1.ListReservationsAnswer, error) {
		return list(c, ctx, proto.CloneOf(request))
	}
	all := viewOf("No reservations.", get,
		(*berthv1.ListReservationsAnswer).GetReservations, show.Reservations).
		checked(func(ctx context.Context, c *client.Client) error {
			return checkKey(ctx, c, client.Key{Job: request.Job, Stage: request.Stage, Name: request.Reservation})
		})
	cmd := a.kind(flags, all, "reservations [JOB[/STAGE[/NAME]]]…", "List reservations, or show some", "reservation")
	cmd.Long = `List reservations, or show some. A command line with one JOB/STAGE/NAME shows one
reservation, which -o json prints as an object. Every other command line lists
reservations, which -o json prints as a list, however many there are.

STATE shows how the workers of a reservation ended, such as COMPLETED,FAILED.`
	cmd.Example = "  berth get reservations --state pending\n  berth get reservations --state active,held\n  berth get reservations train/gpu/main -o yaml\n" +
		"  berth get reservations train/gpu train/eval\n  berth get reservations --group e8c5f666f96605a3"
	cmd.ValidArgsFunction = a.completeTarget(1)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var keys []client.Key
		for _, text := range bare(args) {
			key, err := parseTarget(cmd, text, len(bare(args)) < len(args), 1)
			if err != nil {
				return err
			}
			keys = append(keys, key)
		}
		switch {
		case len(keys) > 0 && request.Group != "":
			return badUsage(cmd, "name reservations or --group, not both")
		case len(keys) == 1 && keys[0].Name != "" && !request.Versions:
			get := func(c *client.Client, ctx context.Context) (*berthv1.Reservation, error) { return c.Get(ctx, keys[0]) }
			return a.show(cmd, flags, viewOf("", get, one, show.Reservations))
		case len(keys) == 1:
			request.Job, request.Reservation = keys[0].Job, keys[0].Name
			request.Stage = cmp.Or(keys[0].Stage, request.Stage)
		case len(keys) > 1:
			get := func(c *client.Client, ctx context.Context) (*berthv1.ListReservationsAnswer, error) {
				return selected(ctx, c, request, keys, list)
			}
			return a.show(cmd, flags, viewOf(all.empty, get, (*berthv1.ListReservationsAnswer).GetReservations,
				show.Reservations))
		}
		return a.show(cmd, flags, all)
	}
	cmd.Flags().StringVar(&request.Job, "job", "", "only reservations of this job")
	cmd.Flags().StringVar(&request.Stage, "stage", "", "only reservations of this stage")
	cmd.Flags().StringVar(&request.Group, "group", "", "only the queue of this group, in its order")
	cmd.Flags().BoolVar(&request.Versions, "versions", false, "every stored version, with its workers; requires a job")
	statesFlag(cmd, "only reservations in these states; QUEUED and PENDING include LEASING", &states, waiting)
	return cmd
}

// selected returns the reservations that keys select. A key without a name selects those of
// a job or stage that match the request, and so does a key with a name in a list of versions.
func selected(ctx context.Context, c *client.Client, request *berthv1.ListReservationsRequest,
	keys []client.Key, list func(*client.Client, context.Context, *berthv1.ListReservationsRequest) (
		*berthv1.ListReservationsAnswer, error)) (*berthv1.ListReservationsAnswer, error) {
	all := &berthv1.ListReservationsAnswer{}
	for _, key := range keys {
		if key.Name != "" && !request.Versions {
			r, err := c.Get(ctx, key)
			if err != nil {
				return nil, err
			}
			all.Reservations = append(all.Reservations, r)
			continue
		}
		ofKey := proto.CloneOf(request)
		key.Stage = cmp.Or(key.Stage, request.Stage)
		ofKey.Job, ofKey.Stage, ofKey.Reservation = key.Job, key.Stage, key.Name
		list, err := list(c, ctx, ofKey)
		if err != nil {
			return nil, err
		}
		if len(list.GetReservations()) == 0 {
			if err := checkKey(ctx, c, key); err != nil {
				return nil, err
			}
		}
		all.Reservations = append(all.Reservations, list.GetReservations()...)
		all.Stages = append(all.Stages, list.GetStages()...)
	}
	return all, nil
}

func (a *app) getJobs(flags *getFlags) *cobra.Command {
	request := &berthv1.ListJobsRequest{PageSize: pageSize}
	all := viewOf("No jobs.", whole(request, (*client.Client).JobsPage), (*berthv1.ListJobsAnswer).GetJobs, show.Jobs)
	byName := func(names []string) view {
		get := func(c *client.Client, ctx context.Context, name string) (*berthv1.Job, error) {
			return getJob(ctx, c, name)
		}
		return several(names, get, func(list []*berthv1.Job) *berthv1.ListJobsAnswer {
			return &berthv1.ListJobsAnswer{Jobs: list}
		}, (*berthv1.ListJobsAnswer).GetJobs, show.Jobs)
	}
	cmd := a.named(flags, all, byName, jobNames, "jobs [JOB]…", "List jobs that have not ended, or show some", "job")
	cmd.Long = `List the jobs that have a reservation that has not ended, one row each. Each worker
that has not ended is in one column.

  QUEUED    reservations that wait for executors
  PENDING   workers that wait for executors
  RESERVED  workers that have executors and do not run yet
  RUNNING   workers that run
  STOPPING  workers that were cancelled or are being stopped
  ACTIVE    time since the last change of a reservation or worker

The option -o wide adds the number of all reservations that have not ended.`
	cmd.Example = "  berth get jobs\n  berth get jobs --prefix train -w\n  berth get jobs train -o json"
	cmd.Flags().StringVar(&request.Prefix, "prefix", "", "only jobs that this prefix of a name covers, such as a tenant's")
	return cmd
}

// getJob returns a job that has not ended. A prefix covers the job of the same name, which
// is first in the list.
func getJob(ctx context.Context, c *client.Client, name string) (*berthv1.Job, error) {
	page, err := c.JobsPage(ctx, &berthv1.ListJobsRequest{Prefix: name, PageSize: 1})
	if err != nil {
		return nil, err
	}
	if len(page.GetJobs()) == 0 || page.GetJobs()[0].GetName() != name {
		return nil, orUnknown(ctx, c, client.Key{Job: name},
			fault.New(fault.NotFound, fault.ReasonNotFound, "job %s has no reservation that has not ended", name))
	}
	return page.GetJobs()[0], nil
}

func (a *app) getPending(flags *getFlags) *cobra.Command {
	v := viewOf("Nothing is pending.", (*client.Client).Pending, (*berthv1.ListPendingAnswer).GetGroups, show.Pending)
	past := viewOf("No points yet.", (*client.Client).PendingHistory, (*berthv1.GetPendingHistoryAnswer).GetPoints,
		show.History)
	cmd := a.kind(flags, v, "pending", "List the queues, and why their heads are pending", "queues", "queue",
		"clusterqueues", "localqueues")
	cmd.Long = `List the queues, one row each: the pending reservations and workers, how long the
head of the queue has waited, and why. While the registry is not ready, the command
fails with exit code 4, because the registry knows only a part of the queues.

With --history, list the number of queues, reservations and workers that were pending in
the last hour, every 15 seconds. The leader of the registry has this history in memory.`
	cmd.Example = "  berth get pending\n  berth get pending --history"
	var history bool
	cmd.Flags().BoolVar(&history, "history", false, "list what was pending in the last hour")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if history {
			return a.show(cmd, flags, past)
		}
		return a.show(cmd, flags, v)
	}
	return cmd
}

func (a *app) getAssignments(flags *getFlags) *cobra.Command {
	request := &berthv1.ListAssignmentsRequest{PageSize: pageSize}
	var states []berthv1.Assignment_State
	get := func(c *client.Client, ctx context.Context) (*berthv1.ListAssignmentsAnswer, error) {
		q := proto.CloneOf(request)
		return inStates(states, func(s berthv1.Assignment_State) { q.State = s },
			func() (*berthv1.ListAssignmentsAnswer, error) {
				return whole(q, (*client.Client).AssignmentsPage)(c, ctx)
			},
			func(l *berthv1.ListAssignmentsAnswer) *[]*berthv1.Assignment { return &l.Assignments },
			func(w *berthv1.Assignment) string {
				return fmt.Sprintf("%s\x00%s\x00%010d.%010d\x00%s", w.Job, w.Stage, w.Index, w.Number, w.Uid)
			})
	}
	v := viewOf("No assignments.", get,
		(*berthv1.ListAssignmentsAnswer).GetAssignments, show.Assignments).
		checked(func(ctx context.Context, c *client.Client) error {
			key := client.Key{Job: request.Job, Stage: request.Stage, Name: request.Reservation}
			return cmp.Or(checkKey(ctx, c, key), checkExecutor(ctx, c, request.Executor))
		})
	cmd := a.kind(flags, v, "assignments [JOB[/STAGE[/NAME]]]", "List workers and their executors", "assignment",
		"workers", "worker", "pods", "pod", "po", "allocations", "allocs", "alloc", "tasks", "task")
	cmd.Example = "  berth get assignments train/gpu -w\n  berth get assignments --executor ex-1"
	cmd.ValidArgsFunction = a.completeTarget(1)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return oneTarget(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if cmd.Flags().Changed("job") || cmd.Flags().Changed("stage") || cmd.Flags().Changed("reservation") {
				return badUsage(cmd, "name a job, stage or reservation as an argument or with options, not both")
			}
			key, err := target(cmd, args, 1)
			if err != nil {
				return err
			}
			request.Job, request.Stage, request.Reservation = key.Job, key.Stage, key.Name
		}
		return a.show(cmd, flags, v)
	}
	cmd.Flags().StringVar(&request.Job, "job", "", "only workers of this job")
	cmd.Flags().StringVar(&request.Stage, "stage", "", "only workers of this stage of the job")
	cmd.Flags().StringVar(&request.Reservation, "reservation", "", "only workers of the reservation with this name in the stage")
	cmd.Flags().StringVar(&request.Executor, "executor", "", "only workers on this executor")
	statesFlag(cmd, "only workers in these states", &states, nil)
	return cmd
}

func (a *app) getMembers(flags *getFlags) *cobra.Command {
	cmd := a.kind(flags, view{}, "members JOB[/STAGE[/NAME]]", "List the members of a gang", "member")
	cmd.Long = `List the members of a gang, the workers of a reservation that are placed on an executor,
one row each. HOST is the name or address at which a member reaches another one. Workers
that run get the same list in the file that BERTH_GANG_FILE names.

With -w, the command prints the list again when a member is replaced.`
	cmd.Example = "  berth get members train/gpu\n  berth get members train/gpu/main -w\n  berth get members train/gpu -o json"
	cmd.Args, cmd.ValidArgsFunction = oneTarget, a.completeTarget(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := target(cmd, args, 1)
		if err != nil {
			return err
		}
		if key.Stage == "" {
			find := func(_ context.Context, _ *client.Client, only client.Key) error { key = only; return nil }
			err := a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				return a.onOnly(ctx, c, cmd, key, find)
			})
			if err != nil {
				return err
			}
		}
		request := &berthv1.ListMembersRequest{Job: key.Job, Stage: key.Stage, Name: key.Name}
		get := func(c *client.Client, ctx context.Context) (*berthv1.ListMembersAnswer, error) {
			list, err := c.Members(ctx, request)
			if flags.watch { // the next call waits for a change
				request.Cursor = list.GetCursor()
			}
			return list, err
		}
		return a.show(cmd, flags, viewOf("No members.", get, same, show.Members(key.Job, key.Stage)).
			checked(func(ctx context.Context, c *client.Client) error { return checkKey(ctx, c, key) }))
	}
	return cmd
}

func (a *app) getExecutors(flags *getFlags) *cobra.Command {
	request := &berthv1.ListExecutorsRequest{PageSize: pageSize}
	var states []berthv1.Executor_State
	get := func(c *client.Client, ctx context.Context) (*berthv1.ListExecutorsAnswer, error) {
		q := proto.CloneOf(request)
		return inStates(states, func(s berthv1.Executor_State) { q.State = s },
			func() (*berthv1.ListExecutorsAnswer, error) { return whole(q, (*client.Client).ExecutorsPage)(c, ctx) },
			func(l *berthv1.ListExecutorsAnswer) *[]*berthv1.Executor { return &l.Executors }, (*berthv1.Executor).GetId)
	}
	all := viewOf("No executors.", get,
		(*berthv1.ListExecutorsAnswer).GetExecutors, show.Executors).
		checked(func(ctx context.Context, c *client.Client) error {
			return cmp.Or(checkSKU(ctx, c, request.Sku), checkPool(ctx, c, request.Pool))
		})
	byName := func(names []string) view {
		return several(names, (*client.Client).Executor, func(list []*berthv1.Executor) *berthv1.ListExecutorsAnswer {
			return &berthv1.ListExecutorsAnswer{Executors: list}
		}, (*berthv1.ListExecutorsAnswer).GetExecutors, show.Executors)
	}
	cmd := a.named(flags, all, byName, executorNames, "executors [ID]…", "List executors, or show some", "executor",
		"nodes", "node", "no", "hosts", "host", "agents", "agent")
	cmd.Example = "  berth get executors --sku gpu-8 --state ready\n  berth get executors --attributes zone=a\n  berth get executors ex-1 ex-2 -o yaml"
	cmd.Flags().StringVar(&request.Sku, "sku", "", "only executors of this SKU")
	cmd.Flags().StringVar(&request.Pool, "pool", "", "only executors of this pool")
	cmd.Flags().StringToStringVar(&request.Attributes, "attributes", nil, attributesHelp)
	statesFlag(cmd, "only executors in these states", &states, nil)
	return cmd
}

func (a *app) getUsage(flags *getFlags) *cobra.Command {
	var sku string
	get := func(c *client.Client, ctx context.Context) (*berthv1.GetUsageAnswer, error) { return c.Usage(ctx, sku) }
	check := func(ctx context.Context, c *client.Client) error { return checkSKU(ctx, c, sku) }
	cmd := a.kind(flags, viewOf("No SKUs, and no demand.", get, same, show.Usage).checked(check),
		"usage", "Show used and requested executors of each SKU")
	cmd.Long = `Show how many executors of each SKU exist, and how many more the pending workers
need (PENDING). WANTED is the size that the scale rule of the SKU recommends. A line
below the SKU explains it if a bound, the cooldown or a hold decides; -o wide always
explains it. While the registry is not ready, the command fails with exit code 4,
because the registry knows only a part of the pending workers.`
	cmd.Flags().StringVar(&sku, "sku", "", "only this SKU")
	return cmd
}

func (a *app) getTenants(flags *getFlags) *cobra.Command {
	v := viewOf("No tenants.", (*client.Client).Tenants, (*berthv1.ListTenantsAnswer).GetTenants, show.Tenants)
	cmd := a.kind(flags, v, "tenants", "List tenants with their limits and use", "tenant")
	cmd.Long = `List the tenants, one row each. A tenant is a set of jobs with limits in common: the
job that has the name in PREFIX, and every job whose name continues it after '-', '.'
or '_'. The access file of the cluster defines the tenants.

QUEUED, WORKERS, STORED and STREAMS show the use and the limit, for example 12/500.
The other columns show a limit. A dash means that there is no limit.

  QUEUED    queued reservations
  WORKERS   workers that have not ended, of all reservations
  STORED    bytes of the records of reservations, including ended ones while they are kept
  STREAMS   open event streams at the gateway that answers (limited at each gateway)
  BATCH     maximum number of workers of one reservation
  RATE      maximum number of requests per second at each gateway
  PRIORITY  highest priority class

The option -o wide adds the SKUs and pools that a reservation of the tenant may name.
A request beyond a limit fails with the reason TENANT_LIMIT and exit code 1.`
	return cmd
}

func (a *app) getSKUs(flags *getFlags) *cobra.Command {
	all := viewOf("No SKUs.", (*client.Client).SKUs, (*berthv1.ListSkusAnswer).GetSkus, show.SKUs)
	byName := func(names []string) view {
		return several(names, (*client.Client).SKU, func(list []*berthv1.Sku) *berthv1.ListSkusAnswer {
			return &berthv1.ListSkusAnswer{Skus: list}
		}, (*berthv1.ListSkusAnswer).GetSkus, show.SKUs)
	}
	return a.named(flags, all, byName, skuNames, "skus [NAME]…", "List SKUs, or show some", "sku")
}

func (a *app) getPools(flags *getFlags) *cobra.Command {
	all := viewOf("No pools.", (*client.Client).Pools, (*berthv1.ListPoolsAnswer).GetPools, show.Pools)
	byName := func(names []string) view {
		return several(names, (*client.Client).Pool, func(list []*berthv1.Pool) *berthv1.ListPoolsAnswer {
			return &berthv1.ListPoolsAnswer{Pools: list}
		}, (*berthv1.ListPoolsAnswer).GetPools, show.Pools)
	}
	return a.named(flags, all, byName, poolNames, "pools [NAME]…", "List pools, or show some", "pool", "partitions",
		"partition", "nodepools")
}

func (a *app) getAudit(flags *getFlags) *cobra.Command {
	// The largest page has all entries. Another page could come from another gateway.
	request := &berthv1.ListAuditEntriesRequest{PageSize: pageSize}
	get := func(c *client.Client, ctx context.Context) (*berthv1.ListAuditEntriesAnswer, error) {
		return c.AuditEntriesPage(ctx, request)
	}
	v := viewOf("No entries.", get, (*berthv1.ListAuditEntriesAnswer).GetEntries, show.AuditEntries)
	cmd := a.kind(flags, v, "audit", "List the newest entries of the audit log of a gateway")
	cmd.Long = `List the calls that changed something, the rejected calls and the rejected connections,
the newest first. A gateway has only the entries of its own listeners, at most 1,000
and those since its start. With several gateways, choose one with --gateway. The file
of --audit-log has older entries. Only operators may list them.`
	return cmd
}

// The views of the kinds that have no filters and no names.
var (
	leaders  = viewOf("No services.", (*client.Client).Leaders, (*berthv1.ListLeadersAnswer).GetServices, show.Leaders)
	findings = viewOf("No findings.", (*client.Client).Findings, (*berthv1.ListFindingsAnswer).GetFindings, show.Findings)
)
