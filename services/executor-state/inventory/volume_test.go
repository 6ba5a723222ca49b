package inventory

import (
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
)

// enqueueVolumes writes a reservation that requests volumes for some of the first indexes of
// a stage.
func (w *world) enqueueVolumes() {
	uid := fmt.Sprintf("%s:u%d", evenly("db", "db", "cache").Draw(w.t, "stage"), len(w.uids))
	w.uids = append(w.uids, uid)
	k := constraint.Constraints{Pack: rapid.Bool().Draw(w.t, "pack")}
	if evenly(0, 1, 2, 3).Draw(w.t, "constrained") == 0 {
		k = drawConstraints(w.t)
	}
	k.Resources = resource.Vector{"cpu": 1, "slots": evenly[int64](1, 1, 1, 1, 1, 2).Draw(w.t, "size")}
	v := &model.VolumeRequest{Resource: "slots",
		OnLoss: evenly(model.OnVolumeLossWait, model.OnVolumeLossReplace).Draw(w.t, "onLoss")}
	if keep := evenly(-1, 0, 20, 3600).Draw(w.t, "keepFor"); keep >= 0 {
		d := time.Duration(keep) * time.Second
		v.KeepFor = &d
	}
	first, n := evenly[int32](0, 1, 62).Draw(w.t, "first"), evenly[int32](1, 2, 3).Draw(w.t, "workers")
	w.write(&model.Reservation{
		Key: keyOf(uid), UID: uid, State: model.Queued, Spec: model.Spec{Constraints: k, Volume: v},
		Workers: model.WorkerSet{{First: first, Last: first + n - 1, Number: int32(len(w.uids))}},
	})
}

// serve requests volumes, and plays the life of the workers if they are granted: the task, the
// acknowledgment and a whole list of each executor. Then the workers may end.
func (w *world) serve() {
	w.settle()
	w.enqueueVolumes()
	uid := w.uids[len(w.uids)-1]
	w.catchUp()
	w.settle()
	w.cycle++
	explained, _ := w.core.ExplainVolumes(uid)
	w.ask(model.Cycle{Term: w.registryTerm(), Number: w.cycle, Cut: w.rev, Candidates: []model.Candidate{w.entry(uid)}})
	w.settle()
	granted := len(w.leased(uid)) > 0
	if explained.UID != "" && granted != (explained.Result == model.Granted) {
		w.t.Fatalf("%s: granted %v, explained as %+v", uid, granted, explained)
	}
	if !granted {
		return
	}
	w.dispatch(uid)
	all := []int32{0, 1, 2, 3, 62, 63, 64}
	w.changeWorkers(uid, all, func(tw *model.TaskWorker) {
		tw.State, tw.Incarnation = model.WorkerRunning, w.core.incarnationOf(tw.Ordinal)
	})
	w.catchUp()
	w.settle()
	for h := range w.core.byID.All() {
		if h.state == model.ExecutorReady {
			w.ask(ReportVolumes{Executor: h.ID, Incarnation: h.Record.Incarnation, Sequence: w.rev,
				IDs: slices.Sorted(maps.Keys(h.allocation.volumes))})
		}
	}
	w.settle()
	if evenly(0, 1, 2).Draw(w.t, "runs on") > 0 {
		w.end(uid, model.WorkerCompleted, all...)
		w.catchUp()
		w.settle()
	}
	w.checkPages()
}

// moveDisk loses an executor with volumes and its workers, and another executor lists its
// volumes.
func (w *world) moveDisk() {
	w.settle()
	for h := range w.core.byID.All() {
		if len(h.allocation.volumes) == 0 {
			continue
		}
		ids := slices.Sorted(maps.Keys(h.allocation.volumes))
		w.applyDeletion(model.Ref{Kind: model.KindLive, ID: h.ID})
		w.pause(2 * time.Minute)
		for _, uid := range w.uids {
			w.end(uid, model.WorkerLost, 0, 1, 2, 3, 62, 63, 64)
		}
		w.catchUp()
		w.settle()
		for other := range w.core.byID.All() {
			if other.state == model.ExecutorReady && rapid.Bool().Draw(w.t, "takes the disk") {
				w.ask(ReportVolumes{Executor: other.ID, Incarnation: other.Record.Incarnation, Sequence: w.rev,
					IDs: append(ids, slices.Sorted(maps.Keys(other.allocation.volumes))...)})
			}
		}
		return
	}
}

