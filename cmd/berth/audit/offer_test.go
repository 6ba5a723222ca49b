package audit

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// cell returns the record of a cell.
func cell(ordinal uint32) *model.Executor {
	return &model.Executor{ID: fmt.Sprint("cell", ordinal), Ordinal: ordinal, Cell: true}
}

// celled writes three cells with ordinals from 11, and a reservation of 2 workers for cells.
func (w *world) celled() (*model.Reservation, int64) {
	w.put(cell(11))
	w.put(cell(12))
	w.put(cell(13))
	r := reservation("celled", 1, 2)
	r.Spec.Constraints.Cells = true
	return r, w.put(r)
}

// heldInCells does the same for a reservation that is held for 10 seconds.
func (w *world) heldInCells() (*model.Reservation, int64) {
	r, _ := w.celled()
	next, limit := *r, 10*time.Second
	next.UID, next.Spec.Hold, next.Spec.HoldTimeout = "held", true, &limit
	w.put(in(r, model.Cancelled))
	return &next, w.put(&next)
}

// offered returns an offer at cells with ordinals from 11. It is decided unless it is PENDING at a
// cell.
func offered(r *model.Reservation, number int64, states ...model.CellState) *model.Offer {
	o := &model.Offer{UID: r.UID, Key: r.Key, Number: number, AskedAt: since, AnswerWithin: model.AnswerWithin}
	for i, state := range states {
		o.Cells = append(o.Cells, model.CellOffer{Ordinal: uint32(11 + i), State: state})
	}
	if !o.Has(model.CellPending) {
		o.DecidedAt = since
	}
	return o
}

// on returns a lease on cells.
func on(r *model.Reservation, epoch, cut int64, ordinals ...uint32) *model.LeaseChunk {
	l := lease(r, epoch, cut, ordinals...)
	l.Each, l.GrantedAt = nil, since.Add(time.Second)
	return l
}

func choosing(r *model.Reservation, ordinal uint32) *model.Reservation {
	next := *r
	next.Chosen = cell(ordinal).ID
	return &next
}

const (
	pending     = model.CellPending
	accepted    = model.CellAccepted
	rejected    = model.CellRejected
	unreachable = model.CellUnreachable
	boundTo     = model.CellBound
	released    = model.CellReleased
	withdrawn   = model.CellWithdrawn
)

