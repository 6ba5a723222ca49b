package inventory

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/policy"
)

// world is a rig that runs random operations and checks the invariants.
type world struct {
	*rig
	t     *rapid.T
	uids  []string
	cycle int64
	used  map[string]resource.Vector
	// ordinals and incarnations have all values that were ever stored.
	ordinals     map[uint32]string
	incarnations map[string]int64
}

var anyExecutor = evenly("h0", "h1", "h2", "h3", "h4", "h5")

func (w *world) register() {
	g := drawRegister(w.t, anyExecutor.Draw(w.t, "executor"))
	g.SecretHash = evenly("", "s", "s", "s", "t").Draw(w.t, "secret")
	w.ask(g)
}

func (w *world) announce() {
	id := anyExecutor.Draw(w.t, "executor")
	view, _ := w.core.Executor(id)
	w.ask(Announce{id, view.Incarnation - rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(w.t, "older"),
		rapid.Int64Range(1, 2).Draw(w.t, "etcdLease"), rapid.IntRange(0, 1).Draw(w.t, "workers"),
		rapid.IntRange(0, 3).Draw(w.t, "orphans") == 0, evenly("", view.Nonce, view.Nonce, view.Nonce, "n1").Draw(w.t,
			"nonce")})
}

func (w *world) silence() {
	ref := model.Ref{Kind: model.KindLive, ID: anyExecutor.Draw(w.t, "executor")}
	if len(w.effects) > 0 {
		return // The view moves only between rounds.
	}
	w.drop(ref)
}

func (w *world) enqueue() {
	if evenly(0, 1, 2).Draw(w.t, "volumes") == 0 {
		w.enqueueVolumes()
		return
	}
	uid := fmt.Sprintf("u%d", len(w.uids))
	if rapid.Bool().Draw(w.t, "version") {
		uid = "g:" + uid
	}
	w.uids = append(w.uids, uid)
	k := drawConstraints(w.t)
	n := evenly[int32](1, 2, 3, 6).Draw(w.t, "workers")
	var notBefore time.Time
	if evenly(0, 1, 2, 3).Draw(w.t, "delayed") == 0 {
		notBefore = w.now.Add(evenly(time.Second, time.Minute).Draw(w.t, "for"))
	}
	w.write(&model.Reservation{
		Key: keyOf(uid), UID: uid, State: model.Queued, Spec: model.Spec{Constraints: k}, NotBefore: notBefore,
		Workers: model.WorkerSet{{First: 0, Last: n - 1, Number: 1}},
	})
}

func (w *world) offer() {
	w.cycle++
	p := model.Cycle{Term: w.registryTerm(), Number: w.cycle, Cut: w.rev}
	for _, uid := range w.uids {
		if _, ok := w.keys[refOf(uid)]; ok && rapid.Bool().Draw(w.t, "offered") {
			e := w.entry(uid)
			p.Candidates = append(p.Candidates, e)
		}
	}
	w.ask(p)
}

// reservation draws a UID that was used and reports whether its reservation is still in the
// store. If no UID was used, it returns an empty one.
func (w *world) reservation() (string, bool) {
	if len(w.uids) == 0 {
		return "", false
	}
	uid := evenly(w.uids...).Draw(w.t, "uid")
	_, ok := w.keys[refOf(uid)]
	return uid, ok
}

func (w *world) cancel() {
	if uid, ok := w.reservation(); ok {
		w.state(uid, rapid.SampledFrom([]model.State{model.Cancelled, model.Cancelling, model.Active}).Draw(w.t, "state"))
	}
}

func (w *world) forget() {
	if uid, ok := w.reservation(); ok {
		w.drop(refOf(uid))
	}
}

func (w *world) assign() {
	uid, ok := w.reservation()
	if !ok || len(w.leased(uid)) == 0 || len(w.effects) > 0 {
		return
	}
	if _, ok := w.keys[model.Ref{Kind: model.KindTaskHeader, ID: uid}]; !ok {
		w.dispatch(uid)
	}
}