// someVolumes draws IDs of volumes, and one that no record names.
func (w *world) someVolumes(of func(*volume) bool) (ids []string) {
	for _, v := range w.core.inOrder() {
		if of(v) {
			ids = append(ids, v.ID)
		}
	}
	if evenly(0, 1, 2, 3).Draw(w.t, "foreign") == 0 {
		ids = append(ids, "foreign")
	}
	return ids
}

// list reports a list that may lack volumes, may have those of other executors, and may be
// late.
func (w *world) list() {
	if len(w.core.hosts) == 0 {
		return
	}
	id := evenly(slices.Sorted(maps.Keys(w.core.hosts))...).Draw(w.t, "executor")
	view, _ := w.core.Executor(id)
	here := func(v *volume) bool {
		if v.Ordinal == view.Ordinal {
			return evenly(0, 1, 2, 3).Draw(w.t, "missing") > 0
		}
		return evenly(0, 1, 2, 3).Draw(w.t, "elsewhere") == 0
	}
	w.ask(ReportVolumes{Executor: id, Incarnation: view.Incarnation, Sequence: w.rev - evenly[int64](0, 0, 0, 3).Draw(w.t,
		"late"), IDs: w.someVolumes(here), Gone: w.someVolumes(func(v *volume) bool {
		return v.State == model.VolumeDestroying
	})})
}

// Pages of volumes contain each volume once, in order, and filters select by the record.
func (w *world) checkPages() {
	var all []VolumeView
	after, more := VolumePlace{Index: -1}, true
	for more {
		var page []VolumeView
		page, more = w.core.Volumes(VolumeFilter{}, after, 3)
		all = append(all, page...)
		if len(page) > 0 {
			after = page[len(page)-1].Place()
		}
	}
	for i, v := range w.core.inOrder() {
		if i >= len(all) || all[i].ID != v.ID || all[i].Stage != v.stage.Stage {
			w.t.Fatalf("volume %d of the pages is not %s", i, v.ID)
		}
	}
	if len(all) != len(w.core.volumes) {
		w.t.Fatalf("the pages have %d volumes, there are %d", len(all), len(w.core.volumes))
	}
	for _, v := range all {
		list, _ := w.core.Volumes(VolumeFilter{Job: v.Job, Stage: v.Stage, Executor: v.Executor, State: v.State},
			VolumePlace{Index: -1}, len(all))
		if !slices.ContainsFunc(list, func(o VolumeView) bool { return o.ID == v.ID }) {
			w.t.Fatalf("the filters of volume %s do not select it", v.ID)
		}
	}
}

func (w *world) deleteSome() {
	executor := ""
	if h, ok := w.core.byID.First(); ok && evenly(0, 1, 2, 3).Draw(w.t, "of one executor") == 0 {
		executor = h.ID
	}
	w.ask(DeleteVolumes{IDs: w.someVolumes(w.one), Executor: executor})
}

func (w *world) abandonSome() {
	w.ask(AbandonVolumes{w.someVolumes(w.one)})
}

// one selects one volume in four.
func (w *world) one(*volume) bool { return evenly(0, 1, 2, 3).Draw(w.t, "selected") == 0 }

// imposed returns what the volumes that hold only their size hold of an executor. A disk that
// moves there, or that its home lists again, takes this from an executor that is full.
func (w *world) imposed(h *host) resource.Vector {
	held := resource.Vector{}
	for _, v := range h.allocation.volumes {
		if !v.Whole {
			held = held.Plus(1, v.Holds())
		}
	}
	return held
}

