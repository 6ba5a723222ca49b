package inventory

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// sendAll sends the candidates in order, cycle after cycle, without those that were
// granted. It stops when one cycle decides all remaining candidates, and returns the grants
// in their order.
func sendAll(t *rapid.T, r *rig, entries []model.Candidate) (granted []string, cycles int) {
	for {
		cycles++
		outcomes := r.cycle(entries...)
		cut := slices.IndexFunc(outcomes, func(o model.Outcome) bool { return o.Result == model.Later })
		stopped := map[string]bool{}
		for i, o := range outcomes {
			group := entries[i].Group
			switch {
			case cut >= 0 && i >= cut && o.Result != model.Later && !(o.Result == model.Behind && stopped[group]):
				t.Fatalf("%+v is behind the cut at %d", o, cut)
			case o.Result == model.Granted && stopped[group]:
				t.Fatalf("%s overtook its queue", o.UID)
			case o.Result == model.Granted:
				granted = append(granted, o.UID)
			default:
				stopped[group] = true
			}
		}
		if cut < 0 {
			return granted, cycles
		}
		entries = slices.DeleteFunc(slices.Clone(entries), func(e model.Candidate) bool {
			return slices.Contains(granted,
				e.UID)
		})
	}
}

// Cycles that end at a limit grant the same candidates in the same order as a cycle without
// limits. In the end they decide every candidate.
func TestLimitedCyclesGrantTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var registers []Register
		for i := range evenly(1, 3, 6, 9).Draw(t, "executors") {
			registers = append(registers, drawRegister(t, fmt.Sprintf("h%d", i)))
		}
		var kinds []constraint.Constraints
		var sizes []int
		for range evenly(1, 3, 6, 12).Draw(t, "entries") {
			kinds, sizes = append(kinds, drawConstraints(t)), append(sizes, evenly(1, 2, 4).Draw(t, "n"))
		}
		limit := evenly(1, 20, 200).Draw(t, "limit")
		play := func(limit int) ([]string, int) {
			r := lead(DefaultConfig())
			r.core.index.Limits.Work = limit
			for _, g := range registers {
				r.ready(g)
			}
			var entries []model.Candidate
			for i, k := range kinds {
				entries = append(entries, r.queue(fmt.Sprintf("u%02d", i), sizes[i], k))
			}
			return sendAll(t, r, entries)
		}
		want, _ := play(match.DefaultLimits().Work)
		if got, cycles := play(limit); !slices.Equal(got, want) {
			t.Fatalf("%d cycles granted %v, one grants %v", cycles, got, want)
		}
	})
}

// If a candidate did not fit, the core does not search for it again until an executor
// changes.
func TestARefusalIsRemembered(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("e1", 1000, 1))
	entry := r.queue("a", 2, cpu(1))
	ask := func() (model.Outcome, int) {
		o := r.cycle(entry)[0]
		return o, r.core.index.Work
	}
	first, spent := ask()
	again, nothing := ask()
	if first.Result != model.NoFit || again != first || spent == 0 || nothing != 0 {
		t.Errorf("looked at %d for %+v, and at %d for %+v", spent, first, nothing, again)
	}
	r.ready(small("e2", 1000, 1))
	if o, _ := ask(); o.Result != model.Granted {
		t.Errorf("with enough free capacity: %+v", o)
	}
	full := r.queue("b", 1, cpu(1))
	if o := r.cycle(full)[0]; o.Result != model.NoFit {
		t.Errorf("without free capacity: %+v", o)
	}
	r.state("a", model.Cancelled)
	r.catchUp()
	r.settle()
	expectGranted(t, r.cycle(full))
}

// The core finds capacity that becomes free in small parts between cycles, even if the
// total was too small after each part but the last.
func TestCapacityFreedInSmallPartsIsFound(t *testing.T) {
	r := lead(DefaultConfig())
	r.core.index.Limits.Work = 1 // no work is left for searches that only update the numbers of a refusal
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids {
		r.ready(small("on-"+id, 1000, 1))
		expectGranted(t, r.cycle(r.queue(id, 1, cpu(1000))))
	}
	all := r.queue("all", len(ids), cpu(1000))
	for i, id := range ids {
		if o := r.cycle(all)[0]; o.Result != model.NoFit {
			t.Fatalf("with free capacity for %d: %+v", i, o)
		}
		r.state(id, model.Cancelled)
		r.catchUp()
		r.settle()
	}
	expectGranted(t, r.cycle(all))
}