func (w *world) endWorkers() {
	if len(w.uids) > 0 {
		if rapid.Bool().Draw(w.t, "acknowledged") {
			w.changeWorkers(evenly(w.uids...).Draw(w.t, "uid"), []int32{0, 1, 2, 3, 62, 63, 64}, func(tw *model.TaskWorker) {
				tw.Incarnation = 1
			})
		}
		w.end(evenly(w.uids...).Draw(w.t, "uid"), rapid.SampledFrom([]model.WorkerState{model.WorkerRunning,
			model.WorkerCompleted, model.WorkerLost}).Draw(w.t, "state"),
			rapid.SliceOfN(evenly[int32](0, 1, 2, 3, 4, 5, 6, 62, 63, 64), 1, 6).Draw(w.t, "workers")...)
	}
}

func (w *world) disable() {
	d := policy.Disable{RequestID: anyRequest.Draw(w.t, "request"), Selector: w.selector()}
	if rapid.Bool().Draw(w.t, "expires") {
		d.ExpireAt = w.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(w.t, "s")) * time.Second)
	}
	w.ask(d)
}

func (w *world) selector() policy.Selector {
	if rapid.Bool().Draw(w.t, "byKind") {
		return policy.Selector{Attributes: evenly(
			map[string]string{"ZONE": "a"}, map[string]string{"zone": "B"}, map[string]string{"Serial": "H1"},
		).Draw(w.t, "kind")}
	}
	return policy.Selector{IDs: rapid.SliceOfN(anyExecutor, 1, 3).Draw(w.t, "ids")}
}

func (w *world) enable() {
	e := policy.Enable{RequestID: anyRequest.Draw(w.t, "request"), DisableRequestID: anyRequest.Draw(w.t, "undo")}
	if rapid.Bool().Draw(w.t, "selected") {
		e.DisableRequestID, e.Selector = "", w.selector()
	}
	w.ask(e)
}

func (w *world) drain() {
	d := policy.Drain{ID: anyExecutor.Draw(w.t, "executor"), RequestID: anyRequest.Draw(w.t, "request")}
	if seconds := rapid.IntRange(-1, 2).Draw(w.t, "grace"); seconds >= 0 {
		d.Grace = new(time.Duration(seconds) * time.Second)
	}
	w.ask(d)
}

// A claim never picks an executor that has a worker, even if the lease of that worker is
// not durable yet.
func (w *world) claim() {
	workers := map[string]int{}
	for h := range w.core.byID.All() {
		workers[h.ID] = h.allocation.Workers + h.allocation.Volumes
	}
	request := anyRequest.Draw(w.t, "request")
	known := w.core.disableRecord(request) != nil
	token := w.ask(policy.Claim{RequestID: request, SKU: anySKU.Draw(w.t, "sku"),
		Max: rapid.IntRange(1, 3).Draw(w.t, "max")})
	reply := w.replies[token]
	if reply.Err != nil || known {
		return
	}
	for _, id := range reply.Value.(policy.Claimed).Executors {
		if h := w.core.hosts[id]; workers[id] != 0 || isOpen(h) || !h.Withheld() {
			w.t.Fatalf("claimed %s, which holds %d workers", id, workers[id])
		}
	}
}

func (w *world) putPool() {
	p := model.Pool{Name: anyPool.Draw(w.t, "pool"), Attributes: evenly(nil, map[string]string{"zone": "a"},
		map[string]string{"ZONE": "B", "rack": "1"}, map[string]string{"serial": "h2"}).Draw(w.t, "members")}
	if rapid.Bool().Draw(w.t, "lostAfter") {
		after := time.Duration(rapid.IntRange(0, 90).Draw(w.t, "s")) * time.Second
		p.LostAfter = &after
	}
	w.ask(policy.PutPool{Pool: p})
}

func (w *world) deletePool() { w.ask(policy.DeletePool{Name: anyPool.Draw(w.t, "pool")}) }

var (
	anyRequest = evenly("d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7")
	anyPool    = evenly("p", "P", "night")
)

func (w *world) commitSome() {
	if len(w.effects) > 0 {
		w.commit(rapid.IntRange(1, len(w.effects)).Draw(w.t, "effects"))
	}
}

// rollBack decides several inputs and abandons them. No trace of them remains.
func (w *world) rollBack() {
	w.settle()
	before := dump(w.core)
	for range rapid.IntRange(1, 5).Draw(w.t, "decisions") {
		rapid.SampledFrom([]func(){w.register, w.announce, w.offer, w.disable, w.enable, w.drain, w.claim, w.putPool,
			w.deletePool, w.list, w.deleteSome, w.abandonSome, func() { w.step(nil) }}).Draw(w.t, "decision")()
	}
	w.step(model.Abandoned{})
	if after := dump(w.core); after != before {
		w.t.Fatalf("abandoned, and changed:\n%s\nwas:\n%s", after, before)
	}
	w.abandon()
}

