package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
	"berth.dev/services/executor-state/usage"
)

// simpleUsage computes usage from the store, executor by executor and reservation by
// reservation.
type simpleUsage struct {
	r     *rig
	hosts []*model.Executor
	specs map[string]*model.SKU
	// rows has the row of each SKU, and fleets its executors. Both use the folded name of the
	// SKU.
	rows   map[string]*usage.SKUUsage
	fleets map[string][]*model.Executor
	total  map[string]float64
	// unmapped counts the reservations of each group without a SKU.
	unmapped map[string]int
}

func newSimpleUsage(r *rig) *simpleUsage {
	u := &simpleUsage{
		r: r, specs: map[string]*model.SKU{}, rows: map[string]*usage.SKUUsage{}, fleets: map[string][]*model.Executor{},
		total: map[string]float64{}, unmapped: map[string]int{},
	}
	for _, k := range r.keys {
		switch record := k.record.(type) {
		case *model.SKU:
			u.specs[strings.ToLower(record.Name)] = record
			u.row(record.Name).SKU = record.Name
		case *model.Executor:
			u.hosts = append(u.hosts, record)
			name := strings.ToLower(record.SKU)
			u.row(record.SKU)
			u.fleets[name] = append(u.fleets[name], record)
		}
	}
	for name := range u.rows {
		for resource, amount := range u.shape(name) {
			u.total[resource] += float64(amount)
		}
	}
	return u
}

func (u *simpleUsage) row(name string) *usage.SKUUsage {
	name = strings.ToLower(name)
	if u.rows[name] == nil {
		u.rows[name] = &usage.SKUUsage{}
	}
	return u.rows[name]
}

func (u *simpleUsage) shape(name string) resource.Vector {
	if spec := u.specs[name]; spec != nil {
		return spec.Resources.WithSlots()
	}
	most := resource.Vector{}
	for _, e := range u.fleets[name] {
		for resource, amount := range e.Resources {
			most[resource] = max(most[resource], amount)
		}
	}
	return most
}

// count adds one executor to the row of its SKU.
func (u *simpleUsage) count(e *model.Executor) {
	workers, running, volumes := 0, 0, 0
	disabled := e.Draining
	for _, k := range u.r.keys {
		switch record := k.record.(type) {
		case *model.LeaseChunk:
			for _, p := range record.Workers {
				if p.Ordinal == e.Ordinal {
					workers++
				}
			}
		case *model.VolumeChunk:
			for _, v := range record.Volumes {
				if v.Ordinal == e.Ordinal {
					volumes++
				}
			}
		case *model.TaskChunk:
			for _, w := range record.Workers {
				if w.Ordinal == e.Ordinal && (w.State == model.WorkerRunning || w.State == model.WorkerEvict ||
					w.State == model.WorkerEvicting) {
					running++
				}
			}
		case *model.Disable:
			disabled = disabled || record.InForce() && slices.Contains(record.IDs, e.ID)
		}
	}
	live, present := u.r.keys[model.Ref{Kind: model.KindLive, ID: e.ID}]
	ready := present && !e.Lost && live.record.(*model.Live).Incarnation == e.Incarnation
	row := u.row(e.SKU)
	if e.Lost && !ready {
		return
	}
	row.Total++
	if disabled {
		row.Disabled++
	}
	_, common, _ := simpleFree(u.r.core, u.r.core.hosts[e.ID], "")
	switch {
	case !ready:
		row.Unavailable++
	case workers > 0 && running > 0:
		row.Running++
	case workers > 0:
		row.Leased++
	case volumes > 0:
		row.Leased++
		row.VolumesOnly++
	case disabled || e.Returning || e.Orphans || e.SupersededWorkers || common == nil:
		row.Unavailable++
	default:
		row.Idle++
	}
}

func (u *simpleUsage) waits(res *model.Reservation) bool {
	for ref := range u.r.keys {
		if ref.ID == res.UID && (ref.Kind == model.KindLeaseChunk || ref.Kind == model.KindTaskHeader) {
			return false
		}
	}
	return res.State == model.Queued && !res.NotBefore.After(u.r.now)
}

