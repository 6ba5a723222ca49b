package match

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
	_ "berth.dev/testkit/fixedseed"
)

// fleet is an index with its executors, and with their kinds and eligibilities.
type fleet struct {
	*Index
	t         *rapid.T
	executors map[string]*Executor
	kinds     map[string]*Kind
	known     map[string]Eligibility
	// pools has the attributes of each pool by name. closing has the attributes of each
	// request that closes classes, by ID.
	pools   map[string]Attributes
	closing map[string]Attributes
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{
		t: t, executors: map[string]*Executor{}, kinds: map[string]*Kind{}, known: map[string]Eligibility{},
		pools: map[string]Attributes{}, closing: map[string]Attributes{},
	}
	f.Index = New(f)
	return f
}

func (f *fleet) Executor(id string) *Executor { return f.executors[id] }

func (f *fleet) PoolsOf(h constraint.Host) []string {
	return selecting(f.pools, AttributesOf(h.Attributes))
}

func (f *fleet) ClosedBy(attributes Attributes) []string { return selecting(f.closing, attributes) }

func selecting(selectors map[string]Attributes, attributes Attributes) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(selectors)) {
		if attributes.Contain(selectors[name]) {
			names = append(names, name)
		}
	}
	return names
}

// rebuilt returns a fleet with the current executors and a new index.
func (f *fleet) rebuilt() *fleet {
	fresh := newFleet(f.t)
	fresh.pools, fresh.closing, fresh.Limits = f.pools, f.closing, f.Limits
	for _, id := range slices.Sorted(maps.Keys(f.executors)) {
		e := &Executor{ID: id, Ordinal: f.executors[id].Ordinal, Leased: f.executors[id].Leased}
		fresh.executors[id] = e
		fresh.Set(e, f.kinds[id])
		fresh.Place(e, f.known[id])
	}
	return fresh
}

var (
	zones = []map[string]string{nil, {"zone": "a"}, {"Zone": "A"}, {"zone": "b", "rack": "1"},
		{"zone": "b", "rack": "2"}}
	selectors = []map[string]string{{"zone": "a"}, {"zone": "B"}, {"rack": "1"}}
)

func (f *fleet) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(f.t, what) }

func (f *fleet) kind() *Kind {
	k := &Kind{
		SKU: []string{"small", "Small", "large"}[f.draw(3, "sku")], Attributes: zones[f.draw(len(zones), "zone")],
		Generation: int64(f.draw(2, "generation")),
		Resources:  resource.Vector{"cpu": int64(f.draw(6, "cpu")), "slots": int64(f.draw(6, "slots"))},
	}
	if f.draw(3, "gpu") == 0 {
		k.Resources["gpu"] = 2
	}
	if f.draw(3, "reserved") == 0 {
		k.Reserved = map[string]resource.Vector{"web": {"cpu": min(1, k.Resources["cpu"])}}
	}
	return k
}

// change makes one random change of those that an owner of the index may make.
func (f *fleet) change() {
	id := fmt.Sprintf("h%d", f.draw(8, "executor"))
	e := f.executors[id]
	switch f.draw(6, "change") {
	case 0, 1:
		if e == nil {
			e = &Executor{ID: id, Leased: &Leased{}}
			f.executors[id] = e
		} else {
			f.Unplace(e)
		}
		f.kinds[id] = f.kind()
		f.Set(e, f.kinds[id])
		f.Place(e, f.known[id])
	case 2:
		if e != nil {
			f.Unplace(e)
			f.Set(e, nil)
			delete(f.executors, id)
		}
	case 3:
		if e != nil {
			f.Unplace(e)
			e.Leased.Add(1, resource.Vector{"cpu": 1, "slots": 1}, []string{"", "web"}[f.draw(2, "role")])
			f.known[id] = Eligibility(f.draw(int(Overcommitted), "eligibility"))
			f.Place(e, f.known[id])
		}
	case 4:
		name := fmt.Sprintf("p%d", f.draw(2, "pool"))
		if _, there := f.pools[name]; there {
			delete(f.pools, name)
		} else {
			f.pools[name] = AttributesOf(selectors[f.draw(len(selectors), "members")])
		}
		f.SetPools(f.PoolsOf)
	default:
		request := fmt.Sprintf("d%d", f.draw(2, "request"))
		attributes, there := f.closing[request]
		if there {
			delete(f.closing, request)
		} else {
			attributes = AttributesOf(selectors[f.draw(len(selectors), "closed")])
			f.closing[request] = attributes
		}
		for k := range f.Classes(attributes) {
			f.Close(k, request, !there)
		}
	}
}

