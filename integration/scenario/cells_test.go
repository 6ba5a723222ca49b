package scenario

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
)

// chaosFor is how long TestCellChaos runs.
var chaosFor = flag.Duration("chaos", 0, "how long to play chaos over three levels of cells")

// cluster starts a cluster with simulated hosts. A cluster without hosts has only cells.
func cluster(t *testing.T, name string, hosts, slots, replicas int) *world {
	t.Helper()
	w := start(t, fleet.Config{LogLevel: "warn", Replicas: replicas})
	if hosts > 0 {
		w.startSim(name, hosts, slots)
		w.awaitReady(hosts)
	}
	return w
}

// startCells makes clusters cells of this one, by ID.
func (w *world) startCells(cells map[string]*world, flags ...string) {
	w.Helper()
	for _, id := range slices.Sorted(maps.Keys(cells)) {
		if err := w.fleet.StartCell(w.ctx, id, cells[id].fleet, flags...); err != nil {
			w.Fatal(err)
		}
	}
	w.awaitReady(len(cells))
}

// inCells returns a request for workers in one cell. The workers run until they are stopped.
func inCells(job, stage string, count int32) *berthv1.Reservation {
	return &berthv1.Reservation{Job: job, Stage: stage, Count: count, Constraints: &berthv1.Constraints{Cells: true}}
}

// awaitFree waits until no worker is leased in the cluster.
func (w *world) awaitFree() {
	w.Helper()
	until(w.T, func() string {
		for e, err := range w.client.Executors(w.ctx, &berthv1.ListExecutorsRequest{}) {
			if err != nil {
				return err.Error()
			}
			if e.GetWorkers() > 0 {
				return fmt.Sprintf("%s has %d workers", e.GetId(), e.GetWorkers())
			}
		}
		return ""
	})
}

// limit fails if something took longer than an acceptance check allows.
func (w *world) limit(what string, began time.Time, most time.Duration) {
	w.Helper()
	(&timeline{t: w.T}).limit(what, time.Since(began), most)
}

// pool returns what a cell answered, as text.
func pool(r *berthv1.Reservation, cell string) string {
	p := r.GetPools()[cell]
	return strings.TrimSpace(fmt.Sprintf("%v %d %s", p.GetState(), p.GetRating(), p.GetReason()))
}

// Acceptance checks 3, 4 and 7 of cells: every zone that can run a held reservation keeps executors
// for it, a bind takes the best, and the others are free. The workers are those of the root: it sees
// them run, stop and end. A reservation that no zone can run waits, and its explanation names the
// zones.
func TestCells(t *testing.T) {
	t.Parallel()
	zones := map[string]*world{}
	root := cluster(t, "root", 0, 0, 1)
	for id, slots := range map[string]int{"zone-a": 10, "zone-b": 5, "zone-c": 1} {
		zones[id] = cluster(t, id, 1, slots, 1)
	}
	root.startCells(zones)

	held := inCells("noon", "batch", 2)
	held.Hold = berthv1.Hold_HOLD.Enum()
	began := time.Now()
	root.upsert(held)
	got := root.await(held, berthv1.Reservation_HELD)
	root.limit("the hold", began, time.Second)
	for cell, want := range map[string]string{"zone-a": "ACCEPTED 80", "zone-b": "ACCEPTED 60",
		"zone-c": "REJECTED 0 INSUFFICIENT_CAPACITY"} {
		if is := pool(got, cell); is != want {
			t.Errorf("%s is %s, want %s", cell, is, want)
		}
	}
	_, err := root.client.Bind(root.ctx, &berthv1.BindReservationRequest{Job: "noon", Stage: "batch", Pool: "zone-c",
		Task: &berthv1.Task{}})
	if f := fault.Of(err); f.Reason != fault.ReasonNotAccepted || !strings.Contains(f.Message, "zone-a, zone-b") {
		t.Errorf("a bind to a zone that rejected: %v", err)
	}
	began = time.Now()
	// Its workers run nothing, as simulated executors permit.
	if _, err := root.client.Bind(root.ctx, &berthv1.BindReservationRequest{Job: "noon", Stage: "batch",
		Task: &berthv1.Task{}}); err != nil {
		t.Fatal(err)
	}
	zones["zone-b"].awaitFree()
	root.limit("the release of the zone that was not bound", began, time.Second)
	root.awaitRunning(held, 2)
	if got := root.await(held, berthv1.Reservation_ACTIVE); pool(got, "zone-a") != "BOUND 80" ||
		pool(got, "zone-b") != "RELEASED 60" {
		t.Errorf("after the bind: %v", got.GetPools())
	}
	if _, err := root.client.CancelJob(root.ctx, "noon"); err != nil {
		t.Fatal(err)
	}
	zones["zone-a"].awaitFree()

	root.endsInCell()
	root.refusedByAll(zones)
	root.placedWhenFree()
	for _, zone := range zones {
		zone.awaitFree()
	}
	root.nothingLeased()
}

