package scenario

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Batches may have far more workers than a transaction of etcd has keys.
func TestLargeBatches(t *testing.T) {
	w := start(t, fleet.Config{LogLevel: "warn"})
	w.startSim("sim", 200, 64)
	w.awaitReady(200)
	batch := func(stage string, n int32) *berthv1.Reservation {
		return &berthv1.Reservation{Job: "large", Stage: stage, Count: n}
	}

	// A batch with one worker too many is rejected and changes nothing.
	before := w.keys(space.Prefix())
	_, err := w.client.Reserve(w.ctx, batch("huge", model.MaxWorkers+1))
	refusal(t, err, fault.Invalid, fault.ReasonTooLarge, "count")
	web := newWeb(t, w.fleet.Gateway())
	if status, reason, field := web.refused("PUT", "/v1/jobs/large/stages/huge/reservation",
		`{"count": 50001}`); status != http.StatusBadRequest || reason != "TOO_LARGE" || field != "count" {
		t.Errorf("PUT with count 50001: %d %s %s", status, reason, field)
	}
	w.unchanged(before)

	// The lease of a thousand workers is written in one step of at most four keys.
	thousand := w.upsert(batch("thousand", 1000))
	w.awaitWorkers("large", berthv1.Event_WORKER_RUNNING, 1000)
	w.leasedAtOnce(thousand.GetUid(), 1000, 4)
	w.cancel(thousand)
	w.await(thousand, berthv1.Reservation_CANCELLED)

	// Ten thousand workers are started and stopped.
	many := w.upsert(batch("many", 10_000))
	running := map[int32]bool{}
	w.awaitEvents("large", func(e *berthv1.Event) bool {
		if e.GetKind() == berthv1.Event_WORKER_RUNNING && e.GetStage() == "many" {
			for _, worker := range e.GetWorkers() {
				running[worker.GetIndex()] = true
			}
		}
		return len(running) == 10_000
	})
	w.leasedAtOnce(many.GetUid(), 10_000, 13)
	w.awaitRunning(many, 10_000)
	w.cancel(many)
	if r := w.await(many, berthv1.Reservation_CANCELLED); r.GetWorkerCounts()["EVICTED"] != 10_000 {
		t.Errorf("workers by state: %v", r.GetWorkerCounts())
	}
	w.quiesce()
	w.nothingLeased()
}

// unchanged fails if a key that requests may change has changed. It ignores leaders and
// presences, because on a slow machine a leader may change and an executor may be absent
// for a moment.
func (w *world) unchanged(before map[string]int64) {
	w.Helper()
	after := w.keys(space.Prefix())
	for _, keys := range []map[string]int64{before, after} {
		maps.DeleteFunc(keys, func(key string, _ int64) bool {
			ref, _ := space.Parse(key)
			return ref.Kind == model.KindLeader || ref.Kind == model.KindLive
		})
	}
	for key, mod := range after {
		if before[key] != mod {
			w.Errorf("%s was changed at revision %d", key, mod)
		}
	}
	if len(after) < len(before) {
		w.Errorf("%d of %d keys are left", len(after), len(before))
	}
}

// leasedAtOnce checks that one revision has the whole lease, and that the revision has at
// most the given number of changes.
func (w *world) leasedAtOnce(uid string, workers, most int) {
	w.Helper()
	byRevision := map[int64][]store.Change{}
	first := int64(0)
	for _, c := range w.history() {
		byRevision[c.Mod] = append(byRevision[c.Mod], c)
		if ref, ok := space.Parse(c.Key); ok && first == 0 && ref.Kind == model.KindLeaseChunk && ref.ID == uid {
			first = c.Mod
		}
	}
	leased, n := 0, 0
	for _, c := range byRevision[first] {
		if strings.HasPrefix(c.Key, space.Segments()) {
			continue // a service begins a segment with its first events
		}
		n++
		if chunk, ok := decode(w, c, model.KindLeaseChunk).(*model.LeaseChunk); ok && chunk.UID == uid {
			leased += len(chunk.Workers)
		}
	}
	if leased != workers || n > most {
		w.Errorf("revision %d leases %d of %d workers with %d changes, want at most %d", first, leased, workers, n, most)
	}
}

// stateOf returns the stored state of a version.
func (w *world) stateOf(uid string) model.State {
	for _, r := range records[*model.Reservation](w, model.KindReservation) {
		if r.UID == uid {
			return r.State
		}
	}
	return model.StateUnset
}

// nothingLeased waits until no executor is in use and no task is left.
func (w *world) nothingLeased() {
	w.Helper()
	until(w.T, func() string {
		if leases, tasks := records[*model.LeaseChunk](w, model.KindLeaseChunk),
			records[*model.TaskHeader](w, model.KindTaskHeader); len(leases)+len(tasks) > 0 {
			left := fmt.Sprintf("%d leases and %d tasks are left", len(leases), len(tasks))
			for _, h := range tasks {
				left += fmt.Sprintf("; %s %s: %s", h.Key, w.stateOf(h.UID), w.task(h.UID))
			}
			return left
		}
		return ""
	})
	for e, err := range w.client.Executors(w.ctx, &berthv1.ListExecutorsRequest{PageSize: 1000}) {
		if err != nil {
			w.Fatal(err)
		}
		if e.GetWorkers() != 0 || e.GetUsed()["slots"] != 0 {
			w.Errorf("%s has %d workers and uses %v", e.GetId(), e.GetWorkers(), e.GetUsed())
		}
	}
}