// onVolumes checks that every leased worker on a volume is alone on the volume of its index,
// at the volume's home, and that the volume holds what the worker uses.
func (w *world) onVolumes() {
	c := w.core
	known := 0
	for key, s := range c.stages {
		for _, chunk := range s.chunks {
			known += len(volumesOf(chunk))
		}
		for index, holders := range s.holders {
			v := s.current(index)
			if len(holders) != 1 || v == nil || v.Ordinal != holders[0].ordinal || !v.Whole || v.State == model.VolumeLost {
				w.t.Fatalf("%v index %d is leased to %+v, and its volume is %+v", key, index, holders, v)
			}
		}
	}
	if known != len(c.volumes) {
		w.t.Fatalf("%d volumes, %d by ID", known, len(c.volumes))
	}
	for _, v := range c.volumes {
		if v.Whole && (!v.UnwantedSince.IsZero() || v.State > model.VolumeReady) {
			w.t.Fatalf("volume %s holds all", volumeText(v.Volume))
		}
	}
}

// TestVolumeLife runs mostly operations on volumes, on a few executors, and checks the
// invariants of TestLife after each. Lists, losses and disks that move come in any order, and
// so do failovers and decisions that do not become durable.
func TestVolumeLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}, ordinals: map[uint32]string{},
			incarnations: map[string]int64{}}
		w.core.cfg.HoldBackFrom = 10
		for i := range 3 {
			w.ready(Register{ID: fmt.Sprintf("h%d", i), Resources: resource.Vector{"cpu": 4, "slots": 4}})
		}
		restart := func() {
			id := evenly("h0", "h1", "h2").Draw(t, "executor")
			w.ready(Register{ID: id, Resources: resource.Vector{"cpu": 4, "slots": 4}, Nonce: fmt.Sprint("n", w.rev)})
		}
		actions := []func(){
			w.serve, w.serve, w.serve, w.serve, w.serve, w.enqueueVolumes, w.offer, w.cancel, w.cancel,
			w.assign, w.endWorkers, w.list, w.list, w.deleteSome, w.abandonSome,
			w.silence, restart, restart, w.moveDisk, w.drain, w.commitSome, w.rollBack, w.abandon, w.failOver,
			func() { w.settle(); w.catchUp() },
			func() { w.apply(&model.Ready{Since: w.now}) },
			func() { w.pause(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second) },
		}
		for range evenly(5, 10, 20).Draw(t, "steps") {
			if len(w.core.hosts) == 0 {
				restart() // a failover before anything was durable
			}
			evenly(actions...).Draw(t, "action")()
			w.strict()
			w.check()
		}
		w.quiesce()
	})
}

// Each transition leads to the state and the holds in its row, and each event of a state has
// one row. Volumes that are not those of their index are unwanted.
func TestVolumeEdges(t *testing.T) {
	type from struct {
		state model.VolumeState
		event VolumeEvent
	}
	seen := map[from]bool{}
	c := lead(DefaultConfig()).core
	each := resource.Vector{"cpu": 2, "disk": 5}
	for _, edge := range VolumeEdges {
		if seen[from{edge.From, edge.Event}] {
			t.Errorf("%v has two rows for %v", edge.From, edge.Event)
		}
		seen[from{edge.From, edge.Event}] = true
		for _, whole := range []bool{false, true} {
			v := model.Volume{ID: "v", State: edge.From, Each: each, Resource: "disk", Whole: whole}
			before := v.Holds()
			remains := c.becomes(&v, edge.Event)
			if remains != (edge.To != model.VolumeUnset) || v.State != edge.To {
				t.Errorf("%v %v: became %v", edge.From, edge.Event, v.State)
			}
			want := map[VolumeHolds]resource.Vector{HoldsSize: {"disk": 5}, HoldsWorker: each, HoldsSame: before}[edge.Holds]
			if remains && !v.Holds().Equal(want) {
				t.Errorf("%v %v: holds %v, want %v", edge.From, edge.Event, v.Holds(), want)
			}
			if remains && !v.State.Current() && v.UnwantedSince.IsZero() {
				t.Errorf("%v %v: %v and wanted", edge.From, edge.Event, v.State)
			}
		}
	}
	for state := model.VolumeUnset; state <= model.VolumeDestroying; state++ {
		for event := VolumeGranted; event <= VolumeGone; event++ {
			if seen[from{state, event}] {
				continue
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v accepts %v", state, event)
					}
				}()
				c.becomes(&model.Volume{State: state}, event)
			}()
		}
	}
}

