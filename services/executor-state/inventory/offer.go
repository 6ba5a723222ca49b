package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// A candidate with constraints.Cells is placed into one cell, which is another Berth cluster. While
// workers of its reservation have executors of a cell, under any UID, that is the only cell: a
// reservation is never split. See cellsOf.
//
//  1. A cycle that tries the candidate writes an offer: it asks the cells that match. The
//     candidate does not fit yet (OFFERING).
//  2. Each cell accepts or rejects. The offer is decided when every cell has answered or is
//     late.
//  3. If a cell has accepted, a later cycle grants a lease on the one with the highest rating,
//     and releases the others. A held candidate first waits until a bind chooses the cell.
//  4. If none has, the candidate does not fit (CELLS_REFUSED). A cycle asks the cells again after
//     model.AskAgainAfter, or once a cell has reported that capacity became free.
const (
	// forgetAfter is how long after a cell lost its presence it counts as having withdrawn what it
	// accepted. By then the cell has freed the executors, because its agent does not extend the
	// hold any longer.
	forgetAfter = 30 * time.Second
	// freedAfter is the minimum time after a refusal before the cells are asked again because one of
	// them reports that capacity became free. So such reports cannot make the leader ask all the
	// time.
	freedAfter = 250 * time.Millisecond
	// listedRefusals is how many cells the message of CELLS_REFUSED names.
	listedRefusals = 3
	// maxOfferBytes is the approximate size of the open offers to a cell above which it is not asked.
	// The replicas send them in one message at the start of a stream.
	maxOfferBytes = 1 << 20
	// silentFrom is how many offers in a row a cell misses before that is a finding.
	silentFrom = 10
)

// offers holds the offers, and what follows from them.
type offers struct {
	byUID map[string]*model.Offer
	// refused holds the offers that all cells refused, by UID.
	refused map[string]bool
	// waiting holds the offers that no lease follows yet, by UID: a cell is asked or keeps executors.
	waiting map[string]bool
	// sizes holds the approximate size of each offer to a cell that keeps executors or is asked.
	sizes map[string]int
	// cells holds the executors that are cells, by ID.
	cells core.Ordered[*host]
	// leased holds the UIDs of the leases on cells by the key of their reservation.
	leased map[model.Key]map[string]bool
	// changes rises with every change of an offer.
	changes uint64
	// deleted is the highest number of an offer that this replica saw deleted.
	deleted int64
	// due holds when the leader next reviews an offer without a change, and dueOf the same by
	// UID.
	due   core.Ordered[offerDue]
	dueOf map[string]offerDue
}

type offerDue struct {
	at  time.Time
	uid string
}

func newOffers() offers {
	return offers{
		byUID: map[string]*model.Offer{}, refused: map[string]bool{}, waiting: map[string]bool{},
		sizes: map[string]int{}, cells: core.NewOrdered(compareIDs), dueOf: map[string]offerDue{},
		leased: map[model.Key]map[string]bool{},
		due:    core.NewOrdered(func(a, b offerDue) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid)) }),
	}
}

// openAt reports whether a cell has to know of an offer in this state. For the cell, an offer in
// any other state has ended.
func openAt(s model.CellState) bool {
	return s == model.CellPending || s == model.CellAccepted || s == model.CellBound
}

func (c *Core) setOffer(uid string, prev, next *entry) {
	c.offers.changes++
	if before := recordOf[*model.Offer](prev); before != nil {
		for _, cell := range before.Cells {
			allocation := c.allocationOf(cell.Ordinal)
			if openAt(cell.State) {
				allocation.offerBytes -= c.sizeOf(uid, cell.State)
			}
			delete(allocation.offers, uid)
			allocation.offersChanged = c.offers.changes
			c.dropAllocation(cell.Ordinal)
		}
		delete(c.offers.byUID, uid)
		delete(c.offers.refused, uid)
		delete(c.offers.waiting, uid)
	}
	offer := recordOf[*model.Offer](next)
	if offer == nil {
		if before := recordOf[*model.Offer](prev); before != nil {
			c.offers.deleted = max(c.offers.deleted, before.Number)
		}
		c.scheduleOffer(uid, time.Time{})
		delete(c.freed, uid)
		delete(c.offers.sizes, uid)
		return
	}
	c.offers.byUID[uid] = offer
	if _, known := c.offers.sizes[uid]; !known {
		c.offers.sizes[uid] = sizeOfOffer(recordOf[*model.Reservation](c.reservations[uid]))
	}
	switch {
	case offer.Has(model.CellBound):
	case offer.Has(model.CellPending) || offer.Has(model.CellAccepted):
		c.offers.waiting[uid] = true
	case offer.IsDecided():
		c.offers.refused[uid] = true
	}
	for _, cell := range offer.Cells {
		if !openAt(cell.State) {
			continue
		}
		allocation := c.allocationOf(cell.Ordinal)
		if allocation.offers == nil {
			allocation.offers = map[string]*model.Offer{}
		}
		allocation.offers[uid] = offer
		allocation.offerBytes += c.sizeOf(uid, cell.State)
		allocation.offersChanged = c.offers.changes
	}
	c.markOffer(uid)
}

