package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// simpleMatcher places a batch worker by worker, and considers every executor for each
// worker. It defines the results that Choose must have, but is far too slow.
type simpleMatcher struct {
	k     constraint.Constraints
	left  int
	hosts []*host
	// excluded matches the executors to avoid.
	excluded []*host
	// had is the free capacity of each executor for the role of the batch. total is the total
	// free amount of each resource.
	had   map[*host]resource.Vector
	total map[string]float64
	// scarce lists the requested resources, the scarcest first.
	scarce []string
	// taken counts the placed workers of the batch by executor, and domains counts them by
	// domain.
	taken   map[*host]int64
	domains map[string]int64
	// pinned counts the workers of the reservation whose executors are given.
	pinned map[*host]int64
	// others counts the executors on which the batch may start although it avoids some.
	others int
}

// newSimpleMatcher returns a matcher for n workers of a reservation of which others run.
func newSimpleMatcher(c *Core, running map[*host]int64, k constraint.Constraints, n int) *simpleMatcher {
	return newSimpleMatcherPinned(c, running, k, n, nil)
}

// newSimpleMatcherPinned returns a matcher for n workers of a reservation of which others run
// or are on volumes.
func newSimpleMatcherPinned(c *Core, running map[*host]int64, k constraint.Constraints, n int,
	pinned map[string]*host) *simpleMatcher {
	o := &simpleMatcher{k: k, left: n, had: map[*host]resource.Vector{}, total: map[string]float64{},
		taken:   map[*host]int64{},
		domains: map[string]int64{}, pinned: maps.Clone(running)}
	if running == nil {
		o.pinned = map[*host]int64{}
	}
	for _, h := range pinned {
		o.pinned[h]++
	}
	for h, n := range o.pinned {
		o.domains[o.domain(h)] += n
	}
	has := func(lists []string, h *host) bool { return slices.Contains(lists, h.ID) }
	failed := func(h *host) bool { return simpleFailed(c, k, h) }
	var matching []*host
	for h := range c.byID.All() {
		used, common, own := simpleFreePinned(c, h, k, pinned)
		if h.shown() != model.ExecutorReady || h.Record.Draining || h.Withheld() || common == nil {
			continue
		}
		o.had[h] = common.Plus(1, own)
		for name, amount := range h.Record.Resources {
			o.total[name] += float64(amount - used[name])
		}
		idle := h.Record.Resources
		for role, share := range h.Record.Reserved {
			if !strings.EqualFold(role, k.Role) {
				idle = idle.Plus(-1, share)
			}
		}
		as := h.Record.Match()
		as.Pools = c.pools.Of(as)
		if ok, _ := withoutAvoided(k).Match(as); ok && idle.Fits(k.Resources) {
			matching = append(matching, h)
			if !has(k.Avoid, h) && !failed(h) && o.isAllowed(h) {
				o.others++
			}
		}
	}
	for _, h := range matching {
		if has(k.Avoid, h) || o.others > 0 && failed(h) {
			o.excluded = append(o.excluded, h)
		} else {
			o.hosts = append(o.hosts, h)
		}
	}
	free, ratio := map[string]int64{}, map[string]float64{}
	for _, name := range k.Resources.Names() {
		if k.Resources[name] == 0 {
			continue
		}
		for _, h := range o.hosts {
			if o.had[h].Fits(k.Resources) {
				free[name] += o.had[h][name]
			}
		}
		ratio[name] = float64(free[name]) / float64(k.Resources[name])
		o.scarce = append(o.scarce, name)
	}
	slices.SortStableFunc(o.scarce, func(a, b string) int { return cmp.Compare(ratio[a], ratio[b]) })
	return o
}

// simpleFailed reports whether workers failed on an executor, or its allow-lists are those of an
// executor that refused the task.
func simpleFailed(c *Core, k constraint.Constraints, h *host) bool {
	return slices.Contains(k.AvoidFailed, h.ID) || slices.ContainsFunc(k.RefusedBy, func(id string) bool {
		by := c.hosts[id]
		return by != nil && by.Record.AllowLists != "" && by.Record.AllowLists == h.Record.AllowLists
	})
}

