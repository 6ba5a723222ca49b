package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// full is a store that has reached its quota: it refuses whatever adds to it, and
// answers everything else, until somebody has made room.
type full struct {
	until time.Time
	// fills says that the next call is what fills it: the answer is the same, and it
	// happens.
	fills bool
	// refused counts the calls for which there was no room, told those who were told
	// so that nothing was changed.
	refused, told int
}

// fill has the store be full for a while.
func (w *World) fill() {
	w.full.until = w.now.Add(time.Duration(w.rng.IntN(4*int(w.pause.Milliseconds()))) * time.Millisecond)
	w.full.fills = w.rng.IntN(2) == 0
	w.logf("store: full until %.3f", w.full.until.Sub(beginning).Seconds())
}

func (w *World) isFull() bool { return w.now.Before(w.full.until) }

// refuse answers a call that adds to a store which is full.
func (w *World) refuse() store.Outcome {
	w.full.refused++
	if w.full.fills {
		w.full.fills = false
		return store.Fills()
	}
	return store.Full()
}

// checkFull says of a call that was told to have changed nothing for want of room
// that nothing of it was stored since it came, at a revision; it may be a repeat of
// one that was carried out.
func (w *World) checkFull(request any, came int64, err error) {
	if !fault.Is(err, fault.ReasonStoreFull) {
		return
	}
	w.full.told++
	upsert, ok := request.(model.Upsert)
	if !ok {
		return
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.Key == upsert.Key && r.Epoch > came && slices.ContainsFunc(r.Requests, func(mark model.RequestMark) bool { return mark.ID == upsert.RequestID }) {
			w.fail("upsert of %s was told that it changed nothing for want of room, and version %s is of it", r.Key, r.UID)
		}
	}
}

// grant is that of a process: where there is no room for an etcd lease, it says so
// for certain, for one that was granted all the same runs out by itself.
func (w *World) grant(ctx context.Context, ttl time.Duration) (int64, error) {
	lease, err := w.store.Grant(ctx, ttl)
	if errors.Is(err, store.ErrFull) {
		return 0, store.ErrFull
	}
	return lease.ID, err
}
