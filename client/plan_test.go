package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// A plan has an entry for each requested worker index, and for each volume that is left.
func TestPlan(t *testing.T) {
	workers := func(numbers ...int32) (list []*berthv1.WorkerID) {
		for i, n := range numbers {
			if n > 0 {
				list = append(list, &berthv1.WorkerID{Index: int32(i), Number: n})
			}
		}
		return list
	}
	version := func(stage, name string, state berthv1.Reservation_State, w []*berthv1.WorkerID) *berthv1.Reservation {
		return &berthv1.Reservation{Job: "db", Stage: stage, Name: name, State: state, Workers: w}
	}
	away := version("data", "main", berthv1.Reservation_QUEUED, workers(0, 2))
	away.Reason, away.Message = proto.String("VOLUME_AWAY"), proto.String("its volume is on sim-1, which is LOST")
	assigned := func(index, number int32, state berthv1.Assignment_State) *berthv1.Assignment {
		return &berthv1.Assignment{Job: "db", Stage: "data", Reservation: "main", Index: index, Number: number, State: state,
			Executor: "sim-" + string(rune('0'+index))}
	}
	failed := assigned(3, 1, berthv1.Assignment_FAILED)
	failed.Reason, failed.LastError = proto.String("ROUNDS_EXHAUSTED"), proto.String("exit code 3")
	volume := func(id string, index int32, state berthv1.Volume_State) *berthv1.Volume {
		return &berthv1.Volume{Id: id, Job: "db", Stage: "data", Index: index, State: state, Executor: "sim-1"}
	}
	left := volume("old", 0, berthv1.Volume_DESTROYING)
	left.Message, left.Executor = "waits until executor sim-9 is present", "sim-9"
	unwanted := volume("unwanted", 7, berthv1.Volume_READY)
	l := &listing{
		stages: []*berthv1.StageWorkers{{Stage: "data", TargetSize: 4}, {Stage: "old"}},
		versions: []*berthv1.Reservation{
			version("data", "main", berthv1.Reservation_ACTIVE, workers(1, 1, 1, 1)), away,
			version("data", "main", berthv1.Reservation_ASSIGNING, workers(0, 0, 2)),
			version("old", "main", berthv1.Reservation_CANCELLED, workers(1)),
		},
		assignments: []*berthv1.Assignment{
			assigned(0, 1, berthv1.Assignment_STARTING), assigned(1, 1, berthv1.Assignment_FAILED),
			assigned(2, 1, berthv1.Assignment_FAILED), failed,
		},
	}
	got := planOf("db", l, nil, []*berthv1.Volume{volume("v0", 0, berthv1.Volume_READY), left,
		volume("v1", 1, berthv1.Volume_READY), volume("v3", 3, berthv1.Volume_LOST), unwanted})
	want := &Plan{Job: "db", Stages: []StagePlan{{Stage: "data", Target: 4, Workers: []PlannedWorker{
		{Index: 0, Name: "main", Number: 1, Bound: true, Persistent: true, Satisfied: true, Current: "STARTING",
			Executor: "sim-0", Volume: "v0", VolumeState: "READY"},
		{Index: 0, Executor: "sim-9", Volume: "old", VolumeState: "DESTROYING",
			Message: "waits until executor sim-9 is present"},
		{Index: 1, Name: "main", Number: 2, Persistent: true, Current: "QUEUED", Executor: "sim-1", Volume: "v1",
			VolumeState: "READY", Reason: "VOLUME_AWAY", Message: "its volume is on sim-1, which is LOST"},
		{Index: 2, Name: "main", Number: 2, Bound: true, Current: "ASSIGNING"},
		{Index: 3, Name: "main", Number: 1, Current: "FAILED", Executor: "sim-3", Volume: "v3", VolumeState: "LOST",
			Reason: "ROUNDS_EXHAUSTED", Message: "exit code 3"},
		{Index: 7, Persistent: true, Executor: "sim-1", Volume: "unwanted", VolumeState: "READY"},
	}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The plan has the newest worker of each index, also if its version has ended or is deleted: of a
// reservation that lives and of one that has ended. It has no worker of an earlier reservation.
func TestPlanOfEndedWorkers(t *testing.T) {
	version := func(name, uid string, state berthv1.Reservation_State, w ...*berthv1.WorkerID) *berthv1.Reservation {
		return &berthv1.Reservation{Job: "j", Stage: "s", Name: name, Uid: uid, State: state, Workers: w}
	}
	worker := func(index, number int32) *berthv1.WorkerID { return &berthv1.WorkerID{Index: index, Number: number} }
	ends := func(state string, gaveUp bool, first, last, number int32) *berthv1.WorkerEnds {
		return &berthv1.WorkerEnds{State: state, GaveUp: gaveUp,
			Workers: []*berthv1.WorkerRange{{First: first, Last: last, Number: number}}}
	}
	lives := version("main", "a-1", berthv1.Reservation_ACTIVE)
	lives.Ends = []*berthv1.WorkerEnds{ends("FAILED", true, 1, 1, 2)}
	over := version("over", "b-1", berthv1.Reservation_COMPLETED)
	over.Ends = []*berthv1.WorkerEnds{ends("COMPLETED", false, 2, 3, 1), ends("LOST", false, 4, 4, 1)}
	cancelled := version("queued", "c-2", berthv1.Reservation_CANCELLED)
	// Index 0 of other names has later workers since: of some that have ended, and of one that lives.
	var before []*berthv1.Reservation
	for name, state := range map[string]berthv1.Reservation_State{"c": berthv1.Reservation_CANCELLED,
		"e": berthv1.Reservation_COMPLETED, "f": berthv1.Reservation_FAILED, "l": berthv1.Reservation_ACTIVE} {
		r := version("before-"+name, "d-"+name, state)
		r.Ends = []*berthv1.WorkerEnds{ends("EVICTED", false, 0, 0, 1)}
		before = append(before, r)
	}
	l := &listing{
		versions: []*berthv1.Reservation{
			version("main", "a-0", berthv1.Reservation_COMPLETED, worker(7, 1)),
			version("main", "a-1", berthv1.Reservation_ACTIVE, worker(0, 2), worker(1, 1)),
			version("over", "b-1", berthv1.Reservation_COMPLETED, worker(2, 1), worker(3, 1), worker(4, 1)),
			version("queued", "c-1", berthv1.Reservation_CANCELLED, worker(5, 1)),
			version("queued", "c-2", berthv1.Reservation_CANCELLED, worker(5, 1)),
		},
		assignments: []*berthv1.Assignment{{Job: "j", Stage: "s", Reservation: "main", Number: 2, Executor: "e",
			State: berthv1.Assignment_RUNNING}, {Job: "j", Stage: "s", Reservation: "main", Index: 1, Number: 1,
			State: berthv1.Assignment_FAILED}},
	}
	got := planOf("j", l, []*berthv1.Reservation{lives, over, cancelled, before[0], before[1], before[2], before[3]}, nil)
	want := &Plan{Job: "j", Stages: []StagePlan{{Stage: "s", Workers: []PlannedWorker{
		{Name: "main", Number: 2, Bound: true, Satisfied: true, Current: "RUNNING", Executor: "e"},
		{Index: 1, Name: "main", Number: 2, Current: "FAILED", Reason: "ROUNDS_EXHAUSTED"},
		{Index: 2, Name: "over", Number: 1, Current: "COMPLETED"},
		{Index: 3, Name: "over", Number: 1, Current: "COMPLETED"},
		{Index: 4, Name: "over", Number: 1, Current: "LOST"},
		{Index: 5, Name: "queued", Number: 1, Current: "CANCELLED"},
	}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A job without reservations and volumes has no plan.
func TestPlanOfUnknownJob(t *testing.T) {
	g := &gateway{any: func(method string, _ proto.Message) (proto.Message, error) {
		switch method {
		case "ListReservations":
			return &berthv1.ListReservationsAnswer{}, nil
		case "ListAssignments":
			return &berthv1.ListAssignmentsAnswer{}, nil
		}
		return &berthv1.ListVolumesAnswer{}, nil
	}}
	g.serve(t, hold(t))
	if _, err := dial(t, nil, g).Plan(t.Context(), "none"); fault.Of(err) == nil || fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
}