// search draws a request. Some requests need a selection.
func (f *fleet) search() (constraint.Constraints, int) {
	k := constraint.Constraints{Resources: resource.Vector{"cpu": int64(f.draw(3, "cpus")), "slots": 1},
		Pack: f.draw(2, "pack") == 0, SameShape: f.draw(3, "sameShape") == 0}
	if f.draw(2, "zoned") == 0 {
		k.Attributes = selectors[f.draw(len(selectors), "selected")]
	}
	if f.draw(3, "pooled") == 0 {
		k.Pools = []string{"P0"}
	}
	if f.draw(3, "spread") == 0 {
		k.Spread = constraint.Spread{By: "rack", Max: 1}
	}
	return k, 1 + f.draw(5, "workers")
}

// After any changes, an index equals a new index of the same executors. Both find the same
// executors.
func TestIndexEqualsNewIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		f.Limits.Block, f.Limits.Narrow = 1+f.draw(4, "block"), f.draw(3, "narrow")
		f.Limits.Selections = 1 + f.draw(4, "selections")
		for range 5 + f.draw(25, "steps") {
			f.change()
			fresh := f.rebuilt()
			if got, want := f.dump(), fresh.dump(); got != want {
				t.Fatalf("the index differs:\n%s\nnew index:\n%s", got, want)
			}
			k, n := f.search()
			picks, refusal := f.Choose(k, n, nil)
			freshPicks, freshRefusal := fresh.Choose(k, n, nil)
			if got, want := words(picks, refusal), words(freshPicks, freshRefusal); got != want {
				t.Fatalf("found %s, with a new index %s: %+v", got, want, k)
			}
			if refusal != nil {
				if most := f.timesInTotals(f.Query(k)); int64(refusal.Fitting) > most {
					t.Fatalf("%d fit, sums allow %d at most: %+v", refusal.Fitting, most, k)
				}
			}
			f.checkSelections()
		}
		for _, text := range slices.Sorted(maps.Keys(f.selections.byText)) {
			f.selections.drop(f.selections.byText[text])
		}
		if left := len(f.selections.attributes); left > 0 || len(f.selections.broad) > 0 {
			t.Fatalf("%d attribute indexes and %d broad selections left", left, len(f.selections.broad))
		}
	})
}

func words(picks []Pick, r *Refusal) (text string) {
	for _, p := range picks {
		text += fmt.Sprintf(" %s:%d", p.Executor.ID, p.Workers)
	}
	if r != nil {
		text += fmt.Sprint(r.Fitting, r.Reason, r.Message)
	}
	return text
}

func TestCloseMovesNoExecutor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		for i := range 300 {
			e := &Executor{ID: fmt.Sprint(i), Leased: &Leased{}}
			f.Set(e, &Kind{Attributes: zones[1], Resources: resource.Vector{"slots": int64(1 + i)}})
			f.Place(e, Eligible)
		}
		blocks := slices.Clone(f.layouts[0].free.blocks)
		for k := range f.Classes(nil) {
			if f.Close(k, "d", true); len(f.Free()) > 0 {
				t.Fatalf("free: %v", f.Free())
			}
			f.Close(k, "d", false)
		}
		if !slices.Equal(blocks, f.layouts[0].free.blocks) || f.Free()["slots"] != 300*301/2 {
			t.Fatalf("the blocks changed, or free is %v", f.Free())
		}
	})
}

// dump returns everything that the index derives. It omits how executors are divided into
// blocks, because that depends on earlier changes.
func (f *fleet) dump() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, id := range slices.Sorted(maps.Keys(f.executors)) {
		e := f.executors[id]
		if e.class.executors[e.at] != e {
			f.t.Fatalf("%s is not at its place in its class", id)
		}
		line("%s class=%s shape=%s eligibility=%d listed=%v free=%v", id, e.class.key, e.shape.key, e.eligibility, e.listed,
			e.free)
	}
	for _, key := range slices.Sorted(maps.Keys(f.classes)) {
		k := f.classes[key]
		line("class %s counts=%v pools=%q closed %v by %v", key, k.counts, k.host.Pools, f.closed.has(k.index), k.closedBy)
	}
	most := 0
	for _, key := range slices.Sorted(maps.Keys(f.shapes.byKey)) {
		s := f.shapes.byKey[key]
		line("shape %s size=%d counts=%v", key, s.size, s.counts)
		most = max(most, s.counts[Eligible])
	}
	if most != f.shapes.mostEligible {
		f.t.Fatalf("the most eligible executors of a shape are %d, recorded are %d", most, f.shapes.mostEligible)
	}
	for _, of := range slices.SortedFunc(slices.Values(f.layouts),
		func(a, b *layout) int { return cmp.Compare(a.key, b.key) }) {
		line("layout %s shapes=%d", of.key, of.shapes)
		line(" free %s", f.dumpIndex(&of.free))
		line(" idle %s", f.dumpIndex(&of.idle))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Index.pools)) {
		line("pool %q classes=%d living=%d", name, f.Index.pools[name].classes, f.Index.pools[name].Living)
	}
	for _, folded := range slices.Sorted(maps.Keys(f.skus)) {
		s := f.skus[folded]
		line("sku %s %v spelled %v most=%v", folded, slices.Sorted(maps.Keys(s.shapes)), s.spellings, s.Most())
		for _, name := range slices.Sorted(maps.Keys(s.free)) {
			if *s.free[name] != (sum{}) {
				line(" free %s %+v", name, *s.free[name])
			}
		}
	}
	line("%s%d classes are closed, free %v, capacity %v, %d executors", f.dumpSelection(f.selections.wholeFleet),
		f.closed.classes, f.Free(), f.Capacity(), f.Index.executors)
	return b.String()
}

