package cli

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/store"
)

// volumeIDs completes the IDs of volumes.
var volumeIDs names = func(ctx context.Context, c *client.Client, _ string) iter.Seq[string] {
	return each(c.Volumes(ctx, &berthv1.ListVolumesRequest{PageSize: pageSize}), (*berthv1.Volume).GetId)
}

func (a *app) getVolumes(flags *getFlags) *cobra.Command {
	request := &berthv1.ListVolumesRequest{PageSize: pageSize}
	var states []berthv1.Volume_State
	get := func(c *client.Client, ctx context.Context) (*berthv1.ListVolumesAnswer, error) {
		q := proto.CloneOf(request)
		return inStates(states, func(s berthv1.Volume_State) { q.State = s },
			func() (*berthv1.ListVolumesAnswer, error) { return whole(q, (*client.Client).VolumesPage)(c, ctx) },
			func(l *berthv1.ListVolumesAnswer) *[]*berthv1.Volume { return &l.Volumes }, (*berthv1.Volume).GetId)
	}
	all := viewOf("No volumes.", get, (*berthv1.ListVolumesAnswer).GetVolumes,
		show.Volumes).checked(func(ctx context.Context, c *client.Client) error {
		return cmp.Or(checkKey(ctx, c, client.Key{Job: request.Job, Stage: request.Stage}),
			checkExecutor(ctx, c, request.Executor))
	})
	cmd := a.kind(flags, all, "volumes [JOB[/STAGE]]", "List volumes and their executors", "volume")
	cmd.Long = `List the volumes, one row each. A volume is a share of an executor that belongs to a
worker index and outlives its workers. MESSAGE says what the volume waits for.

The option -o wide adds the role, what the volume holds of its executor, the number of
the worker on it, whether a reservation wants the index, and the time at which Berth
deletes the volume.`
	cmd.Example = "  berth get volumes db/data -w\n  berth get volumes --executor ex-1 -o wide"
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), a.completeTarget(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			key, err := stageTarget(cmd, args)
			if err != nil {
				return err
			}
			request.Job, request.Stage = key.Job, key.Stage
		}
		return a.show(cmd, flags, all)
	}
	cmd.Flags().StringVar(&request.Executor, "executor", "", "only volumes on this executor")
	statesFlag(cmd, "only volumes in these states", &states, nil)
	return cmd
}

// stageTarget parses JOB[/STAGE].
func stageTarget(cmd *cobra.Command, args []string) (client.Key, error) {
	key, err := target(cmd, args, 1)
	if err == nil && key.Name != "" {
		err = badUsage(cmd, "%q is not JOB[/STAGE]; usage: %s", bare(args)[0], usageOf(cmd))
	}
	return key, err
}

func (a *app) volumes() *cobra.Command {
	cmd := a.calls(&cobra.Command{
		Use:   "volumes",
		Short: "Delete or abandon volumes",
		Long: `Delete volumes with their data, or abandon volumes whose executors or disks are lost.
'berth get volumes' lists volumes.`,
		Example: "  berth volumes delete db/data --yes --wait 30s\n  berth volumes abandon 6b1f0c2d9e47 --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return badUsage(cmd, "missing subcommand: must be one of abandon, delete")
		},
	})
	cmd.AddCommand(a.deleteVolumes(), a.abandonVolumes())
	return cmd
}

// deletion has the flags of 'berth volumes delete'.
type deletion struct {
	indexes  []int32
	executor string
	wait     time.Duration
	yes      bool
	output   string
}