// setCellLease records that a chunk of a lease was added or removed, and whether any is left. A lease
// on a host is ignored.
func (c *Core) setCellLease(chunk *model.LeaseChunk, left bool) {
	if len(chunk.Each) > 0 || chunk.OnVolumes {
		return
	}
	uids := c.offers.leased[chunk.Key]
	switch {
	case !left:
		if delete(uids, chunk.UID); len(uids) == 0 {
			delete(c.offers.leased, chunk.Key)
		}
	case uids == nil:
		c.offers.leased[chunk.Key] = map[string]bool{chunk.UID: true}
	default:
		uids[chunk.UID] = true
	}
	if c.term == 0 || len(c.offers.waiting) == 0 {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(c.offers.waiting)) {
		if c.offers.byUID[uid].Key == chunk.Key {
			c.markOffer(uid) // other cells may keep executors for the reservation
		}
	}
}

// cellsOf returns the cells whose executors workers of a reservation have, by ID, without the lease
// with the given UID. Workers that have ended or were given up, and leases that nobody can use any
// more, do not count.
// All workers of one lease are in one cell. The result has more than one cell only if Berth 0.1 split
// the reservation.
func (c *Core) cellsOf(key model.Key, except string) (cells []*host) {
	for uid := range c.offers.leased[key] {
		l := c.leases[uid]
		if uid == except || c.orphaned(uid, l) || c.givenUp(uid, l) {
			continue
		}
		if h := c.hostOf(l.executor()); h != nil && !slices.Contains(cells, h) {
			cells = append(cells, h)
		}
	}
	slices.SortFunc(cells, compareIDs)
	return cells
}

// givenUp reports whether all workers that a lease still has are LOST and unconfirmed.
func (c *Core) givenUp(uid string, l *lease) bool {
	t := c.tasks[uid]
	if t == nil {
		return false
	}
	left := 0
	for _, chunk := range l.chunks {
		left += len(chunkOf(chunk).Workers)
	}
	for _, chunk := range t.chunks {
		for i := range chunk.record.(*model.TaskChunk).Workers {
			if chunk.record.(*model.TaskChunk).Workers[i].Unconfirmed {
				left--
			}
		}
	}
	return left == 0
}

// isAmong reports whether a cell may have workers of a reservation that has workers in some cells.
func isAmong(h *host, cells []*host) bool { return len(cells) == 0 || slices.Contains(cells, h) }

// setHeld records whether a reservation is held, which the cell at which its offer is BOUND has to know.
func (c *Core) setHeld(uid string, prev, next *entry) {
	before, after := recordOf[*model.Reservation](prev), recordOf[*model.Reservation](next)
	offer := c.offers.byUID[uid]
	if offer == nil || (before != nil && before.Holds()) == (after != nil && after.Holds()) {
		return
	}
	c.offers.changes++
	for _, cell := range offer.Cells {
		if cell.State == model.CellBound {
			c.allocationOf(cell.Ordinal).offersChanged = c.offers.changes
		}
	}
}

// sizeOf returns the approximate size of an offer to a cell where it is open, in bytes. A cell at which
// it is BOUND gets no more than its UID.
func (c *Core) sizeOf(uid string, state model.CellState) int {
	if state == model.CellBound {
		return 64
	}
	return c.offers.sizes[uid]
}