// simpleVolumes places a batch on volumes worker by worker, by looking at every executor. It
// returns the executor of each worker in order of index; nil if not all fit.
func simpleVolumes(c *Core, k constraint.Constraints, request model.VolumeRequest, key model.Key, n int) []string {
	pinned := map[string]*host{} // by ID of the volume
	on := map[int]*host{}
	for _, v := range c.inOrder() {
		if v.stage != stageOf(key) || int(v.Index) >= n || !v.State.Current() {
			continue
		}
		var home *host
		for h := range c.byID.All() {
			if h.Record.Ordinal == v.Ordinal {
				home = h
			}
		}
		replace := request.OnLoss == model.OnVolumeLossReplace
		if replace && (v.State == model.VolumeLost || home.Record.Lost) {
			continue
		}
		as := home.Record.Match()
		as.Pools = c.pools.Of(as)
		matches, _ := withoutAvoided(k).Match(as)
		if v.State == model.VolumeLost || v.Amount() != k.Resources[v.Resource] || home.shown() != model.ExecutorReady ||
			home.Record.Draining || home.Withheld() || !matches || slices.Contains(k.Avoid, home.ID) {
			return nil
		}
		pinned[v.ID], on[int(v.Index)] = home, home
	}
	shape := ""
	for id, h := range pinned {
		v := c.volumes[id]
		_, before, _ := simpleFree(c, h, k.Role)
		_, after, _ := simpleFreePinned(c, h, k, pinned)
		grows := !strings.EqualFold(v.Role, k.Role)
		for name, amount := range k.Resources {
			grows = grows || amount > v.Holds()[name]
		}
		if grows && (before == nil || after == nil) || k.SameShape && shape != "" && shape != shapeOf(h) {
			return nil
		}
		shape = shapeOf(h)
	}
	own := newSimpleMatcherPinned(c, nil, k, 0, pinned)
	for h, in := range own.pinned {
		if k.Spread.By != constraint.ByExecutor {
			in = own.domains[own.domain(h)]
		}
		if k.Spread.Max > 0 && in > int64(k.Spread.Max) {
			return nil
		}
	}
	// Workers of other versions count for those that are not on volumes.
	running := simpleRunning(c, key, "", model.WorkerSet{{First: 0, Last: int32(n) - 1, Number: 2}})
	o := newSimpleMatcherPinned(c, running, k, n-len(pinned), pinned)
	var free []string
	if k.SameShape && len(o.pinned) == 0 {
		free = simpleChoice(c, model.Key{}, k, n)
	} else {
		o.hosts = slices.DeleteFunc(o.hosts, func(h *host) bool { return k.SameShape && shapeOf(h) != o.shape() })
		free = o.place()
	}
	if len(free) < n-len(pinned) {
		return nil
	}
	ids := make([]string, n)
	for i := range ids {
		if h := on[i]; h != nil {
			ids[i] = h.ID
		} else {
			ids[i], free = free[0], free[1:]
		}
	}
	return ids
}