// endsInCell runs workers that end by themselves: the root knows their exit codes.
func (w *world) endsInCell() {
	w.Helper()
	r := inCells("ends", "map", 2)
	r.Task = &berthv1.Task{Payload: []byte(`{"runFor": "50ms", "exitCode": 3}`)}
	w.upsert(r)
	codes := 0
	w.awaitEvents("ends", func(e *berthv1.Event) bool {
		for _, worker := range e.GetWorkers() {
			if e.GetKind() == berthv1.Event_WORKER_FAILED && worker.GetExitCode() == 3 {
				codes++
			}
		}
		return codes == 2
	})
}

// refusedByAll requests more workers than any zone has: both zones reject, and the explanation names
// them.
func (w *world) refusedByAll(zones map[string]*world) {
	w.Helper()
	r := inCells("large", "map", 11)
	w.upsert(r)
	until(w.T, func() string {
		got, err := w.client.Get(w.ctx, client.KeyOf(r))
		if err != nil {
			return err.Error()
		}
		return map[bool]string{false: fmt.Sprintf("%v %s", got.GetState(), got.GetReason())}[got.GetReason() == "CELLS_REFUSED"]
	})
	e, err := w.client.Explain(w.ctx, client.KeyOf(r))
	if err != nil {
		w.Fatal(err)
	}
	for id := range zones {
		if !strings.Contains(e.GetMessage(), id+" is REJECTED (INSUFFICIENT_CAPACITY") {
			w.Errorf("the explanation %q does not name %s", e.GetMessage(), id)
		}
	}
	if _, err := w.client.CancelJob(w.ctx, "large"); err != nil {
		w.Fatal(err)
	}
}

// placedWhenFree requests three workers where two fit. The third is placed when one of them ends.
func (w *world) placedWhenFree() {
	w.Helper()
	for i := range 3 {
		r := inCells("three", fmt.Sprintf("s%d", i), 3)
		r.Constraints.Avoid = []string{"zone-b", "zone-c"}
		w.upsert(r)
		w.awaitRunning(r, 3)
	}
	waiting := inCells("three", "s3", 3)
	waiting.Constraints.Avoid = []string{"zone-b", "zone-c"}
	w.upsert(waiting)
	until(w.T, func() string {
		got, err := w.client.Get(w.ctx, client.KeyOf(waiting))
		if err != nil {
			return err.Error()
		}
		return map[bool]string{false: "the fourth request is " + got.GetReason()}[got.GetReason() == "CELLS_REFUSED"]
	})
	began := time.Now()
	if _, err := w.client.Cancel(w.ctx, client.Key{Job: "three", Stage: "s0"}); err != nil {
		w.Fatal(err)
	}
	w.awaitRunning(waiting, 3)
	w.limit("the placement after workers had ended", began, time.Second)
	if _, err := w.client.CancelJob(w.ctx, "three"); err != nil {
		w.Fatal(err)
	}
}

// Acceptance check 4 of cells: single workers are spread evenly over two zones.
func TestCellsSpread(t *testing.T) {
	if !*acceptance {
		t.Skip("make acceptance runs this test")
	}
	root := cluster(t, "root", 0, 0, 1)
	zones := map[string]*world{"zone-a": cluster(t, "a", 50, 1, 1), "zone-b": cluster(t, "b", 50, 1, 1)}
	root.startCells(zones)
	began := time.Now()
	for i := range 50 {
		root.upsert(inCells("spread", fmt.Sprintf("s%d", i), 1))
	}
	count := map[string]int{}
	running := map[string]bool{}
	root.awaitEvents("spread", func(e *berthv1.Event) bool {
		for _, worker := range e.GetWorkers() {
			if e.GetKind() == berthv1.Event_WORKER_RUNNING && !running[e.GetStage()] {
				running[e.GetStage()] = true
				count[worker.GetExecutor()]++
			}
		}
		return len(running) == 50
	})
	root.limit("50 placements", began, 5*time.Second)
	if a, b := count["zone-a"], count["zone-b"]; a-b > 4 || b-a > 4 {
		t.Errorf("%d workers run in zone-a and %d in zone-b", a, b)
	}
}

