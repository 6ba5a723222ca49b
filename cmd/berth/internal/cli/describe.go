package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// lastEvents is the number of events that describe shows.
const lastEvents = 10

func (a *app) describe() *cobra.Command {
	var output string
	cmd := a.onReservation(&cobra.Command{
		Use:   "describe",
		Short: "Show details of a reservation, job, executor, SKU or pool",
		Long: `Show the request, the workers and the last events of a reservation, or with a job
the workers, reservations and last events of the job. With 'berth describe KIND NAME',
show the details of a job, executor, SKU or pool.`,
		Example: "  berth describe train/gpu\n  berth describe train\n  berth describe reservation train/gpu/main -o json\n  berth describe job train",
	}, &output, func(ctx context.Context, c *client.Client, key client.Key) error {
		ctx, cancel := a.limited(ctx)
		defer cancel()
		return a.describeOne(ctx, c, key, output)
	})
	one := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := target(cmd, args, 1)
		switch {
		case err != nil:
			return err
		case key.Stage != "" || len(bare(args)) < len(args):
			return one(cmd, args)
		}
		return a.call(cmd, func(ctx context.Context, c *client.Client) error {
			err := a.describeJob(ctx, c, key.Job, output)
			if !fault.Is(err, fault.ReasonNotFound) {
				return err
			}
			if _, none := c.Executor(ctx, key.Job); none == nil {
				return hinted{err, "did you mean 'berth describe executor " + key.Job + "'?"}
			}
			return err
		})
	}
	cmd.AddCommand(
		a.describeKind("job NAME", "train", "Show the workers, reservations and last events of a job", jobNames, &output,
			a.describeJob),
		a.describeKind("executor ID", "ex-1", "Show the state, resources and workers of an executor", executorNames, &output,
			a.describeExecutor),
		a.describeKind("sku NAME", "gpu-8", "Show the resources, the scale rule and the usage of a SKU", skuNames, &output,
			a.describeSKU),
		a.describeKind("pool NAME", "night", "Show a pool, and count its executors by state", poolNames, &output,
			a.describePool),
	)
	return cmd
}

// describeKind returns the command that describes an object of a kind.
func (a *app) describeKind(use, example, short string, list names, output *string,
	run func(ctx context.Context, c *client.Client, name, output string) error) *cobra.Command {
	kind, _, _ := strings.Cut(use, " ")
	aliases := []string{kind + "s"}
	if kind == "executor" {
		aliases = append(aliases, "node", "nodes", "host", "hosts", "agent")
	}
	return &cobra.Command{
		Use: use, Aliases: aliases, Short: short, Args: cobra.ExactArgs(1),
		Example:           "  berth describe " + kind + " " + example,
		ValidArgsFunction: single(a.complete(list)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error { return run(ctx, c, args[0], *output) })
		},
	}
}

func (a *app) describeExecutor(ctx context.Context, c *client.Client, id, output string) error {
	e, err := c.Executor(ctx, id)
	if err != nil {
		return err
	}
	list, err := whole(&berthv1.ListAssignmentsRequest{Executor: id, PageSize: pageSize},
		(*client.Client).AssignmentsPage)(c, ctx)
	if err != nil {
		return err
	}
	volumes := &berthv1.ListVolumesAnswer{}
	if e.GetVolumes() > 0 {
		volumes, err = whole(&berthv1.ListVolumesRequest{Executor: id, PageSize: pageSize},
			(*client.Client).VolumesPage)(c, ctx)
		if err != nil {
			return err
		}
	}
	return a.write(output, show.Executor(e, list.GetAssignments(), volumes.GetVolumes(), a.Now()), e.GetId()+"\n",
		show.Field("executor", e), show.List("assignments", list.GetAssignments()),
		show.List("volumes", volumes.GetVolumes()))
}

// describeJob describes a job, which may have ended.
func (a *app) describeJob(ctx context.Context, c *client.Client, name, output string) error {
	list, err := whole(&berthv1.ListReservationsRequest{Job: name, PageSize: pageSize}, (*client.Client).ListPage)(c, ctx)
	if err != nil {
		return err
	}
	j, err := getJob(ctx, c, name)
	if fault.Is(err, fault.ReasonNotFound) && len(list.GetReservations()) > 0 {
		j, err = &berthv1.Job{Name: name}, nil // all its reservations have ended
	}
	if err != nil {
		return err
	}
	events, err := a.latest(ctx, c, client.Key{Job: name})
	if err != nil {
		return err
	}
	return a.write(output, show.Job(j, list.GetReservations(), events, a.Now()), name+"\n",
		show.Field("job", j), show.List("reservations", list.GetReservations()), show.List("events", events))
}

// describeSKU describes a SKU. While the registry is not ready, its usage is not known.
func (a *app) describeSKU(ctx context.Context, c *client.Client, name, output string) error {
	sku, err := c.SKU(ctx, name)
	if err != nil {
		return err
	}
	usage, err := c.Usage(ctx, name)
	missing := ""
	if fault.Is(err, fault.ReasonRegistryNotReady) {
		usage, missing, err = &berthv1.GetUsageAnswer{}, sentence(err), nil
	}
	if err != nil {
		return err
	}
	return a.write(output, show.SKU(sku, usage, missing, a.Now()), name+"\n",
		show.Field("sku", sku), show.Field("usage", usage))
}

func (a *app) describePool(ctx context.Context, c *client.Client, name, output string) error {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return err
	}
	list, err := whole(&berthv1.ListExecutorsRequest{Pool: name, PageSize: pageSize},
		(*client.Client).ExecutorsPage)(c, ctx)
	if err != nil {
		return err
	}
	return a.write(output, show.Pool(pool, list.GetExecutors(), a.Now()), name+"\n",
		show.Field("pool", pool), show.List("executors", list.GetExecutors()))
}

// latest returns the last stored events of the reservations that a key selects.
func (a *app) latest(ctx context.Context, c *client.Client, key client.Key) ([]*berthv1.Event, error) {
	var events []*berthv1.Event
	for event, err := range only(key, a.stored(ctx, c, key.Job, "")) {
		if err != nil {
			return nil, err
		}
		if events = append(events, event); len(events) > lastEvents {
			events = events[1:]
		}
	}
	return events, nil
}

func (a *app) describeOne(ctx context.Context, c *client.Client, key client.Key, output string) error {
	r, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	var assignments []*berthv1.Assignment
	of := &berthv1.ListAssignmentsRequest{Job: r.GetJob(), Stage: r.GetStage(), Reservation: r.GetName(),
		PageSize: pageSize}
	for item, err := range c.Assignments(ctx, of) {
		if err != nil {
			return err
		}
		assignments = append(assignments, item)
	}
	events, err := a.latest(ctx, c, client.KeyOf(r))
	if err != nil {
		return err
	}
	return a.write(output, show.Describe(r, assignments, events, a.Now()), named(client.KeyOf(r))+"\n",
		show.Field("reservation", r), show.List("assignments", assignments), show.List("events", events))
}