// A batch on volumes gets the same executors as with a search worker by worker over all
// executors, and a refusal changes nothing.
func TestVolumesEqualSimpleVolumes(t *testing.T) {
	granted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		tighten(t, r.core)
		ordinals := evenly(1, 3, 6, 9).Draw(t, "executors")
		for i := range ordinals {
			g := drawRegister(t, fmt.Sprintf("h%d", i))
			g.Resources["slots"] = evenly[int64](2, 4, 8).Draw(t, "slots")
			g.Resources["cpu"] = evenly[int64](2, 4, 8).Draw(t, "cpu")
			g.Reserved = nil
			if rapid.Bool().Draw(t, "share") {
				g.Reserved = map[string]resource.Vector{"web": {"slots": 1, "cpu": 1}}
			}
			r.ready(g)
			if evenly(0, 1, 2, 3, 4, 5, 6, 7).Draw(t, "silent") == 0 {
				r.applyDeletion(model.Ref{Kind: model.KindLive, ID: g.ID})
			}
		}
		if evenly(0, 1).Draw(t, "wait") == 0 {
			r.pause(2 * time.Minute)
		}
		for i := range evenly(0, 1, 3).Draw(t, "batches") {
			uid := fmt.Sprintf(evenly("u%d", "db:u%d").Draw(t, "uid"), i)
			r.cycle(r.queue(uid, evenly(1, 2).Draw(t, "n"), drawConstraints(t)))
		}
		n := evenly(1, 2, 3, 5).Draw(t, "workers")
		chunk := &model.VolumeChunk{Job: "job", Stage: "db"}
		for index := range n {
			if evenly(0, 1).Draw(t, "has") == 0 {
				continue
			}
			chunk.Volumes = append(chunk.Volumes, model.Volume{
				ID: fmt.Sprintf("v%d", index), Index: int32(index), Ordinal: uint32(1 + rapid.IntRange(0, ordinals-1).Draw(t, "home")),
				State: evenly(model.VolumePlanned, model.VolumeReady, model.VolumeReady, model.VolumeReady, model.VolumeReady,
					model.VolumeLost).Draw(t, "state"),
				Each:     resource.Vector{"cpu": evenly[int64](0, 1, 2).Draw(t, "had"), "slots": 1},
				Resource: "slots", Role: evenly("", "", "web").Draw(t, "role"), UnwantedSince: r.now,
			})
			v := &chunk.Volumes[len(chunk.Volumes)-1]
			if v.State != model.VolumeLost && rapid.Bool().Draw(t, "whole") {
				v.Whole, v.UnwantedSince = true, time.Time{}
			}
		}
		if len(chunk.Volumes) > 0 {
			r.write(chunk)
		}
		k := drawConstraints(t)
		if rapid.Bool().Draw(t, "anywhere") {
			k.Attributes, k.Pools, k.SKU, k.Avoid = nil, nil, "", nil
		}
		k.Resources = resource.Vector{"cpu": evenly[int64](0, 1, 2).Draw(t, "wants"), "slots": evenly[int64](1, 1, 1, 1,
			2).Draw(t, "size")}
		request := model.VolumeRequest{Resource: "slots", OnLoss: evenly(model.OnVolumeLossWait,
			model.OnVolumeLossReplace).Draw(t, "onLoss")}
		r.apply(&model.Reservation{Key: keyOf("db:a"), UID: "db:a", State: model.Queued, Spec: model.Spec{Constraints: k,
			Volume: &request}, Workers: model.WorkerSet{{First: 0, Last: int32(n) - 1, Number: 2}}})
		want := simpleVolumes(r.core, k, request, keyOf("db:a"), n)
		before := dump(r.core)
		outcome := r.cycle(r.entry("db:a"))[0]
		if want == nil {
			refused++
			if after := dump(r.core); outcome.Result != model.NoFit || after != before {
				t.Fatalf("want no fit without a change, got %+v\nbefore\n%s\nafter\n%s", outcome, before, after)
			}
			return
		}
		granted++
		var got []string
		for _, p := range r.leased("db:a") {
			got = append(got, r.core.allocations[p.Ordinal].host.ID)
		}
		if outcome.Result != model.Granted || !slices.Equal(got, want) {
			t.Fatalf("%+v on %v, want %v: %+v %+v\n%s", outcome, got, want, k, request, before)
		}
		after := dump(r.core)
		rebuilt := New(r.core.cfg)
		for _, ref := range slices.SortedFunc(maps.Keys(r.core.records), compareRefs) {
			rebuilt.set(ref, r.core.records[ref])
		}
		if dump(rebuilt) != after {
			t.Fatalf("the indexes have drifted:\n%s\nrebuilt:\n%s", after, dump(rebuilt))
		}
	})
	if granted == 0 || refused == 0 {
		t.Errorf("%d batches granted, %d refused", granted, refused)
	}
}