// simpleFree adds up all leases and volumes. It returns what they use of the executor, what
// is left of the common part, and what is left of the role's own share. common is nil if they
// use more than the executor has.
func simpleFree(c *Core, h *host, role string) (used, common, own resource.Vector) {
	return simpleFreePinned(c, h, constraint.Constraints{Role: role}, nil)
}

// simpleFreePinned is simpleFree after workers with the constraints start on some volumes.
func simpleFreePinned(c *Core, h *host, k constraint.Constraints, pinned map[string]*host) (used, common,
	own resource.Vector) {
	role := k.Role
	byRole := map[string]resource.Vector{}
	use := func(holder string, amounts resource.Vector) {
		byRole[strings.ToLower(holder)] = byRole[strings.ToLower(holder)].Plus(1, amounts)
		used = used.Plus(1, amounts)
	}
	for _, v := range c.inOrder() {
		switch {
		case v.Ordinal != h.Record.Ordinal:
		case pinned[v.ID] != nil:
			use(k.Role, k.Resources)
		default:
			use(v.Role, v.Holds())
		}
	}
	for _, l := range c.leases {
		for _, chunk := range l.inOrder() {
			for _, p := range chunk.Workers {
				if p.Ordinal == h.Record.Ordinal && !chunk.OnVolumes {
					use(chunk.Role, chunk.Each)
				}
			}
		}
	}
	common = h.Record.Resources.Clone()
	for holder, amounts := range byRole {
		var share resource.Vector
		for name, reserved := range h.Record.Reserved {
			if strings.EqualFold(name, holder) {
				share = reserved
			}
		}
		for name, amount := range amounts {
			common[name] -= max(0, amount-share[name])
		}
	}
	own = resource.Vector{}
	for name, share := range h.Record.Reserved {
		common = common.Plus(-1, share)
		if strings.EqualFold(name, role) {
			for resource, amount := range share {
				own[resource] = max(0, amount-byRole[strings.ToLower(name)][resource])
			}
		}
	}
	for _, amount := range common {
		if amount < 0 {
			return used, nil, nil
		}
	}
	return used, common, own
}

func (o *simpleMatcher) free(h *host) resource.Vector {
	return o.had[h].Plus(-o.taken[h], o.k.Resources)
}

func (o *simpleMatcher) domain(h *host) string {
	return strings.ToLower(h.Record.Match().Attribute(o.k.Spread.By))
}

// spreadLeft returns how many more workers spread allows on the executor.
func (o *simpleMatcher) spreadLeft(h *host) int64 {
	switch limit := int64(o.k.Spread.Max); {
	case limit == 0:
		return int64(o.left)
	case o.k.Spread.By == constraint.ByExecutor:
		return limit - o.taken[h] - o.pinned[h]
	default:
		return limit - o.domains[o.domain(h)]
	}
}

// isAllowed reports whether the workers whose executors are given allow others on the executor.
func (o *simpleMatcher) isAllowed(h *host) bool {
	shape := o.shape()
	return len(o.pinned) == 0 || o.spreadLeft(h) > 0 && (shape == "" || shapeOf(h) == shape)
}

// shape returns the shape of most of the workers whose executors are given, if all workers must
// be on one.
func (o *simpleMatcher) shape() (most string) {
	on := map[string]int64{}
	for h, n := range o.pinned {
		on[shapeOf(h)] += n
	}
	for _, shape := range slices.Sorted(maps.Keys(on)) {
		if o.k.SameShape && on[shape] > on[most] {
			most = shape
		}
	}
	return most
}

// room returns how many more workers fit on the executor.
func (o *simpleMatcher) room(h *host) int64 {
	return min(o.free(h).Times(o.k.Resources), int64(o.left), o.spreadLeft(h))
}