// Acceptance check 6 of cells: an agent freezes after its cell accepted. The root sees it
// UNREACHABLE, a cancel does not wait for it, and the cell frees the executors by itself.
func TestFrozenCell(t *testing.T) {
	if !*acceptance {
		t.Skip("make acceptance runs this test")
	}
	root := cluster(t, "root", 0, 0, 1)
	zone := cluster(t, "zone", 1, 2, 1)
	root.startCells(map[string]*world{"zone-a": zone})
	held := inCells("noon", "batch", 2)
	held.Hold = berthv1.Hold_HOLD.Enum()
	root.upsert(held)
	root.await(held, berthv1.Reservation_HELD)
	agent := root.fleet.Agent("zone-a")
	root.signal(agent, syscall.SIGSTOP)
	defer root.signal(agent, syscall.SIGCONT)
	frozen := time.Now()
	until(t, func() string {
		e, err := root.client.Executor(root.ctx, "zone-a")
		if err != nil {
			return err.Error()
		}
		return map[bool]string{false: "the cell is " + e.GetState().String()}[e.GetState() == berthv1.Executor_UNREACHABLE]
	})
	root.limit("the cell is UNREACHABLE", frozen, 20*time.Second)
	began := time.Now()
	if _, err := root.client.CancelJob(root.ctx, "noon"); err != nil {
		t.Fatal(err)
	}
	root.limit("the cancel", began, time.Second)
	zone.awaitFree()
	root.limit("the zone is free", frozen, 31*time.Second)
}

// levels is a root with zones, each with leaves.
type levels struct {
	*testing.T
	root     *world
	clusters []*world // all clusters, the root first
	leaves   []*world
	zones    map[string]*world
	rng      *rand.Rand
	// ran counts the workers that ran in leaves.
	ran int
}

// startLevels starts a root with n zones of n leaves each.
func startLevels(t *testing.T, n, replicas int) *levels {
	l := &levels{T: t, root: cluster(t, "root", 0, 0, replicas), rng: rand.New(rand.NewPCG(1, 2))}
	l.clusters = []*world{l.root}
	l.zones = map[string]*world{}
	for z := range n {
		zone := cluster(t, "zone", 0, 0, replicas)
		leaves := map[string]*world{}
		for i := range n {
			leaf := cluster(t, fmt.Sprintf("leaf-%d-%d", z, i), 2, 8, replicas)
			leaves[fmt.Sprintf("leaf-%d-%d", z, i)] = leaf
			l.clusters, l.leaves = append(l.clusters, leaf), append(l.leaves, leaf)
		}
		zone.startCells(leaves)
		l.clusters = append(l.clusters, zone)
		l.zones[fmt.Sprintf("zone-%d", z)] = zone
	}
	l.root.startCells(l.zones, "--into", "cells")
	return l
}

// killAny kills a leader or the agent of a cell at any level, and starts it again.
func (l *levels) killAny() {
	l.Helper()
	w := l.clusters[l.rng.IntN(len(l.clusters))]
	var processes []*child.Process
	for _, service := range model.Services {
		leader, _ := w.leader(service)
		processes = append(processes, leader)
	}
	for _, agent := range w.fleet.Processes()["agents"] {
		if !strings.HasPrefix(agent.Name, "leaf-") || !slices.Contains(l.leaves, w) { // not the simulated hosts
			processes = append(processes, agent)
		}
	}
	p := processes[l.rng.IntN(len(processes))]
	p.Kill()
	w.restart(p)
}

// Acceptance check 5 of cells: reservations go through three levels. Each level keeps one block of
// executors, while leaders and agents of every level are killed. In the end nothing is left.
func TestCellLevels(t *testing.T) {
	t.Parallel()
	n, requests := 1, 6
	if *acceptance {
		n, requests = 2, 200
	}
	l := startLevels(t, n, 2)
	first := inCells("first", "batch", 2)
	first.Hold = berthv1.Hold_HOLD.Enum()
	began := time.Now()
	l.root.upsert(first)
	l.root.await(first, berthv1.Reservation_HELD)
	l.root.limit("the hold over three levels", began, 3*time.Second)
	blocks := 0
	for _, leaf := range l.leaves {
		for range leaf.heldWorkers(2) {
			blocks++
		}
	}
	if want := n; blocks != want {
		t.Errorf("%d leaves hold executors, want one for each of %d zones", blocks, want)
	}
	if _, err := l.root.client.CancelJob(l.root.ctx, "first"); err != nil {
		t.Fatal(err)
	}
	for i := range requests {
		l.request("load", i)
		if i%3 == 0 {
			l.killAny()
		}
	}
	l.awaitEnds("load")
	began = time.Now()
	l.awaitFree()
	l.root.limit("the release of everything", began, 40*time.Second)
	l.countRuns("load")
}

