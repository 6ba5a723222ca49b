package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
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
		Long: `Wait until a reservation meets a condition:

  ACTIVE     every worker has an executor, and Berth starts it (the default)
  RUNNING    every worker runs
  COMPLETED  every worker has ended

The other conditions are the other states of a reservation. If Berth queues workers
again, RUNNING and COMPLETED count the new workers instead: of each worker index the
newest.

If the latest request was for fewer workers, RUNNING counts only these.

The command fails with exit code 1 if the reservation ends in another state or cannot meet
the condition any more, or if the deadline passes. With --for running, that is the case as
soon as a worker has ended and Berth does not queue it again. With --for completed, the
command also fails if a requested worker has not ended with exit code 0.
'berth events JOB/STAGE' shows how each worker ended.`,
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
			return withLastRound(r, err)
		}
		if err := a.object(output, r, named(client.KeyOf(r))+" "+reached(r, condition), named(client.KeyOf(r))); err != nil {
			return err
		}
		if condition != berthv1.Reservation_COMPLETED.String() {
			return nil
		}
		return incomplete(r)
	})
	names := append(wire.EnumNames(berthv1.Reservation_ACTIVE.Descriptor()), allRunning)
	cmd.Flags().Var(&choice{condition, names, func(value string) { condition = value }}, "for", "condition to wait for")
	cmd.Flags().DurationVar(&deadline, "deadline", defaultDeadline, "maximum time to wait")
	return cmd
}

// reached returns the condition that a reservation meets, and for COMPLETED its result.
func reached(r *berthv1.Reservation, condition string) string {
	if condition == berthv1.Reservation_COMPLETED.String() {
		return show.Result(r)
	}
	return condition
}

// waitUntil waits until a reservation meets a condition of wait.
func waitUntil(ctx context.Context, c *client.Client, key client.Key, condition string) (*berthv1.Reservation, error) {
	if condition != allRunning {
		return c.WaitFor(ctx, key, berthv1.Reservation_State(berthv1.Reservation_State_value[condition]))
	}
	return c.WaitRunning(ctx, key)
}

// runningNote says how many workers run, if that is the condition.
func runningNote(r *berthv1.Reservation, condition string) string {
	if condition != allRunning {
		return ""
	}
	running, wanted := r.GetWorkerCounts()["RUNNING"], len(client.RequestedWorkers(r))
	if wanted < int(r.GetCount()) {
		return fmt.Sprintf("; %d running, %d requested", running, wanted)
	}
	return fmt.Sprintf("; %d of %d running", running, r.GetCount())
}

// incomplete returns an error if requested workers of a completed reservation did not end with
// exit code 0.
func incomplete(r *berthv1.Reservation) error {
	left, of := show.Unfinished(r)
	if left == 0 {
		return nil
	}
	text := fmt.Sprintf("%s is COMPLETED, but not every worker ended with exit code 0 (%d of %d did not)", client.KeyOf(r),
		left, of)
	if r.GetMessage() != "" {
		text += ": " + show.LastRound(r.GetMessage())
	}
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s", text)
}

// withLastRound shortens the message of a reservation in an error about it.
func withLastRound(r *berthv1.Reservation, err error) error {
	if f := fault.Of(err); f != nil && r.GetMessage() != "" {
		f.Message = strings.Replace(f.Message, r.GetMessage(), show.LastRound(r.GetMessage()), 1)
	}
	return err
}

// reach returns an error unless a gateway answers a call about a job within the timeout.
func (a *app) reach(ctx context.Context, c *client.Client, job string) error {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	_, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Job: job, PageSize: 1})
	return err
}