// find returns the SKU of a reservation and how many of its workers fit on one executor.
func (u *simpleUsage) find(k constraint.Constraints) (name string, each int64, ok bool) {
	k.Avoid, k.AvoidFailed, k.RefusedBy = nil, nil, nil
	offers := map[string]resource.Vector{}
	ratio := map[string]float64{}
	for _, candidate := range slices.Sorted(maps.Keys(u.rows)) {
		var offer resource.Vector
		var first *host
		for _, e := range u.fleets[candidate] {
			host := e.Match()
			host.Pools = u.r.core.pools.Of(host)
			has := e.Resources
			for role, share := range e.Reserved {
				if !strings.EqualFold(role, k.Role) {
					has = has.Plus(-1, share)
				}
			}
			ok, _ := k.Match(host)
			if !ok || !has.Fits(k.Resources) {
				continue
			}
			h := u.r.core.hosts[e.ID]
			if offer == nil || cmp.Or(cmp.Compare(offer.Times(k.Resources), has.Times(k.Resources)),
				match.Compare(&h.Executor.Executor, &first.Executor.Executor)) < 0 {
				offer, first = has, h
			}
		}
		if spec := u.specs[candidate]; spec != nil && spec.Resources.WithSlots().Fits(k.Resources) {
			host := constraint.Host{SKU: spec.Name, Attributes: spec.Attributes}
			host.Pools = u.r.core.pools.Of(host)
			if match, _ := k.Match(host); match {
				offer = spec.Resources.WithSlots()
			}
		}
		if offer == nil {
			continue
		}
		offers[candidate] = offer
	}
	scarce := slices.DeleteFunc(k.Resources.Names(), func(name string) bool { return k.Resources[name] == 0 })
	for _, resource := range scarce {
		free := int64(0)
		for _, offer := range offers {
			free += offer[resource]
		}
		ratio[resource] = float64(free) / float64(k.Resources[resource])
	}
	slices.SortStableFunc(scarce, func(a, b string) int { return cmp.Compare(ratio[a], ratio[b]) })
	spare := func(candidate string) (share float64) {
		for resource, amount := range offers[candidate] {
			if k.Resources[resource] == 0 && amount > 0 {
				share = max(share, float64(amount)/max(u.total[resource], float64(amount)))
			}
		}
		return share
	}
	best := func(a, b string) int {
		for _, resource := range scarce {
			if order := cmp.Compare(offers[a][resource], offers[b][resource]); order != 0 {
				return order
			}
		}
		return cmp.Or(cmp.Compare(spare(a), spare(b)), cmp.Compare(a, b))
	}
	if len(offers) == 0 {
		return "", 0, false
	}
	name = slices.SortedFunc(maps.Keys(offers), best)[0]
	return name, min(offers[name].Times(k.Resources), math.MaxInt32), true
}

