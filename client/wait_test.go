package client

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// waitedFor returns a reservation with as many workers as its counts have, and one more for each
// entry of extra.
func waitedFor(counts map[string]int32, extra ...*berthv1.WorkerID) *berthv1.Reservation {
	r := &berthv1.Reservation{Job: "a", Stage: "b", Name: "main", State: berthv1.Reservation_ACTIVE, Epoch: 7,
		WorkerCounts: counts, Workers: extra}
	for _, n := range counts {
		r.Count += n
	}
	for index := range r.Count {
		r.Workers = append(r.Workers, &berthv1.WorkerID{Index: index, Number: 1})
	}
	r.Count = int32(len(r.Workers))
	return r
}

// The condition "running" ends with the right answer for the reservation as it is stored now, and
// with an error that names the worker once it can never hold.
func TestWaitRunningEndsWhenItIsDecided(t *testing.T) {
	one := func(index int32) []*berthv1.IndexRange { return []*berthv1.IndexRange{{First: index, Last: index}} }
	placed := func(indexes ...int32) (members []*berthv1.Member) {
		for _, index := range indexes {
			members = append(members, &berthv1.Member{Index: index, Number: 1})
		}
		return members
	}
	assigned := func(index int32, state berthv1.Assignment_State) *berthv1.Assignment {
		return &berthv1.Assignment{Index: index, Number: 1, State: state}
	}
	failed := &berthv1.Assignment{Index: 2, Number: 1, State: berthv1.Assignment_FAILED, ExitCode: proto.Int32(3),
		Reason: proto.String(string(fault.ReasonRoundsExhausted)), LastError: proto.String("ROUNDS_EXHAUSTED")}
	cancelled := &berthv1.Assignment{Index: 1, Number: 1, State: berthv1.Assignment_EVICTED,
		Reason: proto.String(string(fault.ReasonCancelled))}
	fewer := func(r *berthv1.Reservation, count int32) *berthv1.Reservation {
		r.RequestedCount = &count
		return r
	}
	inState := func(state berthv1.Reservation_State, r *berthv1.Reservation) *berthv1.Reservation {
		r.State = state
		return r
	}
	for _, tt := range []struct {
		name     string
		r        *berthv1.Reservation
		gang     *berthv1.ListMembersAnswer
		assigned []*berthv1.Assignment
		done     bool
		reason   fault.Reason
		text     string
	}{
		{name: "all run", r: waitedFor(map[string]int32{"RUNNING": 3}), done: true},
		{name: "one starts", r: waitedFor(map[string]int32{"RUNNING": 2, "STARTING": 1})},
		{name: "one is queued again", r: waitedFor(map[string]int32{"RUNNING": 2, "QUEUED": 1})},
		{name: "none is dispatched", r: inState(berthv1.Reservation_QUEUED, waitedFor(nil, &berthv1.WorkerID{Number: 1}))},
		{
			name: "one was given up", r: waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1}),
			gang:     &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1, 2), GaveUp: one(2)},
			assigned: []*berthv1.Assignment{assigned(0, berthv1.Assignment_RUNNING), failed},
			reason:   fault.ReasonRoundsExhausted, text: "worker 2.1 is FAILED (exit code 3) and is not queued again",
		},
		{
			name: "one was given up while added ones wait",
			r:    inState(berthv1.Reservation_QUEUED, waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1, "QUEUED": 1})),
			gang: &berthv1.ListMembersAnswer{Revision: 9, Workers: 4, Members: placed(0, 1), GaveUp: one(2), Waiting: one(3)},
			text: "worker 2.1 has ended and is not queued again",
		},
		{
			name: "one was given up, and its version has ended",
			r: func() *berthv1.Reservation {
				r := waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1})
				r.Message = proto.String("1 of 3 workers failed; 2.1: exit code 3")
				r.Ends = []*berthv1.WorkerEnds{{State: "FAILED", GaveUp: true,
					Workers: []*berthv1.WorkerRange{{First: 2, Last: 2, Number: 1}}}}
				return r
			}(),
			gang:   &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1, 2), GaveUp: one(2)},
			reason: fault.ReasonRoundsExhausted,
			text:   "worker 2.1 is FAILED and is not queued again; 1 of 3 workers failed; 2.1: exit code 3",
		},
		{
			name: "one has completed", r: waitedFor(map[string]int32{"RUNNING": 2, "COMPLETED": 1}),
			gang:     &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1, 2), Ended: one(0)},
			assigned: []*berthv1.Assignment{assigned(0, berthv1.Assignment_COMPLETED)}, text: "worker 0.1 is COMPLETED",
		},
		{
			name: "one was cancelled", r: waitedFor(map[string]int32{"RUNNING": 2, "EVICTED": 1}),
			gang:     &berthv1.ListMembersAnswer{Revision: 9, Workers: 2, Members: placed(0, 2)},
			assigned: []*berthv1.Assignment{cancelled}, reason: fault.ReasonCancelled, text: "worker 1.1 is EVICTED",
		},
		{
			name: "one was cancelled while it was queued again", r: waitedFor(map[string]int32{"RUNNING": 2},
				&berthv1.WorkerID{Index: 2, Number: 2}),
			gang:     &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1), GaveUp: one(2)},
			assigned: []*berthv1.Assignment{failed}, text: "worker 2.2 has ended",
		},
		{
			name: "one has failed, and the registry queues it again soon",
			r:    waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1}),
			gang: &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1), Waiting: one(2)},
		},
		{
			name: "one was requested again, which the assigner has not seen",
			r:    waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1}),
			gang: &berthv1.ListMembersAnswer{Revision: 6, Workers: 3, Members: placed(0, 1), GaveUp: one(2)},
		},
		{
			name: "an assigner of 0.1 does not say what became of one",
			r:    waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1}),
			gang: &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1)},
		},
		{
			name: "the members of the parent's gang are not known", r: waitedFor(map[string]int32{"RUNNING": 2, "FAILED": 1}),
			gang: &berthv1.ListMembersAnswer{Revision: 9},
		},
		{
			name: "the requested ones run, and another was cancelled",
			r:    fewer(waitedFor(map[string]int32{"RUNNING": 2, "EVICTED": 1}), 2),
			gang: &berthv1.ListMembersAnswer{Revision: 9, Workers: 2, Members: placed(0, 1)},
			assigned: []*berthv1.Assignment{assigned(0, berthv1.Assignment_RUNNING),
				assigned(1, berthv1.Assignment_RUNNING)},
			done: true,
		},
		{
			name: "the requested ones run, and another waits for its restart",
			r:    fewer(waitedFor(map[string]int32{"RUNNING": 2, "QUEUED": 1}), 2),
			gang: &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1), Waiting: one(2)},
			assigned: []*berthv1.Assignment{assigned(0, berthv1.Assignment_RUNNING),
				assigned(1, berthv1.Assignment_RUNNING)},
			done: true,
		},
		{
			name:     "others run than those that are requested",
			r:        fewer(waitedFor(map[string]int32{"RUNNING": 2, "STARTING": 1}), 2),
			gang:     &berthv1.ListMembersAnswer{Revision: 9, Workers: 3, Members: placed(0, 1, 2)},
			assigned: []*berthv1.Assignment{assigned(0, berthv1.Assignment_RUNNING), assigned(2, berthv1.Assignment_RUNNING)},
		},
		{
			name: "it is being cancelled", r: inState(berthv1.Reservation_CANCELLING, waitedFor(map[string]int32{"EVICT": 2})),
			text: "is CANCELLING",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &gateway{any: func(method string, request proto.Message) (proto.Message, error) {
				switch q := request.(type) {
				case *berthv1.ListMembersRequest:
					return tt.gang, nil
				case *berthv1.ListAssignmentsRequest:
					answer := &berthv1.ListAssignmentsAnswer{}
					for _, a := range tt.assigned {
						if q.GetState() == 0 || q.GetState() == a.GetState() {
							answer.Assignments = append(answer.Assignments, a)
						}
					}
					return answer, nil
				}
				return nil, fault.New(fault.Internal, "", "%s", method)
			}}
			g.serve(t, hold(t))
			done, err := dial(t, nil, g).running(limited(t, waitPoll), Key{Job: "a", Stage: "b"}, tt.r)
			f := fault.Of(err)
			switch {
			case done != tt.done:
				t.Errorf("done %v, %v", done, err)
			case tt.text == "" && err != nil:
				t.Errorf("error %v", err)
			case tt.text != "" && (f == nil || f.Kind != fault.Precondition || f.Reason != tt.reason ||
				!strings.Contains(f.Message, tt.text)):
				t.Errorf("error %v, want %s with %q", err, tt.reason, tt.text)
			}
		})
	}
}

