package sim

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// explorer plays the schedules of a race on all processors. It drops schedules whose
// history is already known. Its result is deterministic.
type explorer struct {
	t    *testing.T
	race race
	// most is the maximum number of schedules if only a sample is played.
	most   int
	seen   map[uint64]bool
	played int
}

// sample returns at most e.most of the schedules, evenly distributed.
func (e *explorer) sample(schedules []schedule) []schedule {
	e.t.Helper()
	stride := max(1, (len(schedules)+e.most-1)/e.most)
	var kept []schedule
	for i := 0; i < len(schedules); i += stride {
		kept = append(kept, schedules[i])
	}
	e.t.Logf("playing %[2]d of %[1]d schedules", len(schedules), len(kept))
	return kept
}

// play plays the schedules. It returns those with a new history, in order.
func (e *explorer) play(what string, schedules []schedule) []result {
	e.t.Helper()
	// The garbage collector may run rarely, because each world is small and short-lived.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	results := make([]result, len(schedules))
	next := make(chan int)
	var failed atomic.Bool
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for i := range next {
				if results[i] = e.race.perform(schedules[i], io.Discard); results[i].err != nil {
					failed.Store(true)
				}
			}
		})
	}
	for i := 0; i < len(schedules) && !failed.Load(); i++ {
		next <- i
	}
	close(next)
	players.Wait()

	var fresh []result
	for _, r := range results {
		if r.err != nil {
			e.t.Fatalf("%v (transcript: %s; go test ./integration/sim -run '^%s$' -schedule '%s')",
				r.err, e.keep(r.schedule), e.t.Name(), r.schedule)
		}
		if !e.seen[r.history] {
			e.seen[r.history] = true
			fresh = append(fresh, r)
		}
	}
	e.played += len(schedules)
	e.t.Logf("%s: %d schedules, %d new histories", what, len(schedules), len(fresh))
	return fresh
}

// keep writes the transcript of a schedule to a file.
func (e *explorer) keep(s schedule) string {
	var transcript bytes.Buffer
	e.race.perform(s, &transcript)
	h := fnv.New32()
	io.WriteString(h, e.t.Name()+s.String()) //nolint:errcheck // a hash never fails
	name := filepath.Join(os.TempDir(), fmt.Sprintf("berth-schedule-%08x.txt", h.Sum32()))
	if err := os.WriteFile(name, transcript.Bytes(), 0o600); err != nil {
		return err.Error()
	}
	return name
}

// next returns the schedules with one more call. Each of the named calls is made at each
// turn of the registry after the previous call.
func next(of []result, names ...string) []schedule {
	var all []schedule
	for _, r := range of {
		from := 0
		if n := len(r.schedule.moves); n > 0 {
			from = r.schedule.moves[n-1].at
		}
		for _, name := range names {
			for _, at := range r.turns {
				if at >= from {
					all = append(all, schedule{moves: append(slices.Clip(r.schedule.moves), move{name, at})})
				}
			}
		}
	}
	return all
}

// eachOnOldView returns the schedules with one call at any step. The registry decides that
// call on a view that is not current.
func eachOnOldView(of []result, names ...string) []schedule {
	var all []schedule
	for _, r := range of {
		for _, name := range names {
			for at := r.turns[0]; at < len(r.choices); at++ {
				all = append(all, schedule{moves: []move{{name, at}}, deviations: []deviation{{at, actOnOldView}}})
			}
		}
	}
	return all
}

// deviating returns the schedules with one more deviation after their last one.
func deviating(of []result) []schedule {
	var all []schedule
	for _, r := range of {
		from := 0
		if n := len(r.schedule.deviations); n > 0 {
			from = r.schedule.deviations[n-1].at + 1
		}
		for at := from; at < len(r.choices); at++ {
			for choice := 1; choice < r.choices[at]; choice++ {
				all = append(all, r.schedule.with(deviation{at, choice}))
			}
		}
	}
	return all
}