func (o *simpleMatcher) score(h *host) float64 {
	score := 0.0
	for name, free := range o.free(h) {
		if o.k.Resources[name] == 0 && free > 0 {
			score = max(score, float64(free)/o.total[name])
		}
	}
	return score
}

func (o *simpleMatcher) compare(a, b *host) int {
	if o.k.Pack {
		if order := cmp.Or(-cmp.Compare(min(o.pinned[a], 1), min(o.pinned[b], 1)),
			-cmp.Compare(min(o.taken[a], 1), min(o.taken[b], 1)),
			-cmp.Compare(o.room(a), o.room(b))); order != 0 {
			return order
		}
	}
	for _, name := range o.scarce {
		if order := cmp.Compare(o.free(a)[name], o.free(b)[name]); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(o.score(a), o.score(b)), -cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.ID, b.ID))
}

// best returns the executor for the next worker, or nil if none fits.
func (o *simpleMatcher) best() *host {
	var best *host
	for _, h := range o.hosts {
		if o.room(h) > 0 && (best == nil || o.compare(h, best) < 0) {
			best = h
		}
	}
	return best
}

// place returns the ID of the executor for each worker that fits.
func (o *simpleMatcher) place() (ids []string) {
	for o.left > 0 {
		h := o.best()
		if h == nil {
			break
		}
		o.taken[h]++
		o.domains[o.domain(h)]++
		o.left--
		ids = append(ids, h.ID)
	}
	return ids
}

// simpleRunning counts the workers of a reservation that have executors, except those of the
// version with a UID, by looking at all leases and volumes.
func simpleRunning(c *Core, key model.Key, uid string, own model.WorkerSet) map[*host]int64 {
	running := map[*host]int64{}
	for _, v := range c.inOrder() {
		wanted, leased := false, false
		for other, e := range c.reservations {
			r := e.record.(*model.Reservation)
			number, has := r.Workers.Number(v.Index)
			worker := model.WorkerID{Index: v.Index, Number: number}
			wanted = wanted || r.Key == key && other != uid && has && !r.Unwanted.Has(worker) && r.Spec.Volume != nil &&
				(r.State == model.Queued || r.State == model.Active)
		}
		for _, l := range c.leases {
			for _, chunk := range l.inOrder() {
				for _, p := range chunk.Workers {
					leased = leased || chunk.OnVolumes && stageOf(chunk.Key) == v.stage && p.Worker.Index == v.Index
				}
			}
		}
		if _, isOwn := own.Number(v.Index); isOwn || !wanted || leased || stageOf(key) != v.stage || !v.State.Current() ||
			v.State == model.VolumeLost {
			continue
		}
		for h := range c.byID.All() {
			if h.Record.Ordinal == v.Ordinal && !h.Record.Lost {
				running[h]++
			}
		}
	}
	for _, l := range c.leases {
		for _, chunk := range l.inOrder() {
			for _, p := range chunk.Workers {
				for h := range c.byID.All() {
					if chunk.Key == key && h.Record.Ordinal == p.Ordinal && !h.Record.Lost {
						running[h]++
					}
				}
			}
		}
	}
	return running
}

// simpleChoice returns the executors for n workers of the reservation with a key.
func simpleChoice(c *Core, key model.Key, k constraint.Constraints, n int) []string {
	running := simpleRunning(c, key, "", nil)
	if !k.SameShape {
		return newSimpleMatcher(c, running, k, n).place()
	}
	if len(running) > 0 {
		o := newSimpleMatcher(c, running, k, n)
		o.hosts = slices.DeleteFunc(o.hosts, func(h *host) bool { return shapeOf(h) != o.shape() })
		return o.place()
	}
	var shapes []string
	for h := range c.byID.All() {
		shapes = append(shapes, shapeOf(h))
	}
	slices.Sort(shapes)
	var most []string
	var opening *host
	for _, shape := range slices.Compact(shapes) {
		o := newSimpleMatcher(c, nil, k, n)
		o.hosts = slices.DeleteFunc(o.hosts, func(h *host) bool { return shapeOf(h) != shape })
		first := o.best()
		ids := o.place()
		fresh := newSimpleMatcher(c, nil, k, n)
		if len(ids) > len(most) || len(ids) == n && len(most) == n && fresh.compare(first, opening) < 0 {
			most, opening = ids, first
		}
	}
	return most
}