func (a *app) deleteVolumes() *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:   "delete JOB[/STAGE] | --executor EXECUTOR ID…",
		Short: "Delete volumes of a job or stage with their data",
		Long: `Delete the volumes of a job or of a stage with their data, or those of some worker
indexes of a stage. Berth destroys a volume once no worker is on it and its executor is
present. With --wait, the command returns when the volumes no longer exist. It lists
the volumes that are left when the time is over, and fails with exit code 1.

With --executor, delete volumes by their IDs, also volumes that the executor has and
Berth does not know (finding VOLUME_UNKNOWN).

The data cannot be restored. Without --yes the command only lists the volumes.`,
		Example: "  berth volumes delete db/data --index 2 --yes --wait 30s\n" +
			"  berth volumes delete --executor ex-1 6b1f0c2d9e47 --yes",
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if d.executor != "" {
				return a.complete(volumeIDs)(cmd, args, prefix)
			}
			return a.completeTarget(1)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.executor != "" {
				return a.deleteOnExecutor(cmd, args, d)
			}
			if err := oneTarget(cmd, args); err != nil {
				return badUsage(cmd, "accepts one JOB[/STAGE]; IDs of volumes require --executor")
			}
			key, err := stageTarget(cmd, args)
			switch {
			case err != nil:
				return err
			case len(d.indexes) > 0 && key.Stage == "":
				return badUsage(cmd, "--index requires JOB/STAGE: worker indexes belong to a stage")
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error { return a.deleteOf(ctx, c, key, d) })
		},
	}
	flags := cmd.Flags()
	outputFlag(flags, &d.output, listFormats...)
	flags.Int32SliceVar(&d.indexes, "index", nil, "delete only the volumes of these worker indexes")
	flags.StringVar(&d.executor, "executor", "", "delete volumes on this executor by their IDs")
	flags.DurationVar(&d.wait, "wait", 0, "maximum time to wait until the volumes no longer exist (0s does not wait)")
	flags.BoolVar(&d.yes, "yes", false, "delete the volumes with their data")
	return cmd
}

// deleteOnExecutor deletes volumes by their IDs. Volumes that Berth does not know are in no
// list, so the command can neither show them nor wait for them.
func (a *app) deleteOnExecutor(cmd *cobra.Command, ids []string, d deletion) error {
	switch {
	case len(d.indexes) > 0 || d.wait > 0:
		return badUsage(cmd, "--index and --wait require JOB[/STAGE] instead of --executor")
	case !d.yes:
		return fault.New(fault.Precondition, "", "nothing was deleted: the data of %s on %s would be destroyed; "+
			"repeat the command with --yes", strings.Join(ids, ", "), d.executor)
	}
	return a.call(cmd, func(ctx context.Context, c *client.Client) error {
		count, err := deleteIDs(ctx, c, &berthv1.DeleteVolumesRequest{Ids: ids, Executor: d.executor})
		if err != nil {
			return err
		}
		if count == 0 {
			if err := checkExecutor(ctx, c, d.executor); err != nil {
				return err
			}
		}
		return a.object(d.output, &berthv1.DeleteVolumesAnswer{Count: int32(count)},
			show.Counted(d.executor, "deleting", count, "volume", "has none of the volumes"), d.executor)
	})
}

// deleteOf deletes the volumes of a job or stage.
func (a *app) deleteOf(ctx context.Context, c *client.Client, key client.Key, d deletion) error {
	limited, cancel := a.limited(ctx)
	defer cancel()
	list, err := volumesOf(limited, c, key, func(v *berthv1.Volume) bool {
		return len(d.indexes) == 0 || slices.Contains(d.indexes, v.GetIndex())
	})
	if err != nil {
		return err
	}
	if len(list) > 0 && !d.yes {
		return cmp.Or(a.listVolumes(d.output, list), error(fault.New(fault.Precondition, "",
			"nothing was deleted: the data of these volumes would be destroyed; repeat the command with --yes")))
	}
	if len(list) == 0 {
		if err := checkKey(limited, c, key); err != nil {
			return err
		}
	}
	var ids []string
	for _, v := range list {
		ids = append(ids, v.GetId())
	}
	if _, err = deleteIDs(limited, c, &berthv1.DeleteVolumesRequest{Ids: ids, Job: key.Job}); err != nil {
		return err
	}
	err = a.object(d.output, &berthv1.DeleteVolumesAnswer{Count: int32(len(ids))},
		show.Counted(named(key), "deleting", len(ids), "volume", "has no volumes"), named(key))
	if err != nil || d.wait == 0 || len(ids) == 0 {
		return err
	}
	return a.untilDeleted(ctx, c, key, ids, d)
}

// untilDeleted polls until volumes no longer exist. After the time to wait it lists those
// that are left.
func (a *app) untilDeleted(ctx context.Context, c *client.Client, key client.Key, ids []string, d deletion) error {
	waiting, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	for {
		limited, cancel := a.limited(ctx)
		left, err := volumesOf(limited, c, key, func(v *berthv1.Volume) bool { return slices.Contains(ids, v.GetId()) })
		cancel()
		if err != nil || len(left) == 0 {
			return err
		}
		if store.Sleep(waiting, a.every) != nil {
			return cmp.Or(ctx.Err(), a.listVolumes(d.output, left),
				error(fault.New(fault.Precondition, "", "not deleted yet, volumes left: %d", len(left))))
		}
	}
}