// usage returns the rows, sorted.
func (u *simpleUsage) usage() []usage.SKUUsage {
	for _, e := range u.hosts {
		u.count(e)
	}
	type group struct {
		name         string
		workers, max int64
		each         int64
		spread       map[string]int64
	}
	groups := map[string]*group{}
	// parts has the groups that avoid a given idle executor, and those that avoid the same set
	// of idle executors. idle is the number of idle executors that all groups of a part avoid.
	parts, idle := map[string]map[string]*group{}, map[string]int64{}
	sizes := map[string]map[int]int{}
	for _, k := range u.r.keys {
		res, is := k.record.(*model.Reservation)
		if !is || !u.waits(res) {
			continue
		}
		text := res.Spec.Constraints.Canonical()
		name, each, ok := u.find(res.Spec.Constraints)
		if !ok {
			u.unmapped[res.Spec.Constraints.Group()]++
			continue
		}
		n := res.Workers.Len()
		row := u.row(name)
		row.PendingReservations++
		row.PendingWorkers += int64(n)
		if sizes[name] == nil {
			sizes[name] = map[int]int{}
		}
		sizes[name][n]++
		if groups[text] == nil {
			groups[text] = &group{name: name, each: each}
		}
		count := func(g *group) {
			g.workers += int64(n)
			if spread := res.Spec.Constraints.Spread; spread.Max > 0 && spread.By == constraint.ByExecutor {
				per := min(each, int64(spread.Max))
				if g.spread == nil {
					g.spread = map[string]int64{}
				}
				of := fmt.Sprint(res.Key, spread.Max)
				g.spread[of] += int64(n)
				g.max = max(g.max, (g.spread[of]+per-1)/per)
			}
		}
		count(groups[text])
		var avoided []string
		o := newSimpleMatcher(u.r.core, simpleRunning(u.r.core, res.Key, res.UID, res.Workers),
			res.ConstraintsAt(u.r.core.now), n)
		for _, h := range slices.SortedFunc(slices.Values(append(o.hosts, o.excluded...)), compareIDs) {
			if !slices.Contains(o.excluded, h) && o.isAllowed(h) {
				continue
			}
			if h.allocation.Workers == 0 && h.allocation.Volumes == 0 && strings.EqualFold(h.Record.SKU, name) {
				avoided = append(avoided, h.ID)
			}
		}
		part := func(ids ...string) {
			key := fmt.Sprint(name, ids)
			if parts[key] == nil {
				parts[key] = map[string]*group{}
			}
			if idle[key] = int64(len(ids)); parts[key][text] == nil {
				parts[key][text] = &group{name: name, each: each}
			}
			count(parts[key][text])
		}
		for _, id := range avoided {
			part(id)
		}
		if len(avoided) > 1 {
			part(avoided...)
		}
	}
	need := func(g *group) int64 { return max(g.max, (g.workers+g.each-1)/g.each) }
	for _, g := range groups {
		u.row(g.name).PendingExecutors += need(g)
	}
	for key, part := range parts {
		needed := idle[key]
		var row *usage.SKUUsage
		for _, g := range part {
			needed += need(g)
			row = u.row(g.name)
		}
		row.PendingExecutors = max(row.PendingExecutors, needed)
	}
	var rows []usage.SKUUsage
	for _, name := range slices.Sorted(maps.Keys(u.rows)) {
		row := u.rows[name]
		if row.SKU == "" {
			for _, e := range u.fleets[name] {
				row.SKU = cmp.Or(min(cmp.Or(row.SKU, e.SKU), e.SKU), e.SKU)
			}
		}
		for _, workers := range slices.Sorted(maps.Keys(sizes[name])) {
			row.PendingBatches = append(row.PendingBatches, usage.PendingBatch{Workers: workers, Count: sizes[name][workers]})
		}
		row.EffectiveIdle = max(0, int64(row.Idle)-row.PendingExecutors)
		var rule *model.ScaleRule
		if spec := u.specs[name]; spec != nil {
			rule = spec.Scale
		}
		row.Advice = usage.Advise(rule, u.r.now, time.Time{}, int64(row.Total), int64(row.Idle), row.PendingExecutors)
		rows = append(rows, *row)
	}
	return rows
}

// checkUsage compares the core's usage with simpleUsage.
func checkUsage(t *rapid.T, r *rig) {
	got, err := r.core.Usage(r.now, "")
	if err != nil {
		t.Fatal(err)
	}
	u := newSimpleUsage(r)
	want := u.usage()
	if fmt.Sprintf("%+v", got.SKUs) != fmt.Sprintf("%+v", want) {
		t.Fatalf("usage\n%+v\nwant\n%+v\n%s", got.SKUs, want, dump(r.core))
	}
	unmapped := map[string]int{}
	for _, m := range got.Unmapped {
		unmapped[m.Group] = m.Reservations
		if m.Reason == "" || m.Message == "" {
			t.Fatalf("unmapped without a reason: %+v", m)
		}
	}
	if !maps.Equal(unmapped, u.unmapped) {
		t.Fatalf("unmapped %v, want %v", unmapped, u.unmapped)
	}
	for _, row := range got.SKUs {
		if row.Total != row.Idle+row.Leased+row.Running+row.Unavailable {
			t.Fatalf("the parts are not the total: %+v", row)
		}
	}
}