// sizeOfOffer returns the approximate size of the offer of a reservation, which may be unknown.
func sizeOfOffer(r *model.Reservation) int {
	size := 256
	if r != nil {
		size += 16*len(r.Workers) + len(r.Spec.Labels[model.PathLabel])
		for name := range r.Spec.Constraints.Resources {
			size += len(name) + 16
		}
	}
	return size
}

// measureOffers measures all offers again. A replica that follows the store may know an offer before
// its reservation.
func (c *Core) measureOffers() {
	for _, offer := range c.offers.byUID {
		size := sizeOfOffer(recordOf[*model.Reservation](c.reservations[offer.UID]))
		for _, cell := range offer.Cells {
			if openAt(cell.State) && cell.State != model.CellBound {
				c.allocationOf(cell.Ordinal).offerBytes += size - c.offers.sizes[offer.UID]
			}
		}
		c.offers.sizes[offer.UID] = size
	}
}

// markOffer adds the offer of a reservation to those to review. Standbys mark nothing, because
// Elected marks all offers.
func (c *Core) markOffer(uid string) {
	if c.term != 0 && c.offers.byUID[uid] != nil {
		c.offerTodo.add(uid)
	}
}

// markOffers marks the open offers to a cell.
func (c *Core) markOffers(a *allocation) {
	for _, uid := range slices.Sorted(maps.Keys(a.offers)) {
		c.markOffer(uid)
	}
}

// scheduleOffer sets when the offer is reviewed next; zero for never.
func (c *Core) scheduleOffer(uid string, at time.Time) {
	if before, known := c.offers.dueOf[uid]; known {
		c.offers.due.Delete(before)
		delete(c.offers.dueOf, uid)
	}
	if !at.IsZero() {
		c.offers.dueOf[uid] = offerDue{at, uid}
		c.offers.due.Insert(offerDue{at, uid})
	}
}

// nextOffer returns when the next offer is reviewed without a change; zero for never.
func (c *Core) nextOffer() time.Time {
	first, _ := c.offers.due.First()
	return first.at
}

// settleOffers reviews the offers that changed, or whose time has come.
func (c *Core) settleOffers() {
	for first, ok := c.offers.due.First(); ok && !first.at.After(c.now); first, ok = c.offers.due.First() {
		c.scheduleOffer(first.uid, time.Time{})
		c.offerTodo.add(first.uid)
	}
	for _, uid := range c.offerTodo.take(c.cfg.StepLimit) {
		if offer := c.offers.byUID[uid]; offer != nil && !c.quarantined.uids[uid] {
			c.subject = offer.Ref()
			c.reviewOffer(offer)
		}
	}
	c.subject = model.Ref{}
}

// reviewOffer deletes an offer whose reservation has ended, and marks one that is to be repeated. It
// ends the wait for cells that are late or absent, and no longer counts on cells that have accepted if
// the reservation has got workers in another one.
func (c *Core) reviewOffer(offer *model.Offer) {
	uid := offer.UID
	c.scheduleOffer(uid, time.Time{})
	if r := c.reservations[uid]; c.leases[uid] == nil &&
		(r == nil || r.record.(*model.Reservation).State.Terminal()) {
		c.decide(model.Effect{Deletes: []model.Ref{offer.Ref()}})
		return
	}
	var due time.Time
	next, changed := offer.Edit(), false
	home := c.cellsOf(offer.Key, uid)
	if c.freed[uid] && !offer.Repeat {
		if due = offer.DecidedAt.Add(freedAfter); !due.After(c.now) {
			next.Repeat, changed = true, true
			delete(c.freed, uid)
		}
	}
	for i := range next.Cells {
		cell := &next.Cells[i]
		if cell.State == model.CellAccepted && !isAmong(c.hostOf(cell.Ordinal), home) {
			cell.State, _ = afterEvent(cell.State, OfferForgotten)
			cell.Reason, cell.Message, changed = fault.ReasonHoldWithdrawn, "the reservation has workers in "+home[0].ID, true
			continue
		}
		late, event, message := c.lateness(offer, cell)
		if cell.State == model.CellAccepted {
			reason, standing := c.standing(cell.Ordinal)
			changed = changed || reason != cell.Reason
			cell.Reason, cell.Message = reason, standing
		}
		switch {
		case late.IsZero():
		case late.After(c.now):
			due = earliest(due, late)
		default:
			if event == OfferLate {
				c.missAnswer(cell)
			}
			cell.State, _ = afterEvent(cell.State, event)
			changed = true
			cell.Reason, cell.Message = fault.ReasonExecutorUnreachable, message
		}
	}
	if changed {
		c.putOffer(next)
		return
	}
	c.scheduleOffer(uid, due)
}