// WaitFor ends with an error once the reservation cannot reach any of the states.
func TestWaitForEndsWhenNoStateCanCome(t *testing.T) {
	const held, active, cancelling = berthv1.Reservation_HELD, berthv1.Reservation_ACTIVE, berthv1.Reservation_CANCELLING
	for _, tt := range []struct {
		state, wanted berthv1.Reservation_State
		hold          berthv1.Hold
		never         bool
	}{
		{berthv1.Reservation_QUEUED, held, berthv1.Hold_HOLD, false},
		{berthv1.Reservation_QUEUED, held, berthv1.Hold_HOLD_UNSPECIFIED, true},
		{active, held, berthv1.Hold_HOLD, true},
		{berthv1.Reservation_ASSIGNING, held, berthv1.Hold_HOLD, true},
		{cancelling, held, berthv1.Hold_HOLD, true},
		{cancelling, active, 0, true},
		{active, berthv1.Reservation_COMPLETED, 0, false},
	} {
		r := &berthv1.Reservation{State: tt.state, Hold: tt.hold.Enum()}
		err := unreachable(Key{Job: "a", Stage: "b"}, r, []berthv1.Reservation_State{tt.wanted})
		if (err != nil) != tt.never {
			t.Errorf("%s, hold %s, wait for %s: %v", tt.state, tt.hold, tt.wanted, err)
		}
	}
}