// check checks the invariants that hold after every step.
func (w *world) check() {
	c := w.core
	// Every index follows from the records, whatever the order in which they arrived.
	rebuilt := New(c.cfg)
	rebuilt.now = c.now
	c.passDelays(c.now) // not every step looks at the time
	for _, ref := range rapid.Permutation(slices.SortedFunc(maps.Keys(c.records), compareRefs)).Draw(w.t, "order") {
		rebuilt.set(ref, c.records[ref])
	}
	if got, want := dump(c), dump(rebuilt); got != want {
		w.t.Fatalf("the indexes have drifted:\n%s\nrebuilt:\n%s", got, want)
	}
	// No executor uses more than its capacity. If an executor returned with less capacity, its
	// used amount may only fall.
	used := map[string]resource.Vector{}
	for h := range c.byID.All() {
		used[h.ID] = h.allocation.Used.Clone()
		for name, amount := range h.allocation.Used {
			if amount < 0 || amount > max(h.Record.Resources[name]+w.imposed(h)[name], w.used[h.ID][name]) {
				w.t.Fatalf("%s uses %d %s of %d, %d before", h.ID, amount, name, h.Record.Resources[name], w.used[h.ID][name])
			}
		}
	}
	w.used = used
	w.listed()
	w.named()
	w.onVolumes()
}

// named checks three invariants. An ordinal never belongs to two executors, the incarnation
// of an ID never falls, and executors that leases or tasks name are not deleted.
func (w *world) named() {
	there := map[uint32]bool{}
	for ref, k := range w.keys {
		if ref.Kind != model.KindExecutor {
			continue
		}
		e := k.record.(*model.Executor)
		if id, known := w.ordinals[e.Ordinal]; known && id != e.ID {
			w.t.Fatalf("ordinal %d was that of %s and is that of %s", e.Ordinal, id, e.ID)
		}
		if e.Incarnation < w.incarnations[e.ID] {
			w.t.Fatalf("%s has incarnation %d, and had %d", e.ID, e.Incarnation, w.incarnations[e.ID])
		}
		w.ordinals[e.Ordinal], w.incarnations[e.ID], there[e.Ordinal] = e.ID, e.Incarnation, true
	}
	if len(w.core.journal) > 0 {
		return // decisions that are not stored may name executors that are not stored yet
	}
	for ordinal, h := range w.core.allocations {
		if h.mentioned() && !there[ordinal] {
			w.t.Fatalf("%s is named and forgotten", w.ordinals[ordinal])
		}
	}
}

// listed checks that the state that an operator sees of an executor agrees with what the
// matcher may use. Both must agree with the requests that apply to the executor.
func (w *world) listed() {
	c := w.core
	for h := range c.byID.All() {
		v := c.view(h)
		free := v.State == model.ExecutorReady && len(v.Disabled) == 0 && !v.Draining && c.overcommitted[h.ID] == nil
		if allocatable := isOpen(h); free != allocatable {
			w.t.Fatalf("%s is listed free %v, allocatable %v:\n%s", h.ID, free, allocatable, dump(c))
		}
		var want []string
		draining, grace := false, time.Duration(math.MaxInt64)
		for ref, held := range c.records {
			if ref.Kind != model.KindDisable || !recordOf[*model.Disable](held).InForce() {
				continue
			}
			d := recordOf[*model.Disable](held)
			ok, _ := constraint.Constraints{Attributes: d.Attributes}.Match(h.Record.Match())
			if slices.Contains(d.IDs, h.ID) || len(d.Attributes) > 0 && ok {
				want = append(want, d.ID)
				draining = draining || d.Drain
				if d.Grace != nil {
					grace = min(grace, *d.Grace)
				}
			}
		}
		slices.Sort(want)
		var holding []string
		for _, d := range v.Disabled {
			holding = append(holding, d.ID)
		}
		if !slices.Equal(want, holding) || draining != h.Record.Draining {
			w.t.Fatalf("%s is disabled by %v with draining=%v, want %v and %v", h.ID, holding, h.Record.Draining, want, draining)
		}
		if given := h.Record.DrainGrace; given == nil && grace != math.MaxInt64 || given != nil && *given != grace {
			w.t.Fatalf("the drains of %s give %v, want %v", h.ID, given, grace)
		}
	}
}