// TestOffers plays offers to cells, with and without a violation.
func TestOffers(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*world)
		want  []Rule
	}{
		"two versions in one cell": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(offered(r, 5, boundTo, released), on(r, epoch, epoch, 11, 11))
			next := *r
			next.UID, next.Workers = "grown", model.WorkerSet{{First: 2, Last: 3, Number: 1}}
			epoch = w.put(&next)
			w.put(offered(&next, 9, accepted, accepted))
			w.put(offered(&next, 9, boundTo, released), on(&next, epoch, epoch, 11, 11))
		}, nil},
		"two versions in two cells": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(offered(r, 5, boundTo, released), on(r, epoch, epoch, 11, 11))
			next := *r
			next.UID, next.Workers = "grown", model.WorkerSet{{First: 2, Last: 3, Number: 1}}
			epoch = w.put(&next)
			w.put(offered(&next, 9, accepted, accepted))
			w.put(offered(&next, 9, released, boundTo), on(&next, epoch, epoch, 12, 12))
		}, []Rule{RuleOffer}},
		"another cell after all workers were given up": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			l := on(r, epoch, epoch, 11, 11)
			w.put(offered(r, 5, boundTo, released), l)
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(r, model.Active))
			lost := task(l, model.WorkerLost)
			for i := range lost.Workers {
				lost.Workers[i].Unconfirmed = true
			}
			ended := *header(l)
			ended.Ended = true
			w.put(&ended, lost)
			next := *r
			next.UID, next.Workers = "grown", model.WorkerSet{{First: 2, Last: 3, Number: 1}}
			epoch = w.put(&next)
			w.put(offered(&next, 9, accepted, accepted))
			w.put(offered(&next, 9, released, boundTo), on(&next, epoch, epoch, 12, 12))
		}, nil},
		"another cell after the last worker has ended": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(offered(r, 5, boundTo, released), on(r, epoch, epoch, 11, 11))
			w.put(in(r, model.Cancelled)) // its lease is orphaned
			next := *r
			next.UID, next.Workers = "grown", model.WorkerSet{{First: 2, Last: 3, Number: 1}}
			epoch = w.put(&next)
			w.put(offered(&next, 9, accepted, accepted))
			w.put(offered(&next, 9, released, boundTo), on(&next, epoch, epoch, 12, 12))
		}, nil},
		"a lease on the cell that accepted": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, pending, pending))
			w.put(offered(r, 5, accepted, pending))
			w.put(offered(r, 5, accepted, accepted))
			l := on(r, epoch, w.revision, 12)
			w.put(l, offered(r, 5, released, boundTo))
			w.put(header(l), task(l, model.WorkerAssigned))
		}, nil},
		"an answer and the grant in one revision": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, pending))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo))
		}, nil},
		"a grant and the withdrawal in one revision": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, withdrawn))
		}, nil},
		"a cell that withdraws after the grant": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo))
			w.put(offered(r, 5, withdrawn))
		}, nil},
		"cells that are asked again": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, rejected, rejected))
			w.put(offered(r, 6, pending))
			w.put(deletion{model.OfferRef(r.UID)})
			w.put(offered(r, 7, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 7, boundTo))
		}, nil},
		"an answer that is too late": {func(w *world) {
			r, _ := w.celled()
			w.put(offered(r, 5, unreachable))
			w.put(offered(r, 5, released))
		}, nil},
		"a lease without an offer": {func(w *world) {
			r, epoch := w.celled()
			w.put(on(r, epoch, w.revision, 11))
		}, []Rule{RuleOffer}},
		"a lease on a cell that rejected": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, rejected, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, rejected, released))
		}, []Rule{RuleOffer}},
		"a lease on a cell that rejected, and is BOUND": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, rejected))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo))
		}, []Rule{RuleOffer}},
		"a lease on a cell that withdrew": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, withdrawn))
			w.put(on(r, epoch, w.revision, 11))
		}, []Rule{RuleOffer}},
		"a lease on a cell that was not asked": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 12))
		}, []Rule{RuleOffer}},
		"a lease on two cells": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(on(r, epoch, w.revision, 11, 12), offered(r, 5, boundTo, released))
		}, []Rule{RuleOffer}},
		"a lease on a cell and a host": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 11, 1), offered(r, 5, boundTo))
		}, []Rule{RuleOffer}},
		"a lease on a host instead of a cell": {func(w *world) {
			r, epoch := w.celled()
			w.put(on(r, epoch, w.revision, 1))
		}, []Rule{RuleOffer}},
		"a lease on a cell instead of a host": {func(w *world) {
			w.celled()
			r := reservation("local", 2, 1)
			w.put(lease(r, w.put(r), w.revision, 11))
		}, []Rule{RuleCapacity, RuleOffer}},
		"a lease on a cell with amounts": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(lease(r, epoch, w.revision, 11), offered(r, 5, boundTo))
		}, []Rule{RuleCapacity, RuleAllOrNone}},
		"two cells that are BOUND": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo, boundTo))
		}, []Rule{RuleOffer}},
		"an offer that is deleted after the end": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			l := on(r, epoch, w.revision, 11)
			w.put(l, offered(r, 5, boundTo))
			w.put(in(r, model.Cancelled))
			w.put(deletion{l.Ref()}, deletion{model.OfferRef(r.UID)})
		}, nil},
		"an offer that is deleted before the end": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, withdrawn))
			w.put(deletion{model.OfferRef(r.UID)})
		}, []Rule{RuleOffer}},
		"a cell that is not released": {func(w *world) {
			r, epoch := w.celled()
			w.put(offered(r, 5, accepted, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo, accepted))
		}, []Rule{RuleOffer}},
		"a cell that is BOUND without a lease": {func(w *world) {
			r, _ := w.celled()
			w.put(offered(r, 5, accepted))
			w.put(offered(r, 5, boundTo))
		}, []Rule{RuleOffer}},
		"an answer that is taken back": {func(w *world) {
			r, _ := w.celled()
			w.put(offered(r, 5, withdrawn))
			w.put(offered(r, 5, accepted))
		}, []Rule{RuleOffer}},
		"a number that falls": {func(w *world) {
			r, _ := w.celled()
			w.put(offered(r, 5, rejected))
			w.put(offered(r, 4, pending))
		}, []Rule{RuleOffer}},
		"a number that is used again": {func(w *world) {
			r, _ := w.celled()
			w.put(offered(r, 5, rejected))
			w.put(deletion{model.OfferRef(r.UID)})
			w.put(offered(r, 5, pending))
		}, []Rule{RuleOffer}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.write(w)
			wantRules(t, w.audit(), c.want...)
		})
	}
}