// withVolume returns a rig with one executor and a lease of two workers on volumes, which
// have been acknowledged.
func withVolume() (r *rig, reservation *model.Reservation) {
	r = lead(DefaultConfig())
	r.ready(Register{ID: "h1", Resources: resource.Vector{"disk": 10, "slots": 4}})
	reservation = &model.Reservation{Key: keyOf("db:a"), UID: "db:a", State: model.Queued,
		Spec: model.Spec{Constraints: constraint.Constraints{Resources: resource.Vector{"disk": 1, "slots": 1}},
			Volume: &model.VolumeRequest{Resource: "disk"}},
		Workers: model.WorkerSet{{First: 0, Last: 1, Number: 1}}}
	r.apply(reservation)
	r.cycle(r.entry("db:a"))
	r.dispatch("db:a")
	r.changeWorkers("db:a", []int32{0, 1}, func(w *model.TaskWorker) { w.Incarnation = 1 })
	r.catchUp()
	r.settle()
	return r, reservation
}

// An index is wanted while any version names it, except as an unwanted worker. A version that
// replaces another in one transaction takes over its volumes without a write.
func TestVolumesFollowVersions(t *testing.T) {
	r, a := withVolume()
	current := func(index int32) *model.Volume { return r.core.stages[stageOf(a.Key)].current(index) }
	r.end("db:a", model.WorkerCompleted, 0, 1)
	r.catchUp()
	r.settle()
	if v := current(1); !v.Whole {
		t.Fatalf("its version has not ended: %s", volumeText(v))
	}
	next := *a
	next.State, next.Unwanted = model.Active, model.WorkerSet{{First: 1, Last: 1, Number: 1}}
	r.apply(&next)
	if v, other := current(1), current(0); v.Whole || v.UnwantedSince.IsZero() || !other.Whole {
		t.Fatalf("its worker is unwanted: %s, %s", volumeText(v), volumeText(other))
	}
	b := *a
	b.UID, b.Key.Name = "db:b", "other"
	replaced := next
	replaced.State = model.Replaced
	r.write(&replaced)
	r.write(&b)
	effects := 0
	r.measure = func(e model.Effect) {
		for _, put := range e.Puts {
			if chunk, ok := put.(*model.VolumeChunk); ok {
				effects++
				if !chunk.Volumes[0].UnwantedSince.IsZero() {
					t.Errorf("index 0 was unwanted in between")
				}
			}
		}
	}
	r.catchUp()
	r.settle()
	if v := current(1); effects != 1 || v.Whole || !v.UnwantedSince.IsZero() {
		t.Fatalf("%d writes, and wanted again without a grant: %s", effects, volumeText(v))
	}
}

// After the store was restored from a backup, the same UID gets other IDs, unless no time has
// passed. An ID that an executor lists is not given to another volume.
func TestVolumeIDs(t *testing.T) {
	id := func(at time.Time, listed string) string {
		c := New(DefaultConfig())
		c.now = at
		if listed != "" {
			c.setLister(listed, "h1", true)
		}
		p := &volumePlan{Candidate: model.Candidate{UID: "u", Key: keyOf("db")}}
		return (&round{Core: c}).newVolumeID(p, 3, map[string]bool{})
	}
	first := id(start, "")
	if len(first) != 12 || id(start, "") != first || id(start.Add(time.Nanosecond), "") == first || id(start, first) == first {
		t.Errorf("%s, %s, %s, %s", first, id(start, ""), id(start.Add(time.Nanosecond), ""), id(start, first))
	}
}