func shapeOf(h *host) string {
	shape := strings.ToLower(h.Record.SKU) + h.Record.Resources.Canonical()
	for _, role := range slices.Sorted(maps.Keys(h.Record.Reserved)) {
		if share := h.Record.Reserved[role].Canonical(); share != "" {
			shape += strings.ToLower(role) + share
		}
	}
	return shape
}

// choose returns the executors for n workers of the reservation with a key. If not all workers
// fit, it returns the number that fit.
func choose(c *Core, key model.Key, k constraint.Constraints, n int) ([]match.Pick, int) {
	picks, refusal := c.index.Choose(k, n, c.pinned(key, "", k, nil))
	if refusal != nil {
		return nil, refusal.Fitting
	}
	return picks, n
}

// withoutAvoided returns a matcher that ignores the lists of avoided executors.
func withoutAvoided(k constraint.Constraints) constraint.Matcher {
	k.Avoid, k.AvoidFailed, k.RefusedBy = nil, nil, nil
	return k.Matcher()
}

func chosen(picks []match.Pick) (ids []string) {
	for _, p := range picks {
		for range p.Workers {
			ids = append(ids, p.Executor.ID)
		}
	}
	return ids
}

// evenly draws without rapid's bias to small numbers. With that bias, hardly any worker
// would fit in a fleet.
func evenly[T any](values ...T) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) T {
		return values[rapid.Uint64().Draw(t, "bits")*0x9e3779b97f4a7c15>>32%uint64(len(values))]
	})
}

var (
	anyAmount = evenly[int64](0, 1, 2, 3, 4, 4, 6, 6)
	anySKU    = evenly("small", "Small", "large")
	anyZone   = evenly(nil, map[string]string{"zone": "a"}, map[string]string{"Zone": "A"},
		map[string]string{"zone": "b", "rack": "1"}, map[string]string{"zone": "b", "rack": "2"})
)

func drawConstraints(t *rapid.T) constraint.Constraints {
	k := constraint.Constraints{
		Resources: resource.Vector{"cpu": evenly[int64](0, 1, 1, 2, 3).Draw(t, "cpu"),
			"slots": evenly[int64](1, 1, 2).Draw(t, "slots")},
		SKU:       evenly("", "", "", "SMALL", "large").Draw(t, "sku"),
		SameShape: rapid.Bool().Draw(t, "sameShape"), Pack: rapid.Bool().Draw(t, "pack"),
		Avoid: rapid.SliceOfN(rapid.SampledFrom([]string{"h0", "h1", "h2", "h7"}), 0, 2).Draw(t, "avoid"),
	}
	k.AvoidFailed = rapid.SliceOfN(rapid.SampledFrom([]string{"h0", "h1", "h2", "h3"}), 0, 3).Draw(t, "failed")
	k.RefusedBy = k.AvoidFailed[:rapid.IntRange(0, len(k.AvoidFailed)).Draw(t, "refused")]
	k.Role = evenly("", "", "web", "WEB", "batch").Draw(t, "role")
	if evenly(0, 1, 2, 3, 4).Draw(t, "gpu?") == 0 {
		k.Resources["gpu"] = 1
	}
	if evenly(0, 1, 2, 3, 4, 5).Draw(t, "memory?") == 0 {
		k.Resources["cpu"], k.Resources["memory"] = rapid.Int64Range(1, 30).Draw(t, "some cpu"),
			evenly[int64](1, 1<<19, 1<<20).Draw(t, "memory")
	}
	if evenly(0, 1, 2, 3, 4, 5, 6).Draw(t, "rare?") == 0 {
		k.Resources["rare-1"] = 1
	}
	if evenly(0, 1, 2).Draw(t, "zoned") == 0 {
		k.Attributes = map[string]string{"ZONE": rapid.SampledFrom([]string{"a", "B", "c"}).Draw(t, "zone")}
	}
	if evenly(0, 1, 2, 3, 4, 5, 6).Draw(t, "serial") == 0 {
		k.Attributes = maps.Clone(k.Attributes)
		if k.Attributes == nil {
			k.Attributes = map[string]string{}
		}
		k.Attributes["Serial"] = evenly("H0", "h1", "h2", "h3").Draw(t, "own")
	}
	if evenly(0, 1, 2, 3, 4, 5).Draw(t, "pooled") == 0 {
		k.Pools = evenly([]string{"P"}, []string{"night"}, []string{"night", "p"}).Draw(t, "pools")
	}
	if rapid.Bool().Draw(t, "spread") {
		k.Spread = constraint.Spread{By: rapid.SampledFrom([]string{"executor", "Rack", "zone", "SERIAL"}).Draw(t, "by"),
			Max: rapid.Int32Range(1, 3).Draw(t, "max")}
	}
	return k
}

