package queue

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// The third promise of the assigner: a version avoids an executor for ten minutes after a
// worker failed there. The ten minutes start at the failure, even if the registry sees the
// failure late. The number of avoided executors is bounded.
func TestAssignerPromise3AnExecutorFailedOnIsAvoidedForAWhile(t *testing.T) {
	c := New(Config{})
	c.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range uint32(20) {
		c.names[n] = fmt.Sprintf("h%d", n)
	}
	lists := func(k constraint.Constraints) string { return fmt.Sprint(k.Avoid, k.AvoidFailed) }
	ago := func(d time.Duration) time.Time { return c.now.Add(-d) }
	r := &model.Reservation{}
	r.Spec.Constraints.Avoid = []string{"asked"}

	seen := c.nextVersion(r, nil, []model.TaskWorker{model.TaskWorker{Ordinal: 1, State: model.WorkerFailed,
		Since: model.InstantOf(ago(4 * time.Minute))}}, "")
	for after, want := range map[time.Duration]string{0: "[asked] [h1]", 6*time.Minute - 1: "[asked] [h1]",
		6 * time.Minute: "[asked] []"} {
		if got := lists(seen.ConstraintsAt(c.now.Add(after))); got != want {
			t.Errorf("%v later %s is avoided, and not %s", after, got, want)
		}
	}
	if got := fmt.Sprint(seen.Spec.Constraints.Avoid); got != "[asked]" {
		t.Errorf("avoided executors %s, want the requested one", got)
	}

	seen.Failed[0].At = ago(model.AvoidFor)
	next := c.nextVersion(seen, nil, []model.TaskWorker{model.TaskWorker{Ordinal: 2, State: model.WorkerLost,
		Since: model.InstantOf(c.now)}}, "")
	if len(next.Failed) != 1 || next.Failed[0] != (model.FailedOn{Executor: "h2", At: c.now}) {
		t.Errorf("what is over is kept: %v", next.Failed)
	}
	for n := range uint32(20) {
		next = c.nextVersion(next, nil, []model.TaskWorker{model.TaskWorker{Ordinal: n, State: model.WorkerFailed,
			Since: model.InstantOf(c.now)}}, "")
	}
	if n := len(next.Failed); n != maxFailed || next.Failed[n-1].Executor != "h19" || next.Failed[0].Executor != "h4" {
		t.Errorf("%d are kept: %v", n, next.Failed)
	}
	// If no worker is known to have failed, the next version avoids no executor.
	if same := c.nextVersion(r, nil, nil, string(fault.ReasonNotTogether)); len(same.Failed) != 0 {
		t.Errorf("avoided without a failure: %v", same.Failed)
	}
}