// lateness returns from when on the leader no longer counts on a cell, the event of that time and a
// message. The time is zero if there is no such time.
func (c *Core) lateness(offer *model.Offer, cell *model.CellOffer) (at time.Time, event OfferEvent,
	message string) {
	h := c.hostOf(cell.Ordinal)
	switch {
	case cell.State == model.CellPending && (h == nil || h.state != model.ExecutorReady):
		return offer.AskedAt, OfferLate, "the cell is not READY"
	case cell.State == model.CellPending:
		return offer.AskedAt.Add(offer.AnswerWithin), OfferLate,
			fmt.Sprintf("no answer within %v", offer.AnswerWithin)
	case cell.State == model.CellAccepted && (h == nil || h.state == model.ExecutorLost):
		return offer.AskedAt, OfferForgotten, "the cell is LOST"
	case cell.State == model.CellAccepted && h.Record.Draining:
		return offer.AskedAt, OfferForgotten, "the cell is draining"
	case cell.State == model.CellAccepted && h.AbsentSince.IsZero() && !c.isHeld(offer.UID) && !mayTake(h, ""):
		return offer.AskedAt, OfferForgotten, "the cell gets no new workers"
	case cell.State == model.CellAccepted && !h.AbsentSince.IsZero():
		return h.AbsentSince.Add(forgetAfter), OfferForgotten, fmt.Sprintf("no heartbeat for %v", forgetAfter)
	}
	return time.Time{}, 0, ""
}

// standing returns why a cell that keeps executors gets no workers at present; empty if it does.
func (c *Core) standing(ordinal uint32) (fault.Reason, string) {
	switch h := c.hostOf(ordinal); {
	case h == nil || h.state != model.ExecutorReady:
		return fault.ReasonExecutorUnreachable, "the cell is not READY"
	case h.Eligibility() == match.Disabled:
		return fault.ReasonExecutorDisabled, "the cell is disabled"
	}
	return "", ""
}

// missAnswer counts an answer of a cell that is late.
func (c *Core) missAnswer(cell *model.CellOffer) {
	h := c.hostOf(cell.Ordinal)
	if h == nil {
		return
	}
	if h.term.missed++; h.term.missed == 1 {
		h.term.missedSince = c.now
	}
}

// silentCells returns the findings about the cells that missed many offers in a row.
func (c *Core) silentCells() (list []Finding) {
	for h := range c.offers.cells.All() {
		if h.term.missed >= silentFrom {
			list = append(list, Finding{
				Kind: FindingOfferSilent, Object: h.ID, Since: h.term.missedSince,
				Message: fmt.Sprintf("the cell has not answered %d offers in a row", h.term.missed),
				Action:  "Berth places reservations in other cells. Check the agent of the cell and the gateway of its cluster.",
			})
		}
	}
	return list
}

func (c *Core) hostOf(ordinal uint32) *host {
	if allocation := c.allocations[ordinal]; allocation != nil {
		return allocation.host
	}
	return nil
}

// putOffer decides to store an offer. With the last answer the offer is decided: the reservation is
// HELD if it holds and a cell has accepted.
func (c *Core) putOffer(next *model.Offer) {
	effect := model.Effect{Puts: []model.Record{next}}
	if !next.IsDecided() && !next.Has(model.CellPending) {
		next.DecidedAt = c.now
		r := recordOf[*model.Reservation](c.reservations[next.UID])
		if r != nil && r.Holds() && next.Has(model.CellAccepted) {
			effect.Events = []model.JobEvent{c.offerEvent(model.EventReservationHeld, r)}
		}
	}
	c.decide(effect)
}