// Acceptance check 6 of cells over three levels: an agent freezes after the zone has chosen its leaf. The
// root has bound nothing, so the leaf frees the executors by itself.
func TestFrozenLeaf(t *testing.T) {
	if !*acceptance {
		t.Skip("make acceptance runs this test")
	}
	l := startLevels(t, 1, 1)
	held := inCells("noon", "batch", 2)
	held.Hold = berthv1.Hold_HOLD.Enum()
	l.root.upsert(held)
	l.root.await(held, berthv1.Reservation_HELD)
	zone := l.zones["zone-0"]
	agent := zone.fleet.Agent("leaf-0-0")
	zone.signal(agent, syscall.SIGSTOP)
	defer zone.signal(agent, syscall.SIGCONT)
	frozen := time.Now()
	if _, err := l.root.client.CancelJob(l.root.ctx, "noon"); err != nil {
		t.Fatal(err)
	}
	l.leaves[0].awaitFree()
	l.root.limit("the leaf is free", frozen, 31*time.Second)
}

// Chaos over three levels for the time of -chaos: leaders and agents of every level are killed, and
// agents freeze, while clients request, hold, bind and cancel. No worker runs twice, the histories of
// all clusters are correct, and no cluster keeps anything for another one in the end.
func TestCellChaos(t *testing.T) {
	if *chaosFor == 0 {
		t.Skip("make chaos-cells runs this test")
	}
	l := startLevels(t, 2, 2)
	seed := uint64(time.Now().UnixNano())
	l.rng = rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	requests := 0
	var binds atomic.Int32
	var calls sync.WaitGroup
	for batch, end := 0, time.Now().Add(*chaosFor); time.Now().Before(end); batch++ {
		job := fmt.Sprintf("load-%d", batch)
		for i := range 20 {
			held := l.request(job, i)
			requests++
			switch {
			case l.rng.IntN(4) == 0:
				l.killAny()
			case l.rng.IntN(20) == 0:
				l.freezeAny()
			}
			if held != nil && l.rng.IntN(2) == 0 {
				keepHeld := l.rng.IntN(3) == 0
				calls.Go(func() {
					if l.bind(held, keepHeld) {
						binds.Add(1)
					}
				})
			}
			if l.rng.IntN(10) == 0 {
				l.root.cancel(inCells(job, fmt.Sprintf("s%d", l.rng.IntN(i+1)), 1))
			}
		}
		calls.Wait()
		l.awaitEnds(job)
		l.countRuns(job)
	}
	began := time.Now()
	l.awaitFree()
	took := time.Since(began)
	t.Logf("%d requests, %d binds, %d workers ran in leaves, all free after %v", requests, binds.Load(), l.ran, took)
	if took > 40*time.Second {
		t.Errorf("the clusters were free only after %v", took)
	}
	if binds.Load() == 0 || l.ran < requests/4 {
		t.Error("too little happened")
	}
}

// bind waits a short time until a reservation is HELD, and binds it. It reports whether it was bound:
// it may have expired or been cancelled.
func (l *levels) bind(r *berthv1.Reservation, keepHeld bool) bool {
	ctx, cancel := context.WithTimeout(l.root.ctx, 10*time.Second)
	defer cancel()
	request := &berthv1.BindReservationRequest{Job: r.GetJob(), Stage: r.GetStage(), KeepHeld: keepHeld}
	if _, err := l.root.client.WaitFor(ctx, client.KeyOf(r), berthv1.Reservation_HELD); err != nil {
		return false
	}
	_, err := l.root.client.Bind(ctx, request)
	if err == nil && keepHeld {
		request.KeepHeld, request.RequestId = false, ""
		_, err = l.root.client.Bind(ctx, request)
	}
	return err == nil
}

