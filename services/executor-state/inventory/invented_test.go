package inventory

import (
	"math"
	"strconv"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// stranded returns a core that can place one worker after another. next sends the
// registry's next cycle.
func stranded(t *testing.T) (r *rig, next func() error) {
	t.Helper()
	r = lead(DefaultConfig())
	r.ready(small("h1", 80_000, 80))
	cycle, n := int64(0), 0
	return r, func() error {
		cycle++
		n++
		value, err := r.do(model.Cycle{Term: r.registryTerm(), Number: cycle, Cut: r.rev,
			Candidates: []model.Candidate{r.queue("u"+strconv.Itoa(n), 1, cpu(1))}})
		if fault.Is(err, fault.ReasonLowerCycle) {
			newest, parseErr := strconv.ParseInt(fault.Of(err).Meta[fault.MetaNewestCycle], 10, 64)
			if parseErr != nil {
				t.Fatalf("the refusal names no number: %v", err)
			}
			cycle = newest
		}
		if err == nil && value.([]model.Outcome)[0].Result != model.Granted {
			t.Fatalf("%+v", value)
		}
		return err
	}
}

// However high its term, a call whose term has no leader does not stop leasing.
func TestAnInventedTermStopsNoLeasing(t *testing.T) {
	r, next := stranded(t)
	for _, term := range []int64{math.MaxInt64, r.rev + 1000, r.rev, r.registryTerm() + 1, r.registryTerm() - 1, 0, -1,
		math.MinInt64} {
		if _, err := r.do(model.Cycle{Term: term, Number: 7, Cut: r.rev}); err == nil {
			t.Errorf("a cycle of term %d was accepted", term)
		}
		if err := next(); err != nil {
			t.Errorf("after term %d: %v", term, err)
		}
	}
}

// If the cycle number of a call leaves no higher numbers, it costs the registry at most one
// round trip.
func TestAnInventedCycleNumberCostsOneRoundTrip(t *testing.T) {
	r, next := stranded(t)
	for _, cycle := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1<<62 + 1<<21, -1, math.MinInt64} {
		if _, err := r.do(model.Cycle{Term: r.registryTerm(), Number: cycle, Cut: r.rev}); !fault.Is(err,
			fault.ReasonInvalid) {
			t.Errorf("cycle %d: %v", cycle, err)
		}
		if err := next(); err != nil {
			t.Errorf("after cycle %d: %v", cycle, err)
		}
	}
	for _, cycle := range []int64{1000, 1 << 40, 1 << 62, 1<<62 + 1<<20} {
		if _, err := r.do(model.Cycle{Term: r.registryTerm(), Number: cycle, Cut: r.rev}); err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		if err := next(); !fault.Is(err, fault.ReasonLowerCycle) {
			t.Fatalf("after cycle %d: %v", cycle, err)
		}
		for range 3 {
			if err := next(); err != nil {
				t.Fatalf("after cycle %d, above the number that was named: %v", cycle, err)
			}
		}
	}
}

// Each term of the registry has its own cycle numbers.
func TestEachTermHasItsOwnCycleNumbers(t *testing.T) {
	r, next := stranded(t)
	if _, err := r.do(model.Cycle{Term: r.registryTerm(), Number: 1 << 62, Cut: r.rev}); err != nil {
		t.Fatal(err)
	}
	r.write(leaderKey{model.ServiceRegistry})
	r.keys[model.LeaderRef(model.ServiceRegistry)] = key{record: leaderKey{model.ServiceRegistry}, create: r.rev,
		mod: r.rev}
	r.unseen[len(r.unseen)-1].Create = r.rev
	r.catchUp()
	if err := next(); err != nil {
		t.Error(err)
	}
}

// If a term is in the store but not in the view yet, the core knows the term from
// LeaderTerm until the view has passed it.
func TestATermAheadOfTheViewIsKnownByLeads(t *testing.T) {
	c := New(DefaultConfig())
	c.Step(start, model.Elected{Term: 10, Revision: 10})
	ref := model.LeaderRef(model.ServiceRegistry)
	changed := func(mod, create int64) {
		change := model.Changed{Ref: ref, Mod: mod, Create: create}
		if create != 0 {
			change.Record = &model.Leader{}
		}
		c.Step(start, change)
		c.Step(start, model.Progress{Revision: mod})
	}
	refused := func(term int64) error {
		err := c.admit(model.Cycle{Term: term, Number: 1})
		return err
	}
	changed(11, 11)
	if err := refused(20); fault.Of(err).Kind != fault.Unavailable {
		t.Errorf("ahead of the view: %v", err)
	}
	c.Step(start, model.LeaderTerm{Service: model.ServiceRegistry, Term: 20})
	if err := refused(20); err != nil {
		t.Errorf("term reported by Leads: %v", err)
	}
	changed(15, 0) // an earlier leader's key is deleted
	if err := refused(20); err != nil {
		t.Errorf("after older news: %v", err)
	}
	changed(20, 20)
	if err := refused(20); err != nil {
		t.Errorf("in the view: %v", err)
	}
	changed(25, 0)
	c.Step(start, model.LeaderTerm{Service: model.ServiceRegistry, Term: 20}) // an outdated answer
	if err := refused(20); !fault.Is(err, fault.ReasonLowerTerm) {
		t.Errorf("after the view has reached the term: %v", err)
	}
}

// A candidate that differs from its record is not granted. The core does not retry its
// compares.
func TestACandidateThatDiffersFromItsRecordIsStale(t *testing.T) {
	r, next := stranded(t)
	proper := r.queue("a", 2, cpu(1))
	for name, change := range map[string]func(*model.Candidate){
		"epoch":   func(e *model.Candidate) { e.Epoch = math.MaxInt64 },
		"name":    func(e *model.Candidate) { e.Key.Name = "other" },
		"workers": func(e *model.Candidate) { e.Workers = model.WorkerSet{{First: 0, Last: 0, Number: 1}} },
		"mod":     func(e *model.Candidate) { e.Mod-- },
	} {
		entry := proper
		change(&entry)
		if o := r.cycle(entry)[0]; o.Result != model.Stale {
			t.Errorf("another %s: %+v", name, o)
		}
	}
	huge := proper
	huge.Workers = model.WorkerSet{{First: 0, Last: math.MaxInt32, Number: 1}}
	if o := r.cycle(huge)[0]; o.Result != model.NoFit || o.Reason != fault.ReasonInvalid {
		t.Errorf("workers without bound: %+v", o)
	}
	expectGranted(t, r.cycle(proper))
	if err := next(); err != nil && !fault.Is(err, fault.ReasonLowerCycle) {
		t.Error(err)
	}
}