func compareRefs(a, b model.Ref) int {
	return cmpRef(fmt.Sprint(a), fmt.Sprint(b))
}

func cmpRef(a, b string) int {
	if a < b {
		return -1
	} else if a > b {
		return 1
	}
	return 0
}

// strict checks that each grant leases every worker exactly once.
func (w *world) strict() {
	for _, effect := range w.effects {
		if len(effect.Events) == 0 || effect.Events[0].Kind != model.EventReservationLeased {
			continue
		}
		placements := map[model.WorkerID]bool{}
		for _, record := range effect.Puts {
			if chunk, ok := record.(*model.LeaseChunk); ok {
				for _, p := range chunk.Workers {
					placements[p.Worker] = true
				}
			}
		}
		uid := effect.Events[0].UID
		if want := w.entryWorkers(uid); len(placements) != want {
			w.t.Fatalf("%s requests %d workers, leased %d", uid, want, len(placements))
		}
	}
}

func (w *world) entryWorkers(uid string) int {
	for _, in := range w.inputs {
		if p, ok := in.Request.(model.Cycle); ok {
			for _, e := range p.Candidates {
				if e.UID == uid {
					return e.Workers.Len()
				}
			}
		}
	}
	return w.entry(uid).Workers.Len()
}

func TestLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}, ordinals: map[uint32]string{},
			incarnations: map[string]int64{}}
		actions := map[string]func(){
			"register": w.register, "register more": w.register, "offer more": w.offer, "announce": w.announce,
			"announce more": w.announce, "silence": w.silence,
			"queue": w.enqueue, "offer": w.offer, "cancel": w.cancel, "forget": w.forget,
			"disable": w.disable, "enable": w.enable, "drain": w.drain, "claim": w.claim, "pool": w.putPool,
			"no pool": w.deletePool,
			"assign":  w.assign, "end": w.endWorkers, "commit": w.commitSome, "take back": w.rollBack,
			"list": w.list, "list more": w.list, "delete volumes": w.deleteSome, "abandon volumes": w.abandonSome,
			"ready":  func() { w.apply(&model.Ready{Since: w.now}) },
			"settle": w.settle, "abandon": w.abandon, "fail over": w.failOver,
			"a moment":   func() { w.step(nil) },
			"see":        func() { w.settle(); w.catchUp() },
			"wait a day": func() { w.pause(24 * time.Hour) },
			"wait":       func() { w.pause(time.Duration(rapid.IntRange(1, 70).Draw(t, "s")) * time.Second) },
		}
		names := slices.Sorted(maps.Keys(actions))
		for range evenly(5, 20, 60, 100).Draw(t, "steps") {
			actions[evenly(names...).Draw(t, "action")]()
			w.strict()
			w.check()
		}
		w.quiesce()
	})
}

// quiesce ends all work. It checks that no lease is orphaned, no capacity is used and every
// input was answered.
func (w *world) quiesce() {
	w.settle()
	w.catchUp()
	for _, uid := range w.uids {
		if _, ok := w.keys[refOf(uid)]; ok {
			w.state(uid, model.Cancelled)
		}
		w.end(uid, model.WorkerEvicted, 0, 1, 2, 3, 4, 5, 6, 62, 63, 64)
	}
	w.catchUp()
	w.settle()
	if len(w.inputs) > 0 {
		w.t.Fatalf("not answered: %+v", w.inputs)
	}
	if len(w.core.leases) > 0 {
		w.t.Fatalf("leases without an owner:\n%s", dump(w.core))
	}
	for ref := range w.keys {
		if ref.Kind == model.KindLeaseChunk {
			w.t.Fatalf("stored without an owner: %v", ref)
		}
	}
	for h := range w.core.byID.All() {
		held := resource.Vector{}
		for _, v := range h.allocation.volumes {
			held = held.Plus(1, v.Holds())
			if v.Whole || v.UnwantedSince.IsZero() {
				w.t.Fatalf("nobody wants volume %s", volumeText(v.Volume))
			}
		}
		if !h.allocation.Used.Equal(held) || h.allocation.Workers > 0 {
			w.t.Fatalf("%s: %d workers, used %v", h.ID, h.allocation.Workers, h.allocation.Used)
		}
	}
}
