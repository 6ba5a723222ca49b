package sim

import (
	"bytes"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// presence is the presence of an executor according to the changes of the store.
type presence struct {
	present bool
	// deletedAt is when it was deleted last.
	deletedAt time.Time
	lost      bool
	// returned is the revision at which the executor was LOST last and no longer is.
	returned int64
}

// observe processes the latest changes of the store. It checks whether the records of hosts
// are correct, which an audit of the records alone cannot.
func (w *World) observe(c store.Change) {
	ref, ok := w.space.Parse(c.Key)
	if !ok {
		return
	}
	switch ref.Kind {
	case model.KindLive:
		p := w.presence(ref.ID)
		if p.present = !c.Deleted; c.Deleted {
			p.deletedAt = w.now
		}
	case model.KindExecutor:
		if record := w.decode(ref, c); record != nil {
			w.checkLost(record.(*model.Executor), c.Mod)
			for _, id := range record.(*model.Executor).Removals {
				w.checkRequested(id)
				w.volumes.intended[id] = true
			}
		}
	case model.KindVolumeChunk:
		w.observeVolumes(ref, c)
	case model.KindReservation:
		w.observeWait(ref, c)
		w.observeRounds(ref, c)
	case model.KindLeaseChunk:
		w.observeLease(ref, c)
	case model.KindTaskChunk:
		w.observeEnds(ref, c)
		if bytes.Contains(c.Value, []byte(fault.ReasonNotReported)) {
			w.checkNotReported(w.decode(ref, c).(*model.TaskChunk))
		}
		if !c.Deleted && len(w.unready) > 0 {
			w.checkReady(w.decode(ref, c).(*model.TaskChunk))
		}
	}
}

func (w *World) presence(id string) *presence {
	if w.presences[id] == nil {
		w.presences[id] = &presence{deletedAt: w.now}
	}
	return w.presences[id]
}

// decode returns a record that was put, or nil if it was deleted or cannot be decoded.
func (w *World) decode(ref model.Ref, c store.Change) model.Record {
	if c.Deleted {
		return nil
	}
	record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
	if err != nil {
		w.fail("%v", err)
		return nil
	}
	return record
}

// checkLost checks that an executor is declared LOST only while it is absent, and only
// after it has been absent for the required time.
func (w *World) checkLost(e *model.Executor, revision int64) {
	p := w.presence(e.ID)
	newly := e.Lost && !p.lost
	if p.lost && !e.Lost {
		p.returned = revision
	}
	p.lost = e.Lost
	switch {
	case !newly:
	case p.present:
		w.fail("%s is LOST although it is present", e.ID)
	case w.now.Sub(p.deletedAt) < w.lostAfter:
		w.fail("%s is LOST after %v, want at least %v", e.ID, w.now.Sub(p.deletedAt), w.lostAfter)
	}
}

// unready identifies a worker with readiness REPORTED that has not reported.
type unready struct {
	uid      string
	workerID model.WorkerID
}

// checkReady checks that no worker is RUNNING before it has reported that it is ready.
func (w *World) checkReady(chunk *model.TaskChunk) {
	for _, tw := range chunk.Workers {
		if tw.State == model.WorkerRunning && w.unready[unready{chunk.UID, tw.ID}] {
			w.fail("%s of %s is RUNNING, but has not reported that it is ready", tw.ID, chunk.UID)
		}
	}
}

// checkNotReported checks that no worker is declared LOST because a report does not
// contain it, while the worker still runs on its executor.
func (w *World) checkNotReported(chunk *model.TaskChunk) {
	for _, tw := range chunk.Workers {
		if tw.State != model.WorkerLost || tw.Reason != fault.ReasonNotReported {
			continue
		}
		for a := range w.registeredAgents() {
			for _, k := range a.names {
				if wk := a.workers[k]; wk.uid == chunk.UID && k.worker.ID == tw.ID && !wk.state.Terminal() {
					w.fail("%s of %s is LOST because of a report without it, but is %s on %s", tw.ID, chunk.UID, wk.state, a.id)
				}
			}
		}
	}
}
