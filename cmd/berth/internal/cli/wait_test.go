package cli

import (
	"testing"

	berthv1 "berth.dev/api/berth/v1"
)

// TestTally checks that a worker that is queued again counts once, and that versions of
// another request do not count.
func TestTally(t *testing.T) {
	version := func(uid, parent string, round, count int32, counts map[string]int32) *berthv1.Reservation {
		return &berthv1.Reservation{Uid: uid, Parent: &parent, Round: round, Count: count, WorkerCounts: counts}
	}
	main := version("1", "", 0, 3, map[string]int32{"COMPLETED": 2, "FAILED": 1})
	for name, c := range map[string]struct {
		versions []*berthv1.Reservation
		want     tally
	}{
		"one version":      {nil, tally{workers: 3, completed: 2}},
		"a failed worker":  {[]*berthv1.Reservation{main}, tally{workers: 3, completed: 2}},
		"another request":  {[]*berthv1.Reservation{main, version("2", "", 0, 5, nil)}, tally{workers: 3, completed: 2}},
		"queued again":     {[]*berthv1.Reservation{main, version("2", "1", 1, 1, nil)}, tally{workers: 3, completed: 2}},
		"completed later":  {[]*berthv1.Reservation{main, version("2", "1", 1, 1, map[string]int32{"COMPLETED": 1})}, tally{workers: 3, completed: 3}},
		"a second attempt": {[]*berthv1.Reservation{main, version("3", "2", 2, 1, map[string]int32{"RUNNING": 1}), version("2", "1", 1, 1, map[string]int32{"FAILED": 1})}, tally{workers: 3, running: 1, completed: 2}},
		"a part":           {[]*berthv1.Reservation{main, version("2", "1", 0, 2, map[string]int32{"RUNNING": 2})}, tally{workers: 5, running: 2, completed: 2}},
		"a cycle":          {[]*berthv1.Reservation{version("1", "2", 0, 1, nil), version("2", "1", 0, 1, nil)}, tally{workers: 1}},
	} {
		if got := tallyOf(main, c.versions); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