func (c *Core) offerEvent(kind model.EventKind, r *model.Reservation) model.JobEvent {
	return model.JobEvent{Kind: kind, Time: c.now, Key: r.Key, UID: r.UID, Count: int32(r.Workers.Len()), Trace: r.Trace,
		Epoch: c.reservations[r.UID].create, Since: r.CreatedAt}
}

// tryCells grants a candidate with constraints.Cells if a cell has accepted it, and asks cells
// otherwise.
func (r *round) tryCells(e model.Candidate) model.Outcome {
	known := r.reservations[e.UID]
	if known == nil || known.mod != e.Mod {
		r.waitsForView = true // the replicas show the reservation to the cells
		return model.Outcome{UID: e.UID, Result: model.Later}
	}
	r.endOthers(e)
	offer, home := r.offers.byUID[e.UID], r.cellsOf(e.Key, e.UID)
	isRefused := offer.IsDecided() && !r.hasAccepted(offer, home) && e.Chosen == ""
	if offer == nil || isRefused && (offer.Repeat || !r.now.Before(offer.DecidedAt.Add(model.AskAgainAfter))) ||
		e.Chosen == "" && !r.asksAny(offer, home) {
		if cells := r.cellsFor(e, home); len(cells) > 0 {
			offer = r.ask(e, offer, cells)
		} else {
			offer = nil
		}
	}
	best, o := r.fitCells(e, offer, home)
	if best != nil {
		r.decide(r.grantCell(e, offer, best))
	} else {
		r.markOffer(e.UID) // a cell that accepted may have been disabled since
	}
	return o
}

// endOthers deletes the offers of other reservations in the group of a candidate, which come after it
// now: the candidate may need the executors that cells keep for them. Those that are held keep theirs.
func (r *round) endOthers(e model.Candidate) {
	for _, uid := range slices.Sorted(maps.Keys(r.offers.waiting)) {
		other := recordOf[*model.Reservation](r.reservations[uid])
		if uid == e.UID || other == nil || r.isHeld(uid) || r.leases[uid] != nil || other.Group() != e.Group {
			continue
		}
		r.decide(model.Effect{Deletes: []model.Ref{model.OfferRef(uid)}})
	}
}

// hasAccepted reports whether one of some cells, or without cells any, keeps executors for an offer.
func (c *Core) hasAccepted(offer *model.Offer, among []*host) bool {
	return slices.ContainsFunc(offer.Cells, func(cell model.CellOffer) bool {
		return cell.State == model.CellAccepted && isAmong(c.hostOf(cell.Ordinal), among)
	})
}

// asksAny reports whether an offer asks one of some cells, or without cells any.
func (c *Core) asksAny(offer *model.Offer, among []*host) bool {
	return slices.ContainsFunc(offer.Cells, func(cell model.CellOffer) bool {
		return isAmong(c.hostOf(cell.Ordinal), among)
	})
}

