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

// full is the state of a store that has reached its quota. Until the given time, the
// store rejects calls that add data and answers all other calls.
type full struct {
	until time.Time
	// fills is set if the next call fills the store: the store executes that call, but still
	// answers it with the error of a full store.
	fills bool
	// refused counts the calls that were rejected, reported the calls whose error says that
	// nothing changed.
	refused, reported int
}

// fill makes the store full for a while.
func (w *World) fill() {
	w.full.until = w.now.Add(time.Duration(w.rng.IntN(4*int(w.pause.Milliseconds()))) * time.Millisecond)
	w.full.fills = w.rng.IntN(2) == 0
	w.logf("store: full until %.3f", w.full.until.Sub(startTime).Seconds())
}

func (w *World) isFull() bool { return w.now.Before(w.full.until) }

// refuse returns the outcome of a call that adds data to a full store.
func (w *World) refuse() store.Outcome {
	w.full.refused++
	if w.full.fills {
		w.full.fills = false
		return store.Fills()
	}
	return store.Full()
}

// checkFull checks a call whose error says that nothing changed because the store was
// full. No record that is newer than the arrival of the call, at revision came, may stem
// from the call. An older record may stem from it, because the call may repeat a call
// that was executed.
func (w *World) checkFull(request any, came int64, err error) {
	if !fault.Is(err, fault.ReasonStoreFull) {
		return
	}
	w.full.reported++
	upsert, ok := request.(model.Upsert)
	if !ok {
		return
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.Key == upsert.Key && r.Epoch > came && slices.ContainsFunc(r.Requests,
			func(mark model.RequestMark) bool { return mark.ID == upsert.RequestID }) {
			w.fail("the error of the upsert of %s says that nothing changed, but it created version %s", r.Key, r.UID)
		}
	}
}

// grant grants an etcd lease, as a process does. If the store is full, grant returns a
// definite error. If the store granted the lease anyway, the lease expires unused.
func (w *World) grant(ctx context.Context, ttl time.Duration) (int64, error) {
	lease, err := w.store.Grant(ctx, ttl)
	if errors.Is(err, store.ErrFull) {
		return 0, store.ErrFull
	}
	return lease.ID, err
}
