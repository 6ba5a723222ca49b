package sim

import (
	"io"
	"testing"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// TestRestWaitsForHoldsInCells checks that an offer which a cell has accepted is progress: the hold that
// begins with it must end before the world is at rest. Other changes of offers are no progress.
func TestRestWaitsForHoldsInCells(t *testing.T) {
	w := newWorld(1, io.Discard)
	put := func(record model.Record) int64 {
		value, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		result, err := w.store.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(w.space.Key(record.Ref()), value)}})
		if err != nil {
			t.Fatal(err)
		}
		return result.Revision
	}
	offer := func(states ...model.CellState) *model.Offer {
		o := &model.Offer{UID: "u", Key: model.Key{Job: "job", Stage: "stage", Name: model.MainName}, Number: 1,
			AskedAt: w.now}
		for i, state := range states {
			o.Cells = append(o.Cells, model.CellOffer{Ordinal: uint32(i + 1), State: state})
		}
		return o
	}
	first := put(&model.Ready{Since: w.now})
	put(offer(model.CellPending, model.CellPending))
	put(offer(model.CellRejected, model.CellUnreachable))
	if got := w.progress(); got != first {
		t.Errorf("progress at revision %d, want %d: cells refused an offer since", got, first)
	}
	accepted := put(offer(model.CellRejected, model.CellAccepted))
	put(offer(model.CellRejected, model.CellWithdrawn))
	if got := w.progress(); got != accepted {
		t.Errorf("progress at revision %d, want %d, at which a cell accepted", got, accepted)
	}
	if w.failure != nil {
		t.Error(w.failure)
	}
}