// The core maintains usage by class and group. The result equals a count of single records
// in the store, and includes every pending reservation once.
func TestUsageEqualsSimpleUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}}
		tighten(t, w.core)
		w.apply(&model.Ready{Since: start})
		catalog := func() {
			name := evenly("small", "LARGE", "none-yet").Draw(t, "sku")
			if evenly(0, 1, 2).Draw(t, "delete") == 0 {
				w.ask(DeleteSKU{name})
				return
			}
			w.ask(PutSKU{model.SKU{
				Name: name, Attributes: anyZone.Draw(t, "zone"),
				Resources: resource.Vector{"cpu": anyAmount.Draw(t, "cpu"), "slots": anyAmount.Draw(t, "slots")},
				Scale:     &model.ScaleRule{MinIdle: rapid.Int32Range(0, 3).Draw(t, "minIdle")},
			}})
		}
		disable := func() {
			w.ask(policy.Drain{ID: anyExecutor.Draw(t, "drained"), RequestID: fmt.Sprintf("d%d", w.token)})
		}
		pause := func() { w.pause(evenly(time.Second, time.Minute, 2*time.Minute).Draw(t, "pause")) }
		actions := []func(){
			w.register, w.register, w.announce, w.announce, w.silence, w.enqueue, w.enqueue, w.enqueue, w.offer, w.cancel,
			w.forget, pause,
			w.assign, w.endWorkers, w.failOver, catalog, catalog, disable, w.putPool, w.deletePool,
		}
		for range evenly(10, 30, 60).Draw(t, "steps") {
			evenly(actions...).Draw(t, "action")()
			w.settle()
			w.catchUp()
			w.settle()
			checkUsage(t, w.rig)
		}
	})
}

func TestUsageWaitsForTheRegistry(t *testing.T) {
	r := lead(DefaultConfig())
	for _, ready := range []*model.Ready{nil, {Begun: start}} {
		if ready != nil {
			r.apply(ready)
		}
		_, err := r.core.Usage(r.now, "")
		if f := fault.Of(err); f.Kind != fault.Unavailable || f.Reason != fault.ReasonRegistryNotReady {
			t.Fatalf("with %+v: %v", ready, err)
		}
	}
	r.apply(&model.Ready{Since: start})
	if _, err := r.core.Usage(r.now, ""); err != nil {
		t.Fatal(err)
	}
}

// An earlier system mapped pending demand to live free executors. If all executors were
// busy, or none had registered, the demand vanished and nothing scaled up.
func TestPitfallDemandOfBusyAndAbsentSKUs(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	r.ready(small("busy", 4000, 4))
	expectGranted(t, r.cycle(r.queue("all", 4, cpu(1000))))
	if _, err := r.do(PutSKU{model.SKU{Name: "gpu-8", Resources: resource.Vector{"cpu": 8000, "gpu": 8,
		"slots": 8}}}); err != nil {
		t.Fatal(err)
	}
	r.queue("more", 6, cpu(1000))
	k := cpu(1000)
	k.Resources["gpu"] = 1
	r.queue("vision", 9, k)
	k.Resources["gpu"] = 9
	r.queue("huge", 1, k)
	usage, _ := r.core.Usage(r.now, "")
	gpu, busy := usage.SKUs[0], usage.SKUs[1]
	if gpu.SKU != "gpu-8" || gpu.Total != 0 || gpu.PendingWorkers != 9 || gpu.PendingExecutors != 2 {
		t.Errorf("none yet: %+v", gpu)
	}
	if busy.SKU != "small" || busy.Leased != 1 || busy.PendingWorkers != 6 || busy.PendingExecutors != 2 {
		t.Errorf("all busy: %+v", busy)
	}
	if len(usage.Unmapped) != 1 || usage.Unmapped[0].Workers != 1 ||
		usage.Unmapped[0].Reason != fault.ReasonNoMatchingExecutor {
		t.Errorf("unmapped: %+v", usage.Unmapped)
	}
}

// In an earlier system, usage and allocation mapped demand by different rules. If an idle
// executor would get the demand, the demand must not be unmapped.
func TestPitfallUsageMapsByTheRuleOfAllocation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		r.apply(&model.Ready{Since: start})
		for i := range evenly(1, 2, 4).Draw(t, "executors") {
			r.ready(drawRegister(t, fmt.Sprintf("h%d", i)))
		}
		k := drawConstraints(t)
		k.Avoid = nil // otherwise the batch may avoid every executor
		entry := r.queue("u", 1, k)
		usage, err := r.core.Usage(r.now, "")
		if err != nil {
			t.Fatal(err)
		}
		pending := 0
		for _, row := range usage.SKUs {
			pending += row.PendingReservations
		}
		if granted := r.cycle(entry)[0].Result == model.Granted; granted != (pending == 1) ||
			pending+len(usage.Unmapped) != 1 {
			t.Fatalf("granted %v, pending %d, unmapped %+v", granted, pending, usage.Unmapped)
		}
		usage, _ = r.core.Usage(r.now, "")
		for _, row := range usage.SKUs {
			if row.PendingReservations > 0 && pending == 1 {
				t.Fatalf("leased, and still pending: %+v", row)
			}
		}
	})
}