// If each executor has a resource with a unique name, the work of a cycle includes the cost
// of these names. For a selection of few executors, a cycle does not look at the resources
// of other executors. For the whole fleet, the cycle ends at the limit.
func TestACycleIsBoundedWhereResourceNamesDiffer(t *testing.T) {
	r := lead(DefaultConfig())
	r.core.index.Limits.Narrow = 8
	const n = 200
	for i := range n {
		g := small(fmt.Sprintf("h%03d", i), 1000, 1)
		g.Attributes = map[string]string{"rack": fmt.Sprint(i % (n / 4))}
		g.Resources[fmt.Sprintf("own-%d", i)] = 1
		r.ready(g)
	}
	if shapes := r.core.index.Size().Shapes; shapes != n {
		t.Fatalf("%d shapes", shapes)
	}
	cost := func(k constraint.Constraints) int {
		if o := r.cycle(r.queue(fmt.Sprintf("u%d", r.rev), 5*n, k))[0]; o.Result != model.NoFit {
			t.Fatalf("%+v", o)
		}
		return r.core.index.Work
	}
	narrow, all := cpu(1), cpu(1)
	narrow.Attributes = map[string]string{"rack": "7"}
	if spent := cost(narrow); spent > 4*4*80 {
		t.Errorf("4 executors of %d cost %d", n, spent)
	}
	if spent := cost(all); spent < n*64 {
		t.Errorf("%d forms cost %d", n, spent)
	}
}

// If capacity becomes free elsewhere, or too little of the missing resource becomes free, a
// refused candidate is not searched for again. The core therefore decides a batch that
// fits, although many batches before it do not fit and executors change between all cycles.
func TestFittingCandidatesAreDecidedWhileExecutorsChange(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 40 {
		g := small(fmt.Sprintf("a%02d", i), 1000, 1)
		g.Attributes = map[string]string{"rack": "a"}
		r.ready(g)
	}
	r.ready(small("z", 1000, 1))
	var entries []model.Candidate
	for i := range 5 {
		k := cpu(int64(500 + i))
		k.Attributes = map[string]string{"rack": "a"}
		e := r.queue(fmt.Sprintf("large-%d", i), 50, k)
		e.Group = e.UID
		entries = append(entries, e)
	}
	last := r.queue("fits", 1, cpu(1000))
	last.Group = "fits"
	entries = append(entries, last)
	r.cycle(entries[0])
	r.core.index.Limits.Work = 2 * r.core.index.Work
	for cycle := 1; ; cycle++ {
		outcomes := r.cycle(entries...)
		if outcomes[len(entries)-1].Result == model.Granted {
			return
		}
		if cycle > len(entries) {
			t.Fatalf("after %d cycles: %+v", cycle, outcomes)
		}
		other := small("other", 10, 1)
		other.Nonce = fmt.Sprintf("n%d", cycle)
		r.ready(other)
	}
}

// An answer must fit in one message, so a cycle with a large answer ends early. Later
// cycles decide the remaining candidates, because outcomes that were answered are not
// repeated.
func TestAnAnswerIsOneMessage(t *testing.T) {
	const n = 40
	r := lead(DefaultConfig())
	r.core.answerLimit = 500
	r.ready(small("e", 1000, 1))
	var entries []model.Candidate
	for i := range n {
		k := cpu(2000 + int64(i)) // more than an executor has
		entries = append(entries, r.queue(fmt.Sprintf("u%02d", i), 1, k))
	}
	last := r.queue("last", 1, cpu(1000))
	entries = append(entries, last)
	first := r.rev
	for cycles := 1; ; cycles++ {
		later := 0
		value, err := r.do(model.Cycle{Term: r.registryTerm(), Number: first + int64(cycles), Cut: r.rev,
			Candidates: entries})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range value.([]model.Outcome) {
			i := slices.IndexFunc(entries, func(e model.Candidate) bool { return e.UID == o.UID })
			switch {
			case o.Result == model.Later:
				later++
			case o.Result == model.Granted && o.UID == "last":
			case later > 0 || o.Result != model.NoFit:
				t.Fatalf("%+v after %d that were not looked at", o, later)
			default:
				entries[i] = again(entries[i])
			}
		}
		if later == 0 {
			if cycles < 3 || cycles > n/2 {
				t.Errorf("%d cycles", cycles)
			}
			return
		}
		if cycles > n {
			t.Fatalf("%d cycles do not get to the end", cycles)
		}
	}
}