// A home that registers with less than its volumes hold keeps a worker that uses no more than
// its volume, and gets no other.
func TestVolumeOnAFullHome(t *testing.T) {
	r, a := withVolume()
	r.end("db:a", model.WorkerFailed, 0, 1)
	r.catchUp()
	r.ready(Register{ID: "h1", Resources: resource.Vector{"disk": 1, "slots": 4}, Nonce: "n2"})
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorReady || r.core.overcommitted["h1"] == nil {
		t.Fatalf("want an overcommitted executor, got %+v", v)
	}
	b := *a
	b.UID, b.Workers = "db:b", model.WorkerSet{{First: 0, Last: 2, Number: 2}}
	r.apply(&b)
	if o := r.cycle(r.entry("db:b"))[0]; o.Result != model.NoFit || o.Reason != "INSUFFICIENT_CAPACITY" || o.Fitting != 2 {
		t.Errorf("a new volume on a full executor: %+v", o)
	}
	c := *a
	c.UID, c.Workers = "db:c", model.WorkerSet{{First: 0, Last: 0, Number: 3}}
	c.Spec.Constraints.Resources = resource.Vector{"disk": 1, "slots": 2}
	r.apply(&c)
	if o := r.cycle(r.entry("db:c"))[0]; o.Result != model.NoFit || o.Reason != "VOLUME_AWAY" {
		t.Errorf("a larger worker on a full executor: %+v", o)
	}
	d := *a
	d.UID, d.Workers = "db:d", model.WorkerSet{{First: 0, Last: 1, Number: 4}}
	r.apply(&d)
	expectGranted(t, r.cycle(r.entry("db:d")))
}

// A reservation with more abandoned volumes than a record may have is refused until they are
// deleted.
func TestTooManyAbandonedVolumes(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(Register{ID: "h1", Resources: resource.Vector{"disk": 1000, "slots": 4}})
	chunk := &model.VolumeChunk{Job: "job", Stage: "db"}
	for i := range model.MaxChunkVolumes {
		chunk.Volumes = append(chunk.Volumes, model.Volume{ID: fmt.Sprintf("v%03d", i), Ordinal: 1,
			State: model.VolumeAbandoned, UnwantedSince: start, Each: resource.Vector{"disk": 1}, Resource: "disk"})
	}
	r.apply(chunk)
	r.apply(&model.Reservation{Key: keyOf("db:a"), UID: "db:a", State: model.Queued, Workers: model.WorkerSet{{Number: 1}},
		Spec: model.Spec{Constraints: constraint.Constraints{Resources: resource.Vector{"disk": 1}},
			Volume: &model.VolumeRequest{Resource: "disk"}}})
	if o := r.cycle(r.entry("db:a"))[0]; o.Reason != "VOLUME_AWAY" {
		t.Fatalf("got %+v", o)
	}
	if _, err := r.do(DeleteVolumes{IDs: []string{"v000"}}); err != nil {
		t.Fatal(err)
	}
	h, _ := r.core.Executor("h1")
	if _, err := r.do(ReportVolumes{Executor: "h1", Incarnation: h.Incarnation, Sequence: 1, Gone: []string{"v000"}}); err != nil {
		t.Fatal(err)
	}
	expectGranted(t, r.cycle(r.entry("db:a")))
}

// While the record of a reservation cannot be read, no volume is destroyed because its time is
// over: that reservation may want it.
func TestKeptWhileAReservationIsUnreadable(t *testing.T) {
	for _, unreadable := range []bool{false, true} {
		r := lead(DefaultConfig())
		r.apply(&model.Ready{Since: start})
		r.ready(Register{ID: "h1", Resources: resource.Vector{"disk": 10, "slots": 4}})
		if unreadable {
			r.step(model.Quarantined{Ref: model.Ref{Kind: model.KindReservation, Key: keyOf("db:a"), ID: "db:a"}})
		}
		keep := time.Minute
		r.apply(&model.VolumeChunk{Job: "job", Stage: "db", Volumes: []model.Volume{{ID: "v", Ordinal: 1,
			State: model.VolumeReady, UnwantedSince: start, KeepFor: &keep, Each: resource.Vector{"disk": 1},
			Resource: "disk"}}})
		r.pause(time.Hour)
		if kept := r.core.volumes["v"].State == model.VolumeReady; kept != unreadable {
			t.Errorf("with an unreadable reservation (%v), the volume is %s", unreadable, r.core.volumes["v"].State)
		}
	}
}