func TestUsageOfOneSKU(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	r.ready(small("a", 1000, 1))
	r.ready(Register{ID: "b", SKU: "large"})
	r.queue("x", 1, constraint.Constraints{SKU: "huge"})
	usage, err := r.core.Usage(r.now, "SMALL")
	if err != nil || len(usage.SKUs) != 1 || usage.SKUs[0].SKU != "small" || usage.SKUs[0].Idle != 1 ||
		len(usage.Unmapped) != 0 {
		t.Fatalf("%+v %v", usage, err)
	}
	usage, _ = r.core.Usage(r.now, "")
	if len(usage.Unmapped) != 1 || usage.Unmapped[0].Reason != fault.ReasonNoMatchingSKU {
		t.Fatalf("%+v", usage.Unmapped)
	}
	// If the SKU is recorded now, it gets the demand at once.
	if _, err := r.do(PutSKU{model.SKU{Name: "Huge", Resources: resource.Vector{"cpu": 1}}}); err != nil {
		t.Fatal(err)
	}
	usage, _ = r.core.Usage(r.now, "")
	if len(usage.Unmapped) != 0 || usage.SKUs[0].SKU != "Huge" || usage.SKUs[0].PendingExecutors != 1 {
		t.Fatalf("%+v", usage)
	}
}

// A batch that starts together avoids an executor on which one of its workers failed. That
// executor is idle but of no use to the batch, so usage requests another executor.
func TestAnAvoidedExecutorIsUnavailableToItsDemand(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	for _, id := range []string{"h0", "h1", "h2"} {
		r.ready(small(id, 1000, 1))
	}
	if _, err := r.do(PutSKU{model.SKU{Name: "small", Resources: resource.Vector{"cpu": 1000, "slots": 1},
		Scale: &model.ScaleRule{}}}); err != nil {
		t.Fatal(err)
	}
	r.queue("together", 3, cpu(1000))
	failed := *r.core.reservations["together"].record.(*model.Reservation)
	failed.Failed = []model.FailedOn{{Executor: "h1", At: r.now}}
	r.apply(&failed)
	row := func() usage.SKUUsage {
		t.Helper()
		usage, err := r.core.Usage(r.now, "small")
		if err != nil {
			t.Fatal(err)
		}
		return usage.SKUs[0]
	}
	if got := row(); got.Idle != 3 || got.PendingExecutors != 4 || got.EffectiveIdle != 0 || got.WantedSize != 4 {
		t.Errorf("while h1 is avoided: %+v", got)
	}
	// If only avoided executors are left, Berth ignores its own list of avoided executors.
	// None of these executors then counts as avoided.
	only := failed
	only.Failed = nil
	for _, id := range []string{"h0", "h1", "h2"} {
		only.Failed = append(only.Failed, model.FailedOn{Executor: id, At: r.now})
	}
	r.apply(&only)
	if got := row(); got.PendingExecutors != 3 {
		t.Errorf("the list has yielded: %+v", got)
	}
	// Berth never ignores the caller's list.
	strict := failed
	strict.Failed, strict.Spec.Constraints.Avoid = nil, []string{"h0", "h1", "h2", "unknown"}
	r.apply(&strict)
	if got := row(); got.PendingExecutors != 6 || got.WantedSize != 6 {
		t.Errorf("the caller avoids all: %+v", got)
	}
	r.apply(&failed)
	r.now = r.now.Add(model.AvoidFor)
	r.step(nil)
	if got := row(); got.PendingExecutors != 3 || got.WantedSize != 3 {
		t.Errorf("after ten minutes: %+v", got)
	}
}

