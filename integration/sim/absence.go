package sim

import (
	"bytes"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// presence is what the store has told of an executor so far.
type presence struct {
	there bool
	// gone is when it was there last.
	gone time.Time
	lost bool
}

// told takes what the store was told last, for what the records alone do not
// show: whether what they say of the hosts is so.
func (w *World) told(c store.Change) {
	ref, ok := w.space.Parse(c.Key)
	if !ok {
		return
	}
	switch ref.Kind {
	case model.KindLive:
		p := w.presence(ref.ID)
		if p.there = !c.Deleted; c.Deleted {
			p.gone = w.now
		}
	case model.KindExecutor:
		if record := w.decode(ref, c); record != nil {
			w.checkLost(record.(*model.Executor))
		}
	case model.KindTaskChunk:
		if bytes.Contains(c.Value, []byte(fault.ReasonNotReported)) {
			w.checkNotReported(w.decode(ref, c).(*model.TaskChunk))
		}
	}
}

func (w *World) presence(id string) *presence {
	if w.presences[id] == nil {
		w.presences[id] = &presence{gone: w.now}
	}
	return w.presences[id]
}

// decode answers a record that was put; nil for one that was deleted, or that
// cannot be read.
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

// checkLost says that an executor is given up only while it is away, and was for
// as long as it may be.
func (w *World) checkLost(e *model.Executor) {
	p := w.presence(e.ID)
	newly := e.Lost && !p.lost
	p.lost = e.Lost
	switch {
	case !newly:
	case p.there:
		w.fail("%s is LOST, and is there", e.ID)
	case w.now.Sub(p.gone) < w.lostAfter:
		w.fail("%s is LOST after %v, and may be away for %v", e.ID, w.now.Sub(p.gone), w.lostAfter)
	}
}

// checkNotReported says that no worker is given up for a report without it while
// its executor has it.
func (w *World) checkNotReported(chunk *model.TaskChunk) {
	for _, tw := range chunk.Workers {
		if tw.State != model.WorkerLost || tw.Reason != fault.ReasonNotReported {
			continue
		}
		for a := range w.holders() {
			for _, k := range a.names {
				if wk := a.workers[k]; wk.uid == chunk.UID && k.worker.ID == tw.ID && !wk.state.Terminal() {
					w.fail("%s of %s is LOST for a report without it, and is %s on %s", tw.ID, chunk.UID, wk.state, a.id)
				}
			}
		}
	}
}