// volumesOf returns the volumes of a job or stage that a function selects.
func volumesOf(ctx context.Context, c *client.Client, key client.Key,
	selects func(v *berthv1.Volume) bool) (list []*berthv1.Volume, err error) {
	request := &berthv1.ListVolumesRequest{Job: key.Job, Stage: key.Stage, PageSize: pageSize}
	for v, err := range c.Volumes(ctx, request) {
		switch {
		case err != nil:
			return nil, err
		case selects(v):
			list = append(list, v)
		}
	}
	return list, nil
}

// listVolumes prints volumes like 'berth get volumes'.
func (a *app) listVolumes(output string, list []*berthv1.Volume) error {
	table := show.Volumes(list, a.Now(), output == "wide")
	return a.write(output, table.Styled(show.Style{Color: a.colored()}), table.Names(),
		show.Part{Value: &berthv1.ListVolumesAnswer{Volumes: list}})
}

// deleteIDs deletes the volumes of a request, which may have any number of IDs, and returns
// how many of them are known.
func deleteIDs(ctx context.Context, c *client.Client, request *berthv1.DeleteVolumesRequest) (total int, err error) {
	for page := range slices.Chunk(request.GetIds(), pageSize) {
		count, err := c.DeleteVolumes(ctx, &berthv1.DeleteVolumesRequest{Ids: page, Executor: request.GetExecutor(),
			Job: request.GetJob()})
		if err != nil {
			return total, err
		}
		total += count
	}
	return total, nil
}

func (a *app) abandonVolumes() *cobra.Command {
	var yes bool
	var output string
	cmd := &cobra.Command{
		Use:   "abandon ID…",
		Short: "Declare the executors or disks of volumes lost for good",
		Long: `Declare that the executors or disks of volumes are lost for good. The worker indexes of
these volumes start elsewhere, with new and empty volumes. If the data of a volume comes
back, the volume stays until it is deleted, and no worker uses it. The command fails
while a worker is on one of the volumes. A volume that is DESTROYING can be abandoned
once its executor is LOST.

Without --yes the command only lists the volumes.`,
		Example:           "  berth volumes abandon 6b1f0c2d9e47\n  berth volumes abandon 6b1f0c2d9e47 --yes",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete(volumeIDs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if !yes {
					return a.refuseToAbandon(ctx, c, output, ids)
				}
				total := 0
				for page := range slices.Chunk(ids, pageSize) {
					count, err := c.AbandonVolumes(ctx, page...)
					if err != nil {
						return err
					}
					total += count
				}
				if total == 0 {
					return unknownVolumes(ids)
				}
				return a.object(output, &berthv1.AbandonVolumesAnswer{Count: int32(total)},
					show.Counted(strings.Join(ids, ", "), "abandoned", total, "volume", "unknown"), strings.Join(ids, "\n"))
			})
		},
	}
	outputFlag(cmd.Flags(), &output, listFormats...)
	cmd.Flags().BoolVar(&yes, "yes", false, "declare that the volumes are lost, and abandon them")
	return cmd
}

// unknownVolumes returns the error about IDs that no volume has.
func unknownVolumes(ids []string) error {
	return fault.New(fault.NotFound, fault.ReasonNotFound, "there is no volume %s: 'berth get volumes' lists volumes",
		strings.Join(ids, ", "))
}

// refuseToAbandon lists the volumes that would be abandoned.
func (a *app) refuseToAbandon(ctx context.Context, c *client.Client, output string, ids []string) error {
	list, err := volumesOf(ctx, c, client.Key{}, func(v *berthv1.Volume) bool { return slices.Contains(ids, v.GetId()) })
	if err == nil && len(list) == 0 {
		return unknownVolumes(ids)
	}
	if err == nil {
		err = a.listVolumes(output, list)
	}
	return cmp.Or(err, error(fault.New(fault.Precondition, "",
		"nothing was abandoned: the worker indexes of these volumes would start without their data, volumes: %d; "+
			"if the data is lost for good, repeat the command with --yes", len(list))))
}