func drawRegister(t *rapid.T, id string) Register {
	g := Register{
		ID: id, Address: id + ":1", SKU: anySKU.Draw(t, "sku"), Attributes: anyZone.Draw(t, "zone"),
		Generation: rapid.Int64Range(0, 2).Draw(t, "generation"), Nonce: rapid.StringMatching("n[0-9]").Draw(t, "nonce"),
		Resources: resource.Vector{"cpu": anyAmount.Draw(t, "cpu"), "slots": anyAmount.Draw(t, "slots")},
	}
	g.AllowLists = evenly("", "1", "1", "2").Draw(t, "allowLists")
	if rapid.Bool().Draw(t, "gpu") {
		g.Resources["gpu"] = 2
	}
	switch amount := rapid.Int64Range(1, 50).Draw(t, "amount"); evenly(0, 0, 0, 1, 2, 3).Draw(t, "look") {
	case 1: // more CPU, more memory
		g.Resources["cpu"], g.Resources["memory"] = amount, 1<<20+amount<<12
	case 2: // more CPU, less memory
		g.Resources["cpu"], g.Resources["memory"] = amount, 1<<20-amount<<12
	case 3: // a resource that few executors have
		g.Resources[fmt.Sprintf("rare-%d", amount%3)] = amount
	}
	if rapid.Bool().Draw(t, "own") {
		// Each executor has an attribute of its own, such as a host name or a serial number.
		g.Attributes = maps.Clone(g.Attributes)
		if g.Attributes == nil {
			g.Attributes = map[string]string{}
		}
		g.Attributes["serial"] = id
	}
	if rapid.Bool().Draw(t, "reserved") {
		left := g.Resources.Clone()
		g.Reserved = map[string]resource.Vector{}
		for _, role := range []string{"Web", "batch"} {
			share := resource.Vector{}
			for _, name := range left.Names() {
				share[name] = min(left[name], evenly[int64](0, 0, 1, 2).Draw(t, role))
			}
			g.Reserved[role], left = share, left.Plus(-1, share)
		}
	}
	return g
}

