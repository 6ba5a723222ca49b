package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/wire"
)

// allRunning is the condition of wait that is no state of a reservation.
const allRunning = "RUNNING"

func (a *app) wait() *cobra.Command {
	condition := berthv1.Reservation_ACTIVE.String()
	var deadline time.Duration
	var output string
	cmd := a.onReservation(&cobra.Command{
		Use:   "wait",
		Short: "Wait until a reservation is in a state, or its workers run",
		Long: `Wait until the newest version of a reservation meets a condition:

  ACTIVE     every worker has an executor, and Berth starts it (the default)
  RUNNING    every worker runs
  COMPLETED  every worker has ended

The other conditions are the other states of a reservation. If Berth queues workers
again, RUNNING and COMPLETED count the new workers instead.

The command fails with exit code 1 if the reservation ends in another state, or if the
deadline passes. With --for completed, it also fails if a worker has not ended with exit
code 0. 'berth events JOB/STAGE' shows how each worker ended.`,
		Example: "  berth wait train/gpu\n  berth wait train/gpu --for running --deadline 5m\n" +
			"  berth wait train/gpu --for completed --deadline 2h",
	}, &output, func(ctx context.Context, c *client.Client, key client.Key) error {
		if err := a.reach(ctx, c, key.Job); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		r, err := waitUntil(waiting, c, key, condition)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			if r == nil { // the deadline was too short for the first answer
				limited, cancel := a.limited(ctx)
				defer cancel()
				if r, err = c.Get(limited, key); err != nil {
					return err
				}
			}
			return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s is still %s after %v%s", key,
				r.GetState(), deadline, runningNote(r, condition))
		}
		if err != nil {
			return err
		}
		if err := a.object(output, r, named(client.KeyOf(r))+" "+condition, named(client.KeyOf(r))); err != nil {
			return err
		}
		if condition != berthv1.Reservation_COMPLETED.String() {
			return nil
		}
		limited, cancel := a.limited(ctx)
		defer cancel()
		return incomplete(limited, c, r)
	})
	names := append(wire.EnumNames(berthv1.Reservation_ACTIVE.Descriptor()), allRunning)
	cmd.Flags().Var(&choice{condition, names, func(value string) { condition = value }}, "for", "condition to wait for")
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "maximum time to wait")
	return cmd
}

// waitUntil waits until a reservation meets a condition of wait.
func waitUntil(ctx context.Context, c *client.Client, key client.Key, condition string) (*berthv1.Reservation, error) {
	if condition != allRunning {
		return c.WaitFor(ctx, key, berthv1.Reservation_State(berthv1.Reservation_State_value[condition]))
	}
	var failed error
	r, err := c.WaitUntil(ctx, key, func(r *berthv1.Reservation) bool {
		counts := r.GetWorkerCounts()
		if r.GetState() != berthv1.Reservation_ACTIVE || counts["ASSIGNED"]+counts["STARTING"] > 0 {
			return false // without a call for the other versions
		}
		var total tally
		total, failed = readTally(ctx, c, r)
		return failed != nil || total.running == total.workers
	})
	return r, cmp.Or(failed, err)
}

// runningNote says how many workers run, if that is the condition.
func runningNote(r *berthv1.Reservation, condition string) string {
	if condition != allRunning {
		return ""
	}
	return fmt.Sprintf("; %d of %d running", r.GetWorkerCounts()["RUNNING"], r.GetCount())
}

// incomplete returns an error if workers of a completed reservation did not end with exit
// code 0.
func incomplete(ctx context.Context, c *client.Client, r *berthv1.Reservation) error {
	total, err := readTally(ctx, c, r)
	if err != nil || total.completed == total.workers {
		return err
	}
	text := fmt.Sprintf("%s is COMPLETED, but not every worker ended with exit code 0 (%d of %d did not)", client.KeyOf(r),
		total.workers-total.completed, total.workers)
	if r.GetMessage() != "" {
		text += ": " + r.GetMessage()
	}
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s", text)
}

// tally counts the workers of a reservation. A worker that is queued again counts once, in
// its newest version.
type tally struct{ workers, running, completed int32 }

// readTally counts the workers of a reservation in all its stored versions.
func readTally(ctx context.Context, c *client.Client, r *berthv1.Reservation) (tally, error) {
	list, err := whole(&berthv1.ListReservationsRequest{Job: r.GetJob(), Stage: r.GetStage(), Versions: true,
		PageSize: pageSize}, (*client.Client).ListPage)(c, ctx)
	if err != nil {
		return tally{}, err
	}
	return tallyOf(r, list.GetReservations()), nil
}

// tallyOf counts the workers of the versions that have an ancestor in common with r. A
// version of a later round than its parent replaces workers of its parent. Any other child
// is a part, whose workers its parent no longer has.
func tallyOf(r *berthv1.Reservation, versions []*berthv1.Reservation) (total tally) {
	known := map[string]*berthv1.Reservation{r.GetUid(): r}
	for _, v := range versions {
		known[v.GetUid()] = v
	}
	ancestor := func(uid string) string {
		for range known { // ends, even if a wrong answer has a cycle
			parent := known[known[uid].GetParent()]
			if parent == nil {
				break
			}
			uid = parent.GetUid()
		}
		return uid
	}
	origin := ancestor(r.GetUid())
	for uid, v := range known {
		if ancestor(uid) != origin {
			continue
		}
		if parent := known[v.GetParent()]; parent == nil || v.GetRound() == parent.GetRound() {
			total.workers += v.GetCount()
		}
		total.running += v.GetWorkerCounts()["RUNNING"]
		total.completed += v.GetWorkerCounts()["COMPLETED"]
	}
	return total
}