// TestHoldsInCells plays holds in cells, with and without a violation.
func TestHoldsInCells(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*world)
		want  []Rule
	}{
		"a bind, and then a lease": {func(w *world) {
			r, epoch := w.heldInCells()
			w.put(offered(r, 5, accepted, accepted))
			b := choosing(bound(r, 9), 12)
			w.put(b)
			l := on(b, epoch, w.revision, 12)
			w.put(l, offered(r, 5, released, boundTo))
			w.put(header(l), task(l, model.WorkerAssigned))
		}, nil},
		"a cell that withdraws just before the bind": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted))
			w.put(offered(r, 5, withdrawn))
			w.put(choosing(bound(r, 9), 11))
		}, nil},
		"a cell that is chosen first, and a later bind": {func(w *world) {
			r, epoch := w.heldInCells()
			w.put(offered(r, 5, accepted, accepted))
			w.put(choosing(r, 12))
			l := on(r, epoch, w.revision, 12)
			w.put(l, offered(r, 5, released, boundTo))
			w.put(choosing(bound(r, 9), 12))
		}, nil},
		"another reservation of the group while cells hold": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted))
			o := reservation("other", 2, 1)
			o.Spec.Constraints.Cells = true
			epoch := w.put(o)
			w.put(offered(o, 9, accepted))
			cut := w.revision
			w.put(offered(r, 5, withdrawn))
			w.put(on(o, epoch, cut, 11), offered(o, 9, boundTo))
		}, nil},
		"another reservation of the group after the cells withdrew": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted))
			o := reservation("other", 2, 1)
			o.Spec.Constraints.Cells = true
			epoch := w.put(o)
			w.put(offered(o, 9, accepted))
			w.put(offered(r, 5, withdrawn))
			w.put(on(o, epoch, w.revision, 11), offered(o, 9, boundTo))
		}, []Rule{RuleOrder}},
		"a bind before a cell accepts": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, pending))
			w.put(choosing(bound(r, 9), 11))
		}, []Rule{RuleHold}},
		"a bind to a cell that rejected": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted, rejected))
			w.put(choosing(bound(r, 9), 12))
		}, []Rule{RuleHold}},
		"a bind without a cell": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted))
			w.put(bound(r, 9))
		}, []Rule{RuleHold}},
		"a bind to another cell than before": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted, accepted))
			w.put(choosing(r, 11))
			w.put(choosing(bound(r, 9), 12))
		}, []Rule{RuleHold}},
		"a bind at the end of the hold": {func(w *world) {
			r, _ := w.heldInCells()
			w.put(offered(r, 5, accepted))
			w.put(choosing(bound(r, 10), 11))
		}, []Rule{RuleHold}},
		"a version that begins with a chosen cell": {func(w *world) {
			r, _ := w.celled()
			next := choosing(r, 11)
			next.UID = "chosen"
			w.put(in(r, model.Cancelled))
			w.put(next)
		}, []Rule{RuleHold}},
		"a lease before a bind": {func(w *world) {
			r, epoch := w.heldInCells()
			w.put(offered(r, 5, accepted))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo))
		}, []Rule{RuleOffer}},
		"a lease on another cell than the bind chose": {func(w *world) {
			r, epoch := w.heldInCells()
			w.put(offered(r, 5, accepted, accepted))
			w.put(choosing(bound(r, 9), 12))
			w.put(on(r, epoch, w.revision, 11), offered(r, 5, boundTo, released))
		}, []Rule{RuleOffer}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.write(w)
			wantRules(t, w.audit(), c.want...)
		})
	}
}

// At rest, every offer is of a version that has not ended.
func TestOffersAtRest(t *testing.T) {
	w := newWorld(t)
	r, _ := w.celled()
	w.put(offered(r, 5, rejected))
	if v := w.audit().Quiesced(); len(v) > 0 {
		t.Error(v)
	}
	w.put(in(r, model.Cancelled))
	if v := w.audit().Quiesced(); len(v) != 1 || v[0].Rule != RuleOffer {
		t.Errorf("got %v, want a violation of OFFER", v)
	}
}

// A snapshot that shows only the end of an offer is no violation.
func TestSnapshotOfOffers(t *testing.T) {
	w := newWorld(t)
	r, epoch := w.celled()
	w.put(offered(r, 5, pending, rejected))
	a := w.audit()
	w.put(offered(r, 5, rejected, rejected))
	w.put(offered(r, 6, accepted, pending))
	w.put(on(r, epoch, w.revision, 11), offered(r, 6, boundTo, released))
	a.Apply(w.snapshot())
	wantRules(t, a)
}
