package sim

import (
	"flag"
	"math"
	"os"
	"testing"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

var (
	scheduleFlag  = flag.String("schedule", "", "play only this schedule and print its transcript")
	schedulesFlag = flag.Int("schedules", 1500, "maximum number of schedules to play for each test; 0 for all")
)

// explore returns an explorer of a race and the result of the race without other calls.
func explore(t *testing.T, d race) (*explorer, []result) {
	t.Helper()
	if *scheduleFlag != "" {
		s, err := parseSchedule(*scheduleFlag)
		if err != nil {
			t.Fatal(err)
		}
		if r := d.perform(s, os.Stdout); r.err != nil {
			t.Fatal(r.err)
		}
		t.Skip("-schedule selects another test")
	}
	most := *schedulesFlag
	if most == 0 {
		most = math.MaxInt
	}
	e := &explorer{t: t, race: d, most: most, seen: map[uint64]bool{}}
	t.Cleanup(func() { t.Logf("%d schedules played", e.played) })
	return e, e.play("by itself", []schedule{{}})
}

// hostWithSlots returns a host with slots.
func hostWithSlots(id string, slots int64) Host {
	return Host{ID: id, SKU: "s", Resources: resource.Vector{"slots": slots}}
}

// If a schedule fails, the test prints it with the command that repeats it and prints all
// its steps.
//
// The exploration has these limits:
//   - A call is made at each turn of the registry after the first request was acknowledged,
//     because between two turns the call meets the same state.
//   - A deviation changes one step of the default order. Another event happens first, the
//     first event is held back until no other event is left, a node acts before it reads
//     its view, or time passes early.
//   - Of all schedules with the same history, only one is varied further.
//   - Every schedule of a kind is played, except for the three kinds below that are
//     sampled. Each sample has at most -schedules schedules, or all with -schedules 0. The
//     flag -v reports their number.

// TestCancelRacesGrant cancels a batch between its upsert and its start. The cancel happens
// at every turn of the registry, and at every step with a decision on an old view. The test
// plays all schedules with one deviation from the default order and a sample of those with
// two. In all of them, the cancel keeps promise 6 of the registry. After the
// acknowledgement no worker of the batch is started, and in the end every executor is free.
func TestCancelRacesGrant(t *testing.T) {
	e, base := explore(t, race{replicas: 1, workers: 2, hosts: []Host{hostWithSlots("host-0", 1),
		hostWithSlots("host-1", 1)}})
	cancelled := e.play("cancelled", next(base, "cancel"))
	e.play("decided on an old view", eachOnOldView(base, "cancel"))
	once := e.play("one deviation", deviating(cancelled))
	e.play("two deviations", e.sample(deviating(once)))
}

// TestCancelRacesGrantUnderDeposedLeaders does the same, but the leader of a service is
// deposed before or after the cancel without knowing that.
func TestCancelRacesGrantUnderDeposedLeaders(t *testing.T) {
	e, base := explore(t, race{replicas: 2, workers: 2, hosts: []Host{hostWithSlots("host-0", 2)}})
	depose := []string{"depose-" + model.ServiceRegistry, "depose-" + model.ServiceExecutorState,
		"depose-" + model.ServiceAssigner}
	first := e.play("cancelled", next(base, "cancel"))
	first = append(first, e.play("deposed", next(base, depose...))...)
	var both []schedule
	for _, r := range first {
		if r.schedule.moves[0].name == "cancel" {
			both = append(both, next([]result{r}, depose...)...)
		} else {
			both = append(both, next([]result{r}, "cancel")...)
		}
	}
	e.play("one deviation", e.sample(deviating(e.play("both", both))))
}

// TestRequeueAgainstEverything checks rule 11 of the architecture. An executor refuses to
// start a worker, and the worker is requeued. All calls that could end the requeue race
// against it. The test plays each call alone at every turn of the registry, and every pair
// of calls. It also plays each call alone with one deviation from the default order, and
// each call at every step, decided before the registry has read the latest revisions.
func TestRequeueAgainstEverything(t *testing.T) {
	refuses := hostWithSlots("host-1", 1)
	refuses.Allow = []string{}
	e, base := explore(t, race{replicas: 1, workers: 2, hosts: []Host{hostWithSlots("host-0", 1), refuses,
		hostWithSlots("host-2", 2)}})
	calls := []string{"cancel", "cancel-job", "lower", "cancel-worker", "cancel-requeue", "resend", "replace"}
	alone := e.play("one call", next(base, calls...))
	e.play("one call, decided on an old view", eachOnOldView(base, calls...))
	e.play("two calls", next(alone, calls...))
	e.play("one call, one deviation", e.sample(deviating(alone)))
}