// The matcher searches classes and blocks. It chooses the same executors in the same order
// as a search worker by worker over all executors, and its counts are the same.
func TestMatcherEqualsSimpleMatcher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		tighten(t, r.core)
		for i := range evenly(0, 1, 3, 6, 9, 12).Draw(t, "executors") {
			g := drawRegister(t, fmt.Sprintf("h%d", i))
			r.ready(g)
			if evenly(0, 1, 2, 3, 4, 5, 6).Draw(t, "silent") == 0 {
				r.applyDeletion(model.Ref{Kind: model.KindLive, ID: g.ID})
			}
		}
		var uids []string
		for i := range evenly(1, 3, 6, 12).Draw(t, "batches") {
			if i > 0 && rapid.Bool().Draw(t, "cancel") {
				r.state(uids[rapid.IntRange(0, i-1).Draw(t, "cancelled")], model.Cancelled)
				r.catchUp()
				r.settle()
			}
			if evenly(0, 1, 2, 3).Draw(t, "again") == 0 {
				g := drawRegister(t, "h0")
				g.Nonce = fmt.Sprintf("again-%d", i)
				r.ready(g)
			}
			if evenly(0, 1, 2, 3, 4, 5, 6).Draw(t, "lost") == 0 {
				r.pause(2 * time.Minute)
			}
			k, n := drawConstraints(t), evenly(1, 2, 3, 4, 6, 9).Draw(t, "n")
			uid := fmt.Sprintf("u%d", i)
			if i > 0 && rapid.Bool().Draw(t, "version") {
				uid = fmt.Sprintf("u%d:%d", rapid.IntRange(0, i-1).Draw(t, "of"), i)
			}
			uids = append(uids, uid)
			key := keyOf(uid)
			before := dump(r.core)
			picks, fitting := choose(r.core, key, k, n)
			if after := dump(r.core); after != before {
				t.Fatalf("choosing changed the inventory")
			}
			want := simpleChoice(r.core, key, k, n)
			if fitting != len(want) {
				t.Fatalf("%d of %d fit, want %d %v: %+v", fitting, n, len(want), want, k)
			}
			if got := chosen(picks); fitting == n && !slices.Equal(got, want) {
				t.Fatalf("chose %v, want %v: %+v\n%s", got, want, k, before)
			}
			// The grants change the free capacity for the next batch.
			outcome := r.cycle(r.queue(uid, n, k))[0]
			if (outcome.Result == model.Granted) != (fitting == n) || outcome.Fitting != fitting {
				t.Fatalf("fitting %d of %d, the cycle returned %+v", fitting, n, outcome)
			}
		}
	})
}

// Executors of one shape with different free capacity are in several blocks. A batch with
// sameShape uses the free capacity of all of them, up to exactly the last worker that fits.
// The free capacity of executors of another shape does not matter.
func TestSameShapeUsesAllOfAShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		tighten(t, r.core)
		slots := evenly[int64](2, 4, 6).Draw(t, "slots")
		for i := range evenly(0, 1, 3).Draw(t, "others") {
			r.ready(Register{
				ID: fmt.Sprintf("t%d", i), Address: "t:1", SKU: fmt.Sprintf("other-%d", evenly(0, i).Draw(t, "other")), Nonce: "n1",
				Resources: resource.Vector{"slots": slots * evenly[int64](1, 2, 4).Draw(t, "times as many")},
			})
		}
		left := int64(0)
		for i := range evenly(2, 3, 5, 9).Draw(t, "executors") {
			g := Register{ID: fmt.Sprintf("s%d", i), Address: "s:1", SKU: "same", Nonce: "n1",
				Resources: resource.Vector{"slots": slots}}
			r.ready(g)
			used := rapid.Int64Range(0, slots).Draw(t, "used")
			if left += slots - used; used > 0 {
				r.cycle(r.queue("used-"+g.ID, 1, constraint.Constraints{SKU: "same", Resources: resource.Vector{"slots": used}}))
			}
		}
		for _, n := range []int64{left - 1, left, left + 1} {
			if n < 1 {
				continue
			}
			k := constraint.Constraints{Resources: resource.Vector{"slots": 1}, SameShape: true,
				Pack: rapid.Bool().Draw(t, "pack")}
			picks, fitting := choose(r.core, model.Key{}, k, int(n))
			want := simpleChoice(r.core, model.Key{}, k, int(n))
			if fitting != len(want) || fitting == int(n) && !slices.Equal(chosen(picks), want) {
				t.Fatalf("chose %v, %d of %d fit, want %v: %+v\n%s", chosen(picks), fitting, n, want, k, dump(r.core))
			}
		}
	})
}

