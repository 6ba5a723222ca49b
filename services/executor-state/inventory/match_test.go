package inventory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"pgregory.net/rapid"
)

// obvious places a batch worker by worker, looking at every executor for each.
// It is what choose is to do, and far too slow.
type obvious struct {
	k     constraint.Constraints
	left  int
	hosts []*host
	total map[string]float64
	// taken counts the batch's workers by executor and by domain.
	taken   map[*host]int64
	domains map[string]int64
}

func newObvious(c *Core, k constraint.Constraints, n int) *obvious {
	o := &obvious{k: k, left: n, total: map[string]float64{}, taken: map[*host]int64{}, domains: map[string]int64{}}
	others := 0
	var matching []*host
	for h := range c.byID.all() {
		if h.state != model.ExecutorReady || !h.executor.Resources.Fits(h.hold.used) {
			continue
		}
		for name := range h.executor.Resources {
			o.total[name] += float64(o.free(h)[name])
		}
		if ok, _ := kind(k).Match(h.executor.Match()); ok && h.executor.Resources.Fits(k.Resources) {
			matching = append(matching, h)
			if !slices.Contains(k.Avoid, h.id) {
				others++
			}
		}
	}
	for _, h := range matching {
		if others == 0 || !slices.Contains(k.Avoid, h.id) {
			o.hosts = append(o.hosts, h)
		}
	}
	return o
}

func (o *obvious) free(h *host) resource.Vector {
	return h.executor.Resources.Plus(-1, h.hold.used).Plus(-o.taken[h], o.k.Resources)
}

func (o *obvious) domain(h *host) string {
	return strings.ToLower(h.executor.Match().Attribute(o.k.Spread.By))
}

// room is how many more workers the executor may take.
func (o *obvious) room(h *host) int64 {
	room := min(o.free(h).Times(o.k.Resources), int64(o.left))
	if limit := int64(o.k.Spread.Max); limit > 0 {
		if o.k.Spread.By == constraint.ByExecutor {
			room = min(room, limit-o.taken[h])
		} else {
			room = min(room, limit-o.domains[o.domain(h)])
		}
	}
	return room
}

func (o *obvious) score(h *host) float64 {
	score := 0.0
	for name, left := range o.free(h).Plus(-1, o.k.Resources) {
		if left > 0 {
			score = max(score, float64(left)/o.total[name])
		}
	}
	return score
}

func (o *obvious) compare(a, b *host) int {
	if o.k.Pack {
		if order := cmp.Or(-cmp.Compare(min(o.taken[a], 1), min(o.taken[b], 1)), -cmp.Compare(o.room(a), o.room(b))); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(o.score(a), o.score(b)), -cmp.Compare(a.generation, b.generation), cmp.Compare(a.id, b.id))
}

// best is the executor for the next worker, nil when there is none.
func (o *obvious) best() *host {
	var best *host
	for _, h := range o.hosts {
		if o.room(h) > 0 && (best == nil || o.compare(h, best) < 0) {
			best = h
		}
	}
	return best
}

// place answers the executor of each worker that fits.
func (o *obvious) place() (ids []string) {
	for o.left > 0 {
		h := o.best()
		if h == nil {
			break
		}
		o.taken[h]++
		o.domains[o.domain(h)]++
		o.left--
		ids = append(ids, h.id)
	}
	return ids
}

func obviousChoice(c *Core, k constraint.Constraints, n int) []string {
	if !k.SameShape {
		return newObvious(c, k, n).place()
	}
	var shapes []string
	for h := range c.byID.all() {
		shapes = append(shapes, shapeOf(h))
	}
	slices.Sort(shapes)
	var most []string
	var opening *host
	for _, shape := range slices.Compact(shapes) {
		o := newObvious(c, k, n)
		o.hosts = slices.DeleteFunc(o.hosts, func(h *host) bool { return shapeOf(h) != shape })
		first := o.best()
		ids := o.place()
		fresh := newObvious(c, k, n)
		if len(ids) > len(most) || len(ids) == n && len(most) == n && fresh.compare(first, opening) < 0 {
			most, opening = ids, first
		}
	}
	return most
}

func shapeOf(h *host) string {
	return strings.ToLower(h.executor.SKU) + h.executor.Resources.Canonical()
}

func chosen(picks []pick) (ids []string) {
	for _, p := range picks {
		for range p.workers {
			ids = append(ids, p.host.id)
		}
	}
	return ids
}

// evenly draws without rapid's leaning to small numbers, which would make
// fleets on which hardly anything fits.
func evenly[T any](values ...T) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) T {
		return values[rapid.Uint64().Draw(t, "bits")*0x9e3779b97f4a7c15>>32%uint64(len(values))]
	})
}

var (
	anyAmount = evenly[int64](0, 1, 2, 3, 4, 4, 6, 6)
	anySKU    = evenly("small", "Small", "large")
	anyZone   = evenly(nil, map[string]string{"zone": "a"}, map[string]string{"Zone": "A"}, map[string]string{"zone": "b", "rack": "1"}, map[string]string{"zone": "b", "rack": "2"})
)

