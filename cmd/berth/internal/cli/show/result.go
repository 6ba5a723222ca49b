package show

import (
	"fmt"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// unsuccessful are the ends of workers that are no success, the worst first.
var unsuccessful = []berthv1.Assignment_State{berthv1.Assignment_FAILED, berthv1.Assignment_LOST,
	berthv1.Assignment_EVICTED}

// results returns how many of a reservation's workers ended without success, by state. COMPLETED
// says only that all workers have ended, and ACTIVE that some have not: the counts of the workers are
// the result. It is empty for a reservation in another state, and if all requested workers ended with
// exit code 0.
func results(r *berthv1.Reservation) (names []string, counts []int32) {
	switch r.GetState() {
	case berthv1.Reservation_ACTIVE:
	case berthv1.Reservation_COMPLETED:
		if left, _ := Unfinished(r); left == 0 {
			return nil, nil
		}
	default:
		return nil, nil
	}
	for _, s := range unsuccessful {
		evicted := s == berthv1.Assignment_EVICTED && r.GetState() == berthv1.Reservation_ACTIVE // by a request
		if n := r.GetWorkerCounts()[s.String()]; n > 0 && !evicted {
			names, counts = append(names, s.String()), append(counts, n)
		}
	}
	return names, counts
}

// Result returns the state of a reservation with its result in words: `COMPLETED, 2 failed`.
func Result(r *berthv1.Reservation) string {
	text := state(r.GetState())
	names, counts := results(r)
	for i, name := range names {
		text += fmt.Sprintf(", %d %s", counts[i], strings.ToLower(name))
	}
	return text
}

// resultWord returns the state of a reservation and its worst result without a space, as the states
// of executors: `COMPLETED,FAILED`.
func resultWord(r *berthv1.Reservation) string {
	text := state(r.GetState())
	if names, _ := results(r); len(names) > 0 {
		text += "," + names[0]
	}
	return text
}

// Unfinished returns how many of the requested workers of a completed reservation did not end with
// exit code 0, and how many workers were requested. With completesWith, those count that it names, and
// they did.
func Unfinished(r *berthv1.Reservation) (left, of int) {
	if r.GetReason() == string(fault.ReasonCompletesWith) {
		return 0, int(r.GetCount())
	}
	wanted := client.RequestedWorkers(r)
	of, left = int(r.GetCount()), int(r.GetCount()-r.GetWorkerCounts()["COMPLETED"])
	if len(wanted) < len(r.GetWorkers()) && left > 0 {
		of, left = len(wanted), len(wanted)-completedOf(r, wanted)
	}
	return max(left, 0), of
}

// completedOf returns how many of some workers of a reservation that has ended are COMPLETED.
func completedOf(r *berthv1.Reservation, workers []*berthv1.WorkerID) (n int) {
	for _, ends := range r.GetEnds() {
		if ends.GetState() != berthv1.Assignment_COMPLETED.String() {
			continue
		}
		for _, w := range workers {
			if slices.ContainsFunc(ends.GetWorkers(), func(run *berthv1.WorkerRange) bool {
				return run.GetFirst() <= w.GetIndex() && w.GetIndex() <= run.GetLast()
			}) {
				n++
			}
		}
	}
	return n
}