// request requests workers that run for a short time, and returns the request if it is held.
func (l *levels) request(job string, i int) (held *berthv1.Reservation) {
	l.Helper()
	r := inCells(job, fmt.Sprintf("s%d", i), 1+int32(i%3))
	r.OnWorkerLoss, r.MaxRestarts = new("REPLACE"), new(int32(100))
	r.Task = &berthv1.Task{Payload: []byte(`{"runFor": "300ms"}`)}
	if i%4 == 0 {
		r.Hold, r.HoldTimeout = berthv1.Hold_HOLD.Enum(), durationpb.New(2*time.Second)
		held = r
	}
	l.root.upsert(r)
	return held
}

// awaitEnds waits until all reservations of a job have ended.
func (l *levels) awaitEnds(job string) {
	l.Helper()
	until(l.T, func() string {
		for r, err := range l.root.client.List(l.root.ctx, &berthv1.ListReservationsRequest{Job: job}) {
			switch {
			case err != nil:
				return err.Error()
			case !client.Ended(r.GetState()):
				return fmt.Sprintf("%s is %v: %s %s", r.GetStage(), r.GetState(), r.GetReason(), r.GetMessage())
			}
		}
		return ""
	})
}

func (l *levels) awaitFree() {
	l.Helper()
	for _, w := range l.clusters {
		w.awaitFree()
	}
}

// freezeAny freezes an agent of a cell for longer than the TTL of its presence.
func (l *levels) freezeAny() {
	l.Helper()
	agent := l.root.fleet.Agent("zone-0")
	l.root.signal(agent, syscall.SIGSTOP)
	time.AfterFunc(17*time.Second, func() { l.root.signal(agent, syscall.SIGCONT) })
}

// countRuns checks that each worker of a job of the root ran in at most one leaf, once. A worker of
// the root is the index of its reservation in the zone, which is that in the leaf.
func (l *levels) countRuns(job string) {
	l.Helper()
	runs := map[string]int{}
	for i, leaf := range l.leaves {
		id := fmt.Sprintf("leaf-%d-%d", i/len(l.zones), i%len(l.zones))
		inLeaf := fmt.Sprintf("%s.zone-%d.%s", id, i/len(l.zones), job)
		origins := map[string]string{} // of the versions in the leaf: the UID in the root
		for r, err := range leaf.client.List(leaf.ctx, &berthv1.ListReservationsRequest{Job: inLeaf, Versions: true}) {
			if err != nil {
				l.Fatal(err)
			}
			var origin struct{ Name string }
			if err := json.Unmarshal([]byte(r.GetLabels()["berth.dev/cell-offer"]), &origin); err != nil {
				l.Fatalf("%s: %v", client.KeyOf(r), err)
			}
			origins[r.GetUid()] = origin.Name
		}
		for e := range l.stored(leaf, inLeaf, len(origins)) {
			for _, worker := range e.GetWorkers() {
				if e.GetKind() == berthv1.Event_WORKER_RUNNING {
					runs[fmt.Sprintf("%s/%d", origins[e.GetUid()], worker.GetIndex())]++
				}
			}
		}
	}
	for worker, n := range runs {
		if l.ran++; n > 1 {
			l.Errorf("the worker of rank %s of %s ran %d times", worker, job, n)
		}
	}
}

// stored returns the events of a job whose versions have ended, up to the end of the last of them.
func (l *levels) stored(w *world, job string, versions int) iter.Seq[*berthv1.Event] {
	return func(yield func(*berthv1.Event) bool) {
		if versions == 0 {
			return
		}
		for e, err := range w.client.Events(w.ctx, job, "") {
			if err != nil {
				l.Fatal(err)
			}
			if !yield(e) {
				return
			}
			switch e.GetKind() {
			case berthv1.Event_RESERVATION_COMPLETED, berthv1.Event_RESERVATION_CANCELLED,
				berthv1.Event_RESERVATION_EXPIRED, berthv1.Event_RESERVATION_FAILED, berthv1.Event_RESERVATION_REPLACED,
				berthv1.Event_RESERVATION_WITHDRAWN:
				if versions--; versions == 0 {
					return
				}
			}
		}
	}
}

// heldWorkers returns the held reservations of n workers.
func (w *world) heldWorkers(n int32) (held []*berthv1.Reservation) {
	w.Helper()
	for r, err := range w.client.List(w.ctx, &berthv1.ListReservationsRequest{State: berthv1.Reservation_HELD}) {
		if err != nil {
			w.Fatal(err)
		}
		if r.GetCount() == n {
			held = append(held, r)
		}
	}
	return held
}