func drawConstraints(t *rapid.T) constraint.Constraints {
	k := constraint.Constraints{
		Resources: resource.Vector{"cpu": evenly[int64](0, 1, 1, 2, 3).Draw(t, "cpu"), "slots": evenly[int64](1, 1, 2).Draw(t, "slots")},
		SKU:       evenly("", "", "", "SMALL", "large").Draw(t, "sku"),
		SameShape: rapid.Bool().Draw(t, "sameShape"), Pack: rapid.Bool().Draw(t, "pack"),
		Avoid: rapid.SliceOfN(rapid.SampledFrom([]string{"h0", "h1", "h2", "h7"}), 0, 3).Draw(t, "avoid"),
	}
	if evenly(0, 1, 2, 3, 4).Draw(t, "gpu?") == 0 {
		k.Resources["gpu"] = 1
	}
	if evenly(0, 1, 2).Draw(t, "zoned") == 0 {
		k.Attributes = map[string]string{"ZONE": rapid.SampledFrom([]string{"a", "B", "c"}).Draw(t, "zone")}
	}
	if rapid.Bool().Draw(t, "spread") {
		k.Spread = constraint.Spread{By: rapid.SampledFrom([]string{"executor", "Rack", "zone"}).Draw(t, "by"), Max: rapid.Int32Range(1, 3).Draw(t, "max")}
	}
	return k
}

func drawRegister(t *rapid.T, id string) Register {
	g := Register{
		ID: id, Address: id + ":1", SKU: anySKU.Draw(t, "sku"), Attributes: anyZone.Draw(t, "zone"),
		Generation: rapid.Int64Range(0, 2).Draw(t, "generation"), Nonce: rapid.StringMatching("n[0-9]").Draw(t, "nonce"),
		Resources: resource.Vector{"cpu": anyAmount.Draw(t, "cpu"), "slots": anyAmount.Draw(t, "slots")},
	}
	if rapid.Bool().Draw(t, "gpu") {
		g.Resources["gpu"] = 2
	}
	return g
}

// The matcher looks at classes and buckets; worker by worker over executors it
// would choose the same ones in the same order, and count the same.
func TestMatcherEqualsTheObviousOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		for i := range evenly(0, 1, 3, 6, 9, 12).Draw(t, "executors") {
			g := drawRegister(t, fmt.Sprintf("h%d", i))
			r.ready(g)
			if evenly(0, 1, 2, 3, 4, 5, 6).Draw(t, "silent") == 0 {
				r.tellGone(model.Ref{Kind: model.KindLive, ID: g.ID})
			}
		}
		for i := range evenly(1, 3, 6).Draw(t, "batches") {
			k, n := drawConstraints(t), evenly(1, 2, 3, 4, 6, 9).Draw(t, "n")
			before := dump(r.core)
			picks, fitting := r.core.choose(k, n)
			if after := dump(r.core); after != before {
				t.Fatalf("choosing changed the inventory")
			}
			want := obviousChoice(r.core, k, n)
			if fitting != len(want) {
				t.Fatalf("%d of %d fit, want %d %v: %+v", fitting, n, len(want), want, k)
			}
			if got := chosen(picks); fitting == n && !slices.Equal(got, want) {
				t.Fatalf("chose %v, want %v: %+v\n%s", got, want, k, before)
			}
			// What is granted makes the next one's fleet.
			uid := fmt.Sprintf("u%d", i)
			outcome := r.pass(r.queue(uid, n, k))[0]
			if (outcome.Result == Granted) != (fitting == n) || outcome.Fitting != fitting {
				t.Fatalf("fitting %d of %d, and the pass said %+v", fitting, n, outcome)
			}
		}
	})
}

func TestOrderedEqualsSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := ordered[int]{compare: cmp.Compare[int]}
		var list []int
		for range evenly(1, 10, 40).Draw(t, "rounds") {
			// Runs of neighbours make nodes split and empty.
			from := int(rapid.Uint64().Draw(t, "from") % 3000)
			end := from + evenly(1, 100, 700).Draw(t, "run")
			for n := from; n < end; n++ {
				at, found := slices.BinarySearch(list, n)
				if found {
					list = slices.Delete(list, at, at+1)
					set.remove(n)
				} else {
					list = slices.Insert(list, at, n)
					set.insert(n)
				}
			}
			if got := slices.Collect(set.all()); !slices.Equal(got, list) || set.len() != len(list) {
				t.Fatalf("got %v, want %v", got, list)
			}
			probe := rapid.IntRange(-1, 3800).Draw(t, "probe")
			at := set.after(probe)
			want := slices.IndexFunc(list, func(n int) bool { return n > probe })
			if got, ok := at.item(); ok != (want >= 0) || ok && got != list[want] {
				t.Fatalf("after %d: %d %v", probe, got, ok)
			}
		}
	})
}

func TestSumComesBackToWhatItWas(t *testing.T) {
	var s sum
	for range 3 {
		s.add(math.MaxUint64)
	}
	if s.saturated() != math.MaxInt64 || s.float() != 3*(1<<64) {
		t.Fatalf("three times 2⁶⁴−1 is %v", s.float())
	}
	for range 3 {
		s.subtract(math.MaxUint64)
	}
	if s != (sum{}) {
		t.Fatalf("something is left: %+v", s)
	}
}