func (f *fleet) dumpIndex(of *capacityIndex) string {
	var all []string
	for i, b := range of.blocks {
		f.checkBlock(b)
		for at, e := range b.executors {
			if of.find(positionOf(e, b.point(at))) != i {
				f.t.Fatalf("%s is not in the block of its position", e.ID)
			}
			if b.traits[at] != e.traits() || b.shapes[at] != e.shape {
				f.t.Fatalf("the traits of %s are not those in its block", e.ID)
			}
			all = append(all, fmt.Sprintf("%s %v", e.ID, b.point(at)))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// checkBlock fails if an executor is outside the bounds of its block or in the wrong order.
func (f *fleet) checkBlock(b *block) {
	if len(b.executors) == 0 || len(b.executors) != len(b.traits) || len(b.amounts) != len(b.executors)*len(b.low) {
		f.t.Fatal("the slices of a block do not match")
	}
	if !slices.IsSortedFunc(b.executors, Compare) {
		f.t.Fatal("a block is not in order of rank")
	}
	sums := make([]sum, len(b.low))
	for at, k := range b.traits {
		if k.sku < b.lowSKU || k.sku > b.highSKU {
			f.t.Fatal("a SKU is out of bounds")
		}
		for i, amount := range b.point(at) {
			if amount < b.low[i] || amount > b.high[i] {
				f.t.Fatal("an amount is out of bounds")
			}
			sums[i].add(amount)
		}
	}
	if !slices.Equal(sums, b.sums) {
		f.t.Fatal("the sums of a block are wrong")
	}
}

// dumpSelection returns the classes of a selection as text.
func (f *fleet) dumpSelection(s *selection) string {
	var keys []string
	for k := range f.selections.all(s) {
		keys = append(keys, k.key)
	}
	slices.Sort(keys)
	return fmt.Sprintf("selection %s classes=%d: %s\n", s.text(), s.classes, strings.Join(keys, " "))
}

// checkSelections compares each selection with a new selection.
func (f *fleet) checkSelections() {
	for _, text := range slices.Sorted(maps.Keys(f.selections.byText)) {
		kept := f.selections.byText[text]
		if kept.text() != text {
			f.t.Fatalf("a selection is under the text %s", text)
		}
		got := f.dumpSelection(kept)
		fresh := f.selections.create(kept.selector)
		want := f.dumpSelection(fresh)
		// The new selection is not in byText, but drop deletes the entry that has its text.
		f.selections.drop(fresh)
		f.selections.byText[text] = kept
		if got != want {
			f.t.Fatalf("a selection differs:\n%s\nnew selection:\n%s", got, want)
		}
	}
	for name, attribute := range f.selections.attributes {
		if attribute.users == 0 {
			f.t.Fatalf("the index of attribute %s has no user", name)
		}
		for k := range f.selections.all(f.selections.wholeFleet) {
			of, value := attribute.ofClass(k.index), k.value(name)
			if of != attribute.values[value] && (value != "" || of != &attribute.none) {
				f.t.Fatalf("the index of attribute %s has a class with %q at another value", name, value)
			}
		}
	}
}

// value returns the class's folded value of an attribute, or an empty string.
func (k *Class) value(name string) string {
	for _, a := range k.attributes {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

func TestSumSubtractsExactly(t *testing.T) {
	var s sum
	for range 3 {
		s.add(math.MaxInt64)
	}
	if s.saturated() != math.MaxInt64 || s.float() != 3*(1<<63) {
		t.Fatalf("three times 2⁶³−1 is %v", s.float())
	}
	for range 3 {
		s.add(-math.MaxInt64)
	}
	if s != (sum{}) {
		t.Fatalf("the sum is not zero: %+v", s)
	}
}
