package queue

import (
	"testing"

	"berth.dev/pkg/model"
)

// Of more ended workers than the record of their heir lists, each is still known by its index, and their
// numbers in each state are right, also once some of them have later workers.
func TestWorkersBeyondTheBoundStayKnown(t *testing.T) {
	const all = 6 * model.MaxEndRuns
	everyOther := make([]model.WorkerID, 0, all/2)
	for index := int32(1); index < all; index += 2 {
		everyOther = append(everyOther, model.WorkerID{Index: index, Number: 1})
	}
	own, _ := bounded([]model.End{{State: model.WorkerFailed, Workers: model.WorkerSetOf(everyOther)}})
	ended := &version{uid: "ended", r: &model.Reservation{
		UID: "ended", State: model.Completed, Workers: model.WorkerSet{{First: 0, Last: all - 1, Number: 1}},
		WorkerCounts: map[string]int32{"COMPLETED": all / 2, "FAILED": all / 2},
		Ends:         &model.Ends{Own: own},
	}}
	rest := model.WorkerSet{{First: all, Last: all, Number: 1}}
	heir := &version{uid: "heir", r: &model.Reservation{UID: "heir", State: model.Active, Workers: rest}}
	r := reservation{members: []*version{heir, ended}, newest: ended.r.Workers.Raise(rest)}
	heir.r = r.inherit(heir, []*version{ended})
	for _, later := range []int32{0, 10} {
		newest := r.newest
		for index := range later {
			newest = newest.Raise(model.WorkerSet{{First: index, Last: index, Number: 2}})
		}
		now := reservation{members: []*version{heir}, past: []*version{heir}, newest: newest}
		known := unionOf(pastSets(now.past, nil))
		if !known.Equal(ended.r.Workers) {
			t.Errorf("%d later workers: %d of %d workers are known", later, known.Len(), all)
		}
		counts := map[model.WorkerState]int32{}
		for _, e := range now.pastEnds() {
			counts[e.State] += int32(e.Workers.Len()) + e.More
		}
		completed, failed := counts[model.WorkerCompleted], counts[model.WorkerFailed]
		if completed+failed != all-later || failed > all/2 {
			t.Errorf("%d later workers: %v", later, counts)
		}
		runs := 0
		for _, e := range heir.r.Ends.Past {
			runs += len(e.Workers)
		}
		if runs == 0 || runs > model.MaxEndRuns {
			t.Errorf("the record lists %d runs", runs)
		}
		if n := unionOf(now.notCancelled()).Len(); n < all-int(later) {
			t.Errorf("%d later workers: %d workers were not cancelled", later, n)
		}
	}
}