// If many workers avoid the same executor, they need only one additional executor together.
func TestAnAvoidedExecutorCountsOnce(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	r.ready(small("h0", 1000, 2))
	r.ready(small("h1", 1000, 2))
	for i, sku := range []string{"", "small", "SMALL"} {
		k := cpu(500)
		k.SKU, k.Avoid = sku, []string{"h0"}
		r.queue(fmt.Sprint(i), 1, k)
	}
	r.queue("any", 1, cpu(400))
	usage, err := r.core.Usage(r.now, "")
	if err != nil {
		t.Fatal(err)
	}
	// Two groups avoid h0. Each of them fills one executor: h1 and an additional one. The
	// third group may use h0.
	if row := usage.SKUs[0]; row.Idle != 2 || row.PendingExecutors != 3 {
		t.Errorf("%+v", row)
	}
}

// Two spellings of the same demand may arrive in either order. The constraints of the
// unmapped demand do not depend on that order.
func TestUnmappedDemandDoesNotDependOnTheOrderOfRecords(t *testing.T) {
	spellings := []constraint.Constraints{
		{SKU: "Huge", Role: "Web", Attributes: map[string]string{"Zone": "A"}, Pools: []string{"x", "Y"}},
		{SKU: "HUGE", Role: "web", Attributes: map[string]string{"zone": "a"}, Pools: []string{"y", "X"}},
	}
	unmapped := func(first, second int) []usage.Unmapped {
		r := lead(DefaultConfig())
		r.apply(&model.Ready{Since: start})
		r.queue("x", 1, spellings[first])
		r.queue("y", 1, spellings[second])
		r.catchUp()
		u, err := r.core.Usage(r.now, "")
		if err != nil || len(u.Unmapped) != 1 || u.Unmapped[0].Reservations != 2 {
			t.Fatalf("%+v %v", u, err)
		}
		return u.Unmapped
	}
	if a, b := unmapped(0, 1), unmapped(1, 0); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// Time wakes the core when a delayed reservation becomes demand.
func TestTimeMakesDemand(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	due := r.now.Add(2 * time.Hour)
	r.apply(&model.Reservation{Key: keyOf("late"), UID: "late", State: model.Queued, NotBefore: due,
		Spec: model.Spec{Constraints: cpu(1000)}, Workers: model.WorkerSet{{First: 0, Last: 39, Number: 1}}})
	if at := r.core.NextDeadline(); !at.Equal(due) {
		t.Fatalf("the next deadline is %v, want %v", at, due)
	}
	if u, err := r.core.Usage(r.now, ""); err != nil || len(u.Unmapped) != 0 {
		t.Errorf("before its time: %+v, %v", u, err)
	}
	r.now = due
	r.step(nil)
	if at := r.core.NextDeadline(); !at.IsZero() {
		t.Errorf("the core waits for %v although nothing is delayed", at)
	}
	if u := r.core.usage.Usage(r.now, "").Unmapped; len(u) != 1 || u[0].Workers != 40 {
		t.Errorf("after its time: %+v", u)
	}
}

// A version of a stage of which a record is unreadable is no demand, because the registry tries
// none of them.
func TestQuarantinedStagesHaveNoDemand(t *testing.T) {
	for _, ref := range []model.Ref{
		{Kind: model.KindStage, Key: stageOf(keyOf("g"))},
		{Kind: model.KindReservation, Key: keyOf("g"), ID: "g:other"},
		{Kind: model.KindTaskHeader, ID: "g"},
	} {
		r := lead(DefaultConfig())
		r.apply(&model.Ready{Since: start})
		r.queue("g", 1, cpu(1000))
		r.queue("h", 1, cpu(1000))
		for _, quarantined := range [][]model.Ref{nil, {ref}, nil} {
			r.follow()
			for _, ref := range quarantined {
				r.step(model.Quarantined{Ref: ref})
			}
			r.elect()
			u, err := r.core.Usage(r.now, "")
			if want := 2 - len(quarantined); err != nil || len(u.Unmapped) != 1 || u.Unmapped[0].Reservations != want {
				t.Errorf("with %v quarantined: %+v, %v, want %d reservations", quarantined, u.Unmapped, err, want)
			}
		}
	}
}