// tighten sets limits of the core's index that are so low that a few executors reach them.
func tighten(t *rapid.T, c *Core) {
	limits := &c.index.Limits
	limits.Selections, limits.Words = evenly(1, 3, limits.Selections).Draw(t, "sections"),
		evenly(1, 3, limits.Words).Draw(t, "words")
	limits.Block, limits.Narrow = evenly(1, 2, 4, limits.Block).Draw(t, "block"),
		evenly(0, 2, limits.Narrow).Draw(t, "narrow")
}

// Requests, pools and requests to disable name changing attributes while executors
// register, change and disappear. The index selects the same executors as a search over
// every executor.
func TestSectionsFollowChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}}
		tighten(t, w.core)
		w.core.index.Limits.Work = evenly(1<<10, w.core.index.Limits.Work).Draw(t, "cycle")
		for i := range 6 {
			if rapid.Bool().Draw(t, "there") {
				w.ready(drawRegister(t, fmt.Sprintf("h%d", i)))
			}
		}
		actions := []func(){
			w.register, w.register, w.announce, w.announce, w.silence, w.disable, w.enable, w.drain,
			w.putPool, w.putPool, w.deletePool, w.enqueue, w.enqueue, w.offer, w.offer, w.cancel, w.assign, w.endWorkers,
		}
		kinds := rapid.SliceOfN(rapid.Custom(drawConstraints), 1, 8).Draw(t, "kinds")
		for range evenly(5, 15, 30).Draw(t, "steps") {
			evenly(actions...).Draw(t, "action")()
			w.settle()
			w.catchUp()
			w.settle()
			k, n := evenly(kinds...).Draw(t, "kind"), evenly(1, 2, 3, 5, 8).Draw(t, "n")
			key := keyOf(evenly(append(w.uids, "")...).Draw(t, "reservation"))
			picks, fitting := choose(w.core, key, k, n)
			want := simpleChoice(w.core, key, k, n)
			if fitting != len(want) || fitting == n && !slices.Equal(chosen(picks), want) {
				t.Fatalf("chose %v, %d of %d fit, want %v: %+v\n%s", chosen(picks), fitting, n, want, k, dump(w.core))
			}
			checkRefusals(t, w.core)
		}
	})
}

// checkRefusals compares every remembered refusal with a new search.
func checkRefusals(t *rapid.T, c *Core) {
	c.index.Work = c.index.Limits.Work // no work is left for searches that only update the numbers of a refusal
	for _, uid := range slices.Sorted(maps.Keys(c.refused)) {
		before, e := *c.refused[uid].Refusal, c.refused[uid].candidate
		if c.refused[uid].gangChange == c.gangChange(e) && c.index.StillRefused(&before) {
			_, now := c.index.Choose(e.Constraints, e.Workers.Len(), c.pinned(e.Key, e.UID, e.Constraints, e.Workers))
			if now == nil || before.Fitting == 0 && now.Fitting > 0 {
				t.Fatalf("%s is refused still, and fits: %+v: %+v\n%s", uid, now, e.Constraints, dump(c))
			}
			if now.Reason != before.Reason {
				t.Fatalf("%s is refused still for %s, and would be for %s: %+v\n%s", uid, before.Reason, now.Reason, e.Constraints,
					dump(c))
			}
		}
	}
}

// With pack, an executor sorts later if its domain has space for fewer workers than the
// executor itself. Executors of the same block in other domains do not sort later.
func TestPackSpreadByManyValues(t *testing.T) {
	r := lead(DefaultConfig())
	for id, rack := range map[string]string{"e0": "a", "e1": "a", "e2": "b", "f0": "c"} {
		g := small(id, 1000, 2)
		g.Attributes = map[string]string{"rack": rack}
		if id == "f0" {
			g.Resources["cpu"] = 4000
		}
		r.ready(g)
	}
	k := cpu(1)
	k.Resources["slots"], k.Pack, k.Spread = 1, true, constraint.Spread{By: "rack", Max: 3}
	picks, _ := choose(r.core, model.Key{}, k, 4)
	if got := fmt.Sprint(chosen(picks)); got != "[e0 e0 e2 e2]" {
		t.Errorf("chose %s", got)
	}
}