// The reason of a reservation that is CANCELLING says which state comes next. WaitFor waits for that
// state, and ends with an error if another one is requested.
func TestWaitForWaitsForTheEndThatTheReasonNames(t *testing.T) {
	const completed, failed = berthv1.Reservation_COMPLETED, berthv1.Reservation_FAILED
	const cancelled, expired = berthv1.Reservation_CANCELLED, berthv1.Reservation_EXPIRED
	for reason, ends := range map[fault.Reason][]berthv1.Reservation_State{
		fault.ReasonCompletesWith: {completed},
		fault.ReasonGangFailed:    {failed},
		// If several versions end, the last end decides.
		fault.ReasonCancelled: {cancelled, expired},
		fault.ReasonExpired:   {cancelled, expired},
		// The reason of a later control plane may name any end.
		"LATER": {completed, failed, cancelled, expired},
	} {
		for number, name := range berthv1.Reservation_State_name {
			state := berthv1.Reservation_State(number)
			r := &berthv1.Reservation{State: berthv1.Reservation_CANCELLING, Reason: proto.String(string(reason))}
			err := unreachable(Key{Job: "a", Stage: "b"}, r, []berthv1.Reservation_State{state})
			comes := state == berthv1.Reservation_CANCELLING || slices.Contains(ends, state)
			if (err == nil) != comes {
				t.Errorf("CANCELLING with %s, wait for %s: %v", reason, name, err)
			}
		}
	}
}
