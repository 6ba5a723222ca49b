package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// fleet simulates executor-state for a scheduler. All groups share the free slots, or each
// group has its own.
type fleet struct {
	*Scheduler
	now     time.Time
	free    map[string]int // by SKU; "" for the slots of all groups
	entries map[string]*Entry
	granted []string
	// candidates counts the candidates of all cycles.
	candidates int
}

func newFleet(config Config) *fleet {
	f := &fleet{Scheduler: New(config), now: time.Unix(1, 0), free: map[string]int{}, entries: map[string]*Entry{}}
	f.Lead(10)
	return f
}

// queue adds a reservation of a group, after all others.
func (f *fleet) queue(sku string, workers int) *model.Reservation {
	epoch := int64(100 + len(f.entries))
	r := &model.Reservation{UID: fmt.Sprint("u", epoch), Epoch: epoch, Mod: epoch, Place: epoch,
		Workers: model.WorkerSet{{Last: int32(workers) - 1, Number: 1}},
		Spec:    model.Spec{Constraints: constraint.Constraints{SKU: sku}}}
	f.entries[r.UID] = &Entry{}
	f.Add(f.entries[r.UID], r)
	return r
}

// run answers cycles until the scheduler starts no more, and returns how many it started.
func (f *fleet) run(t interface{ Fatalf(string, ...any) }) (cycles int) {
	for ; ; cycles++ {
		f.now = f.NextCycle()
		cycle, started := f.StartCycle(f.now, 1<<40)
		if !started {
			return cycles
		}
		if cycles > 100_000 {
			t.Fatalf("the cycles do not end")
		}
		f.candidates += len(cycle.Candidates)
		done := CycleDone{Cycle: cycle.Number}
		stopped, end := map[string]bool{}, len(cycle.Candidates)
		for i, c := range cycle.Candidates {
			r := f.entries[c.UID].reservation
			o := model.Outcome{UID: c.UID, Result: model.Behind}
			switch sku := r.Spec.Constraints.SKU; {
			case stopped[c.Group]:
			case i >= end:
				o.Result = model.Later
			case f.take(sku, r.Workers.Len()):
				o.Result = model.Granted
				f.granted = append(f.granted, c.UID)
				if c.NextAt > 0 {
					end = min(end, int(c.NextAt))
				}
			default:
				o.Result, o.Reason = model.NoFit, fault.ReasonInsufficientCapacity
			}
			stopped[c.Group] = o.Result != model.Granted
			done.Outcomes = append(done.Outcomes, o)
		}
		f.CycleDone(f.now, done, func(uid string, o *model.Outcome) {
			if o.Result == model.Granted {
				f.Remove(f.entries[uid])
			}
		})
	}
}

// take uses slots of a group, or reports that they are not free.
func (f *fleet) take(sku string, slots int) bool {
	if _, own := f.free[sku]; !own {
		sku = ""
	}
	if f.free[sku] < slots {
		return false
	}
	f.free[sku] -= slots
	return true
}

// Capacity that becomes free goes to the reservations of all groups in one order, as if
// one cycle had tried them all. That holds for any depths of the groups, for groups that
// are not due, and for any bounds of a cycle.
func TestNoGroupOvertakesAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(Config{
			CycleCandidates: rapid.SampledFrom([]int{1, 2, 512}).Draw(t, "candidates"),
			CycleWorkers:    rapid.SampledFrom([]int{2, 50_000}).Draw(t, "workers"),
			CycleBytes:      rapid.SampledFrom([]int{1000, 12 << 20}).Draw(t, "bytes"),
		})
		var all []*model.Reservation
		queue := func() {
			all = append(all, f.queue(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "group"),
				rapid.IntRange(1, 3).Draw(t, "size")))
		}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for range rapid.IntRange(0, 12).Draw(t, "reservations") {
				queue()
			}
			f.free[""] += rapid.IntRange(0, 8).Draw(t, "free")
			want := greedy(all, f.free[""])
			if rapid.Bool().Draw(t, "wake") {
				f.Wake(WakeInventory)
			} else if n := len(f.granted); n == len(all) || len(want) == 0 {
				continue // nothing triggers a cycle
			} else {
				f.makeDue(f.groups[rapid.SampledFrom(f.ids()).Draw(t, "due")])
			}
			f.granted = nil
			f.run(t)
			slices.Sort(f.granted)
			if !slices.Equal(f.granted, want) {
				t.Fatalf("%v are granted, want %v", f.granted, want)
			}
			all = slices.DeleteFunc(all, func(r *model.Reservation) bool { return slices.Contains(want, r.UID) })
		}
	})
}

// ids returns the IDs of the groups that are not empty.
func (f *fleet) ids() (ids []string) {
	for _, g := range f.Groups() {
		ids = append(ids, g.ID)
	}
	return ids
}

// greedy returns the reservations that get slots if all are tried in order, and each group
// stops at its first one that does not fit.
func greedy(all []*model.Reservation, free int) (granted []string) {
	stopped := map[string]bool{}
	for _, r := range all {
		sku := r.Spec.Constraints.SKU
		if stopped[sku] = stopped[sku] || r.Workers.Len() > free; !stopped[sku] {
			free -= r.Workers.Len()
			granted = append(granted, r.UID)
		}
	}
	return granted
}

// The number of cycles that use up free capacity depends on the number of reservations that
// fit and on the bounds of a cycle, but not on the number of groups, however the groups
// interleave. Before, no reservation fitted, so each group offers only its head.
func TestCyclesDoNotGrowWithTheGroups(t *testing.T) {
	const groups, each = 400, 20
	for name, c := range map[string]struct {
		interleaved bool
		own         int // free slots of each group; 0 for slots of all groups
		most        int
	}{
		"group after group":                   {false, 0, groups*each/512 + 12},
		"interleaved":                         {true, 0, groups*each/512 + 12},
		"one slot for each, after another":    {false, 1, 5},
		"three slots for each, interleaved":   {true, 3, 8},
		"three slots for each, after another": {false, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(Config{})
			for i := range groups * each {
				group := i / each
				if c.interleaved {
					group = i % groups
				}
				f.queue(fmt.Sprint("sku", group), 1)
			}
			f.run(t)
			for group := range groups {
				if f.free[fmt.Sprint("sku", group)] = c.own; c.own == 0 {
					delete(f.free, fmt.Sprint("sku", group))
					f.free[""] += each
				}
			}
			f.Wake(WakeInventory)
			f.candidates = 0
			cycles := f.run(t)
			t.Log(strings.TrimSpace(fmt.Sprintln(cycles, "cycles with", f.candidates, "candidates grant", len(f.granted))))
			want := groups * max(c.own, 0)
			if c.own > 0 && len(f.granted) != want || c.own == 0 && len(f.granted) != groups*each {
				t.Errorf("%d are granted", len(f.granted))
			}
			if cycles > c.most {
				t.Errorf("%d cycles, want at most %d", cycles, c.most)
			}
		})
	}
}