// fitCells returns the cell that a candidate gets, or nil and why it gets none. home has the cells that
// have workers of its reservation.
func (c *Core) fitCells(e model.Candidate, offer *model.Offer, home []*host) (best *host, o model.Outcome) {
	refuse := func(reason fault.Reason, format string, args ...any) (*host, model.Outcome) {
		return nil, model.Outcome{UID: e.UID, Result: model.NoFit, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case offer == nil && len(home) > 0:
		var texts []string
		for _, h := range home {
			texts = append(texts, h.ID+" "+away(h))
		}
		return refuse(fault.ReasonCellsRefused, "%s%s", stays(home), strings.Join(texts, "; "))
	case offer == nil:
		return refuse(fault.ReasonNoMatchingExecutor, "no READY cell matches the constraints")
	case !offer.IsDecided():
		waits := 0
		for _, cell := range offer.Cells {
			if cell.State == model.CellPending {
				waits++
			}
		}
		return refuse(fault.ReasonOffering, "%d of %d cells have answered", len(offer.Cells)-waits, len(offer.Cells))
	}
	best = c.bestCell(offer, e.Chosen, home)
	switch {
	case best == nil:
		return refuse(fault.ReasonCellsRefused, "%s%s", stays(home), c.refusals(offer, home))
	case e.Hold && e.Chosen == "":
		return refuse(fault.ReasonOffering, "cells have accepted; the reservation is held") // the registry learns it soon
	}
	return best, model.Outcome{UID: e.UID, Result: model.Granted, Fitting: e.Workers.Len()}
}

// stays says why a candidate waits for some cells; empty without cells.
func stays(home []*host) string {
	if len(home) == 0 {
		return ""
	}
	ids := make([]string, len(home))
	for i, h := range home {
		ids[i] = h.ID
	}
	return fmt.Sprintf("the reservation has workers in %s and stays there: ", strings.Join(ids, ", "))
}

// away says why a cell is not asked about a candidate that stays there.
func away(h *host) string {
	switch usable := h.Eligibility(); {
	case h.shown() != model.ExecutorReady:
		return "is " + h.shown().String()
	case usable == match.Draining:
		return "is draining"
	case usable == match.Disabled:
		return "is disabled"
	case usable != match.Cell:
		return "gets no new workers"
	case isOverloaded(h):
		return "has too many open offers"
	}
	return "does not match the constraints"
}

// isOverloaded reports whether a cell has so many open offers that it gets no other.
func isOverloaded(h *host) bool {
	return len(h.allocation.offers) >= model.MaxOffers || h.allocation.offerBytes >= maxOfferBytes
}

// ExplainCells returns what the next scheduling cycle would decide about a pending reservation with
// constraints.Cells; false for any other.
func (c *Core) ExplainCells(uid string) (o model.Outcome, ok bool) {
	e := model.Candidate{UID: uid}
	if entry := c.reservations[uid]; entry != nil {
		e.Mod = entry.mod
	}
	if !c.complete(&e) || !e.Constraints.Cells {
		return o, false
	}
	offer, home := c.offers.byUID[uid], c.cellsOf(e.Key, uid)
	if offer != nil && e.Chosen == "" && !c.asksAny(offer, home) {
		offer = nil
	}
	if offer == nil && len(c.cellsFor(e, home)) > 0 {
		return model.Outcome{UID: uid, Result: model.NoFit, Reason: fault.ReasonOffering,
			Message: "the next scheduling cycle asks the cells"}, true
	}
	_, o = c.fitCells(e, offer, home)
	return o, true
}

// cellsFor returns the cells to ask about a candidate, at most model.MaxCells. A cell that rejected
// an offer a short time ago comes after the others. Cells on which workers of the reservation
// failed are asked only if there is no other cell. If workers of the reservation have executors of
// some cells, only these are asked.
func (c *Core) cellsFor(e model.Candidate, home []*host) []*host {
	k := e.Constraints
	k.SKU = "" // the cell gets it
	matcher := k.Matcher()
	var cells, failed []*host
	for h := range c.offers.cells.All() {
		if h.Eligibility() != match.Cell || isOverloaded(h) || !isAmong(h, home) {
			continue
		}
		about := h.Class().Host()
		about.ID = h.ID
		switch ok, _ := matcher.Match(about); {
		case !ok:
		case slices.Contains(k.AvoidFailed, h.ID):
			failed = append(failed, h)
		default:
			cells = append(cells, h)
		}
	}
	if len(cells) == 0 {
		cells = failed
	}
	if len(cells) > model.MaxCells {
		slices.SortStableFunc(cells, func(a, b *host) int { return a.term.rejectedAt.Compare(b.term.rejectedAt) })
		cells = cells[:model.MaxCells]
	}
	return cells
}

// ask decides to ask the cells, and returns the offer. before is the offer that they refused; nil if
// there is none.
//
// The number is above that of every earlier offer of the reservation. It is below the revision that
// the offer gets, so a leader that has reached the revision of its election is above the offers of
// earlier leaders.
func (r *round) ask(e model.Candidate, before *model.Offer, cells []*host) *model.Offer {
	reservation := r.reservations[e.UID].record.(*model.Reservation)
	offer := &model.Offer{UID: e.UID, Key: e.Key, Number: max(r.revision, r.offers.deleted+1), AskedAt: r.now,
		AnswerWithin: model.AnswerWithin}
	if before != nil {
		offer.Number = max(offer.Number, before.Number+1)
	}
	if limit := reservation.Spec.QueueTimeout; limit > 0 && reservation.AwaitsFirstGrant() {
		// A cell that asks its own cells must answer before its parent's time is over.
		offer.AnswerWithin = min(offer.AnswerWithin, limit*3/4)
	}
	for _, h := range cells {
		asked, _ := afterEvent(model.CellUnset, OfferAsked)
		offer.Cells = append(offer.Cells, model.CellOffer{Ordinal: h.Ordinal, State: asked})
	}
	slices.SortFunc(offer.Cells, func(a, b model.CellOffer) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	effect := model.Effect{Puts: []model.Record{offer}}
	if before == nil {
		effect.Events = []model.JobEvent{r.offerEvent(model.EventReservationOffered, reservation)}
	}
	r.decide(effect)
	return offer
}

// bestCell returns the cell to grant: of the READY cells that have accepted, the one with the
// highest rating, then the one that comes first by name. If one is chosen, it returns only that
// one, and if home is not empty, one of these. It returns nil if there is none.
func (c *Core) bestCell(offer *model.Offer, chosen string, home []*host) (best *host) {
	for _, cell := range offer.Cells {
		h := c.hostOf(cell.Ordinal)
		if cell.State != model.CellAccepted || h == nil || !mayTake(h, chosen) || chosen != "" && h.ID != chosen ||
			!isAmong(h, home) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(cell.Rating, offer.At(best.Ordinal).Rating), cmp.Compare(best.ID, h.ID)) > 0 {
			best = h
		}
	}
	return best
}

// mayTake reports whether a cell gets workers of a reservation that it has accepted. A hold is a
// promise from before, so a chosen cell may have been disabled since.
func mayTake(h *host, chosen string) bool {
	switch h.Eligibility() {
	case match.Cell:
		return true
	case match.Disabled, match.FailsStarts:
		return chosen != ""
	}
	return false
}

// isHeld reports whether the reservation of an offer waits for a bind, or for the lease on the cell
// that a bind has chosen.
func (c *Core) isHeld(uid string) bool {
	r := recordOf[*model.Reservation](c.reservations[uid])
	return r != nil && (r.Holds() || r.Chosen != "")
}

// grantCell returns the effect of a lease on a cell. It releases the other cells.
func (r *round) grantCell(e model.Candidate, offer *model.Offer, best *host) model.Effect {
	n := e.Workers.Len()
	placements, named := place(e.Workers, []match.Pick{{Executor: &best.Executor.Executor, Workers: n}})
	next := offer.Edit()
	var rating *int32
	for i := range next.Cells {
		cell := &next.Cells[i]
		event := OfferPassed
		if cell.Ordinal == best.Ordinal {
			event = OfferGranted
			if e.Hold {
				rating = &cell.Rating
			}
		}
		if to, changes := afterEvent(cell.State, event); changes {
			cell.State, cell.Reason, cell.Message = to, "", ""
		}
	}
	effect := r.grant(e, placements, named, rating)
	effect.Puts = append(effect.Puts, next)
	return effect
}

// refusals says why no cell, or none of those where the reservation stays, runs a reservation, with the
// first cells by name.
func (c *Core) refusals(offer *model.Offer, home []*host) string {
	var texts []string
	for _, cell := range offer.Cells {
		h := c.hostOf(cell.Ordinal)
		if h == nil || !isAmong(h, home) {
			continue
		}
		text := fmt.Sprintf("%s is %s", h.ID, cell.State)
		if cell.State == model.CellAccepted {
			if text = fmt.Sprintf("%s accepted and is %s", h.ID, h.shown()); h.shown() == model.ExecutorReady {
				text = h.ID + " accepted and gets no new workers"
			}
		}
		if why := strings.Join(slices.DeleteFunc([]string{string(cell.Reason), cell.Message},
			func(s string) bool { return s == "" }), ": "); why != "" {
			text += " (" + why + ")"
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	if more := len(texts) - listedRefusals; more > 0 {
		texts = append(texts[:listedRefusals], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// AnswerOffers is the request with the answers of a cell to offers. The reply's Value is an
// [AnsweredOffers].
type AnswerOffers struct {
	Executor    string
	Incarnation int64
	// Nonce is the nonce of the registration, as the agent sent it.
	Nonce   string
	Answers []OfferAnswer
	// Freed is set if capacity became free in the cell after it rejected an offer.
	Freed bool
}

// OfferAnswer is an answer to the offer with a UID and number. Its state is ACCEPTED, REJECTED or
// WITHDRAWN.
type OfferAnswer struct {
	UID    string
	Number int64
	model.CellOffer
}

// AnsweredOffers is the reply to AnswerOffers: what follows from the answers is durable.
type AnsweredOffers struct{}

// answerOffers records the answers of a cell. It ignores an answer to an offer that has ended, and
// an answer that repeats another.
func (c *Core) answerOffers(a AnswerOffers) (AnsweredOffers, error) {
	h := c.hosts[a.Executor]
	switch {
	case h == nil:
		return AnsweredOffers{}, fault.New(fault.NotFound, fault.ReasonNotFound, "executor %q is not registered", a.Executor)
	case h.Record.Incarnation != a.Incarnation || h.givenUp():
		return AnsweredOffers{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %q: incarnation %d is over", a.Executor, a.Incarnation)
	case !h.Record.Proves(a.Nonce):
		return AnsweredOffers{}, fault.New(fault.Precondition, fault.ReasonOtherAgent,
			"executor %q: the nonce differs from the nonce of the registration", a.Executor)
	case !h.Record.Cell:
		return AnsweredOffers{}, fault.New(fault.Precondition, fault.ReasonInvalid, "executor %q is not a cell", a.Executor)
	}
	for _, answer := range a.Answers {
		c.answerOffer(h, answer)
	}
	if a.Freed {
		c.repeatRefused()
	}
	return AnsweredOffers{}, nil
}

func (c *Core) answerOffer(h *host, answer OfferAnswer) {
	offer := c.offers.byUID[answer.UID]
	cell := offer.At(h.Ordinal)
	if cell == nil || offer.Number != answer.Number {
		return
	}
	state, changes := afterEvent(cell.State, answerEvents[answer.State])
	if !changes {
		return
	}
	if state == model.CellRejected {
		h.term.rejectedAt = c.now
	}
	h.term.missed = 0
	if cell.State == model.CellPending {
		c.counts.answered(h.ID, c.now.Sub(offer.AskedAt))
	}
	next := offer.Edit()
	changed := next.At(h.Ordinal)
	changed.State, changed.Reason, changed.Message = state, answer.Reason, answer.Message
	if answer.State == model.CellAccepted {
		changed.Rating, changed.Reason, changed.Message = answer.Rating, "", ""
	}
	c.putOffer(next)
}

// repeatRefused makes the leader ask again about every reservation that all cells refused.
func (c *Core) repeatRefused() {
	for _, uid := range slices.Sorted(maps.Keys(c.offers.refused)) {
		if c.leases[uid] == nil && !c.dispatched(uid) {
			c.freed[uid] = true
			c.markOffer(uid)
		}
	}
}

// OpenOffer is an offer that is open at one cell.
type OpenOffer struct {
	*model.Offer
	State model.CellState
	// Held is set if the state is BOUND and the reservation is still held.
	Held bool
	// Reservation is the reservation of the offer; nil if it has ended.
	Reservation *model.Reservation
}

// OffersTo returns the open offers to a cell, in order of UID. The list differs from an earlier one
// only if OffersChanged differs.
func (c *Core) OffersTo(id string) []OpenOffer {
	h := c.hosts[id]
	if h == nil {
		return nil
	}
	list := make([]OpenOffer, 0, len(h.allocation.offers))
	for _, uid := range slices.Sorted(maps.Keys(h.allocation.offers)) {
		offer, r := h.allocation.offers[uid], recordOf[*model.Reservation](c.reservations[uid])
		state := offer.At(h.Ordinal).State
		list = append(list, OpenOffer{Offer: offer, State: state, Reservation: r,
			Held: state == model.CellBound && r != nil && r.Holds()})
	}
	return list
}

// OffersChanged returns a number that changes whenever OffersTo may change for the executor with an
// ID. It reports false if the executor is not a cell.
func (c *Core) OffersChanged(id string) (changed uint64, isCell bool) {
	h := c.hosts[id]
	if h == nil || !h.Record.Cell {
		return 0, false
	}
	return h.allocation.offersChanged, true
}

// OfferChanges returns a number that changes with every change of an offer.
func (c *Core) OfferChanges() uint64 { return c.offers.changes }
