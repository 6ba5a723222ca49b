package dispatch

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// destroying writes a chunk with DESTROYING volumes of an executor.
func (w *world) destroying(chunk int32, ordinal uint32, n int) {
	c := &model.VolumeChunk{Job: "j", Stage: "s", Chunk: chunk}
	for i := range n {
		c.Volumes = append(c.Volumes, model.Volume{ID: fmt.Sprintf("%03d-%03d", chunk, i), Ordinal: ordinal,
			Index: chunk * model.VolumeChunkSize, State: model.VolumeDestroying})
	}
	w.write(c.Ref(), c)
}

// One call names at most model.MaxDroppedVolumes volumes. The next call follows at once, and the repeat of
// all of them only after a pause.
func TestPromise12ADropNamesALimitedNumberOfVolumes(t *testing.T) {
	w := newWorld(Config{})
	w.executor(1, 1, false)
	w.present("e1", true)
	for chunk := range int32(10) {
		w.destroying(chunk, 1, 250)
	}
	w.progress()
	seen := map[string]bool{}
	drops := of[DropVolumes](w.elect())
	for _, n := range []int{model.MaxDroppedVolumes, model.MaxDroppedVolumes, 500} {
		if len(drops) != 1 || len(drops[0].IDs) != n {
			t.Fatalf("requests: %d, want one with %d volumes", len(drops), n)
		}
		for _, id := range drops[0].IDs {
			seen[id] = true
		}
		drops = of[DropVolumes](w.step(drops[0].Done(Dropping{})))
	}
	if len(seen) != 2500 || len(drops) != 0 {
		t.Errorf("the requests name %d of 2500 volumes; %d follow", len(seen), len(drops))
	}
	if next := w.core.NextDeadline(); !next.Equal(w.now.Add(repeatDrop)) {
		t.Errorf("the next deadline is %v", next)
	}
	w.now = w.now.Add(repeatDrop)
	if drops = of[DropVolumes](w.step(nil)); len(drops) != 1 || len(drops[0].IDs) != model.MaxDroppedVolumes {
		t.Errorf("repeated: %d requests", len(drops))
	}
}

// Requests to destroy volumes count for the limit on requests in flight. Failures are
// repeated after different pauses, so that executors do not get their requests at once.
func TestPromise12DropsInFlightAreLimited(t *testing.T) {
	w := newWorld(Config{InFlight: 2})
	for n := range uint32(4) {
		w.executor(n+1, 1, false)
		w.present(fmt.Sprintf("e%d", n+1), true)
		w.destroying(int32(n), n+1, 1)
	}
	w.progress()
	drops := of[DropVolumes](w.elect())
	if len(drops) != 2 {
		t.Fatalf("%d requests in flight, want 2", len(drops))
	}
	asked := map[string]bool{}
	for ; len(drops) > 0; drops = drops[1:] {
		asked[drops[0].Executor] = true
		drops = append(drops, of[DropVolumes](w.step(drops[0].Done(Unknown{"timeout"})))...)
	}
	if len(asked) != 4 {
		t.Errorf("requested: %v", asked)
	}
	pauses := map[time.Time]bool{}
	for ordinal := range uint32(4) {
		pauses[w.core.requests[workerKey{ordinal: ordinal + 1}].due] = true
	}
	if len(pauses) != 4 {
		t.Errorf("%d different pauses of 4", len(pauses))
	}
}

// A request of an operator never destroys a volume that a record names, whatever its home, also
// if the record becomes known later.
func TestRemovalOfARecordedVolume(t *testing.T) {
	w := newWorld(Config{})
	for n := range uint32(2) {
		w.executor(n+1, 1, false)
		w.present(fmt.Sprintf("e%d", n+1), true)
	}
	w.volume("u1", model.Volume{ID: "v", Ordinal: 1, State: model.VolumeReady})
	e2 := *w.records[model.Ref{Kind: model.KindExecutor, ID: "e2"}].record.(*model.Executor)
	e2.Removals = []string{"v"}
	w.write(e2.Ref(), &e2)
	w.progress()
	if drops := of[DropVolumes](w.elect()); len(drops) > 0 {
		t.Errorf("%+v", drops)
	}
	e2.Removals = []string{"v", "w"}
	w.write(e2.Ref(), &e2)
	drops := of[DropVolumes](w.step(model.Progress{Revision: w.revision}))
	if len(drops) != 1 || len(drops[0].IDs) != 1 || drops[0].IDs[0] != "w" {
		t.Fatalf("%+v", drops)
	}
	w.volume("u1", model.Volume{ID: "w", Index: 1, Ordinal: 1, State: model.VolumeReady})
	w.progress()
	w.step(drops[0].Done(Dropping{}))
	w.now = w.now.Add(repeatDrop)
	if drops = of[DropVolumes](w.step(nil)); len(drops) > 0 {
		t.Errorf("%+v", drops)
	}
}

// While a record of volumes cannot be read, no removal counts.
func TestRemovalWaitsForQuarantinedVolumes(t *testing.T) {
	w := newWorld(Config{})
	w.executor(1, 1, false)
	w.present("e1", true)
	e1 := *w.records[model.Ref{Kind: model.KindExecutor, ID: "e1"}].record.(*model.Executor)
	e1.Removals = []string{"v"}
	w.write(e1.Ref(), &e1)
	w.present("e1", false)
	w.progress()
	w.elect()
	w.step(model.Quarantined{Ref: volumeRef("u1", 0)})
	w.present("e1", true)
	if drops := of[DropVolumes](w.step(model.Progress{Revision: w.revision})); len(drops) > 0 {
		t.Errorf("%+v", drops)
	}
}

// Executor-state destroys a new volume that no worker has used. The end of a worker that its
// executor acknowledged, and then certainly never started, is like that of a worker that no
// executor ever had.
func TestWorkerThatNeverUsedItsVolume(t *testing.T) {
	for _, never := range []bool{false, true} {
		w := newWorld(Config{})
		w.executor(1, 4, false)
		w.present("e1", true)
		w.volume("u1", model.Volume{ID: "v", Ordinal: 1, State: model.VolumePlanned})
		w.volume("u1", model.Volume{ID: "w", Index: 1, Ordinal: 1, State: model.VolumePlanned})
		w.reservation("u1", model.Queued, 3, func(r *model.Reservation) { r.Spec.Volume = &model.VolumeRequest{} })
		w.lease("u1", 1, 1)
		w.progress()
		w.elect()
		w.dispatch(1, "u1")
		w.settled(t)
		for i := range int32(2) {
			w.step(SubmitDone{Executor: "e1", UID: "u1", WorkerID: workerID(i), Attempt: 1,
				Outcome: Accepted{Status: Status{State: model.WorkerStarting},
					Incarnation: 4, Sequence: int64(8 + i)}})
		}
		w.settled(t)
		ended := Status{State: model.WorkerFailed, Error: "volume v: disk full", NeverStarted: never}
		w.step(model.Input{Token: 2, Request: Report{Executor: "e1", Incarnation: 4, Sequence: 10, Workers: []WorkerStatus{
			{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7, Status: ended}}}})
		w.step(StopDone{Executor: "e1", UID: "u1", Worker: workerOf("u1", workerID(1)), Epoch: 7, Result: Ended(ended)})
		w.settled(t)
		for i := range int32(2) {
			got := w.worker(t, "u1", i)
			if !got.State.Terminal() || (got.Incarnation == 0 && got.Sequence == 0) != never {
				t.Errorf("never started %v: %+v", never, got)
			}
		}
	}
}
