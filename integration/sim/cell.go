package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/request"
)

// cells draws what a third of the worlds do with cells.
type cells struct {
	enabled bool
	rng     *rand.Rand
	// refused counts the starts that cells refused.
	refused int
}

// once is true once in n times, and never after the faults have stopped.
func (w *World) once(n int) bool { return !w.faultsStopped && w.cells.rng.IntN(n) == 0 }

// keepFor is how long a cell keeps executors after the last confirmation of an offer, unless the
// reservation has them.
const keepFor = 30 * time.Second

// cell is what the agent of a cell and its cluster know. Nobody else knows its capacity.
type cell struct {
	*agent
	// blocks has the offers for which the cell keeps executors, by UID. It outlives the agent.
	blocks map[string]*block
	// answers has the answers to the listed offers, and considered the numbers of the offers that
	// the cell considers or ignores, by UID.
	answers    map[string]inventory.OfferAnswer
	considered map[string]int64
	// rejected is set if the cell has rejected an offer since it last reported free capacity.
	rejected bool

	// replica is the replica that serves the heartbeats. source and changed identify the last list
	// that it sent.
	replica int
	source  *inventory.Core
	changed uint64
	// earlier has lists that were sent since the registration: a replica whose view lags sends one.
	earlier [][]inventory.OpenOffer
	// stream counts the streams. sent and received are the last lists of the stream, listed the
	// offers in the last list that was received; nil before the first list of the stream.
	stream, sent, received int
	listed                 map[string]bool
}

// block is the executors that a cell keeps for an offer.
type block struct {
	number  int64
	workers int
	// confirmed is when the agent last learned that the offer is open. bound is set once the cell
	// knows that the reservation has the executors.
	confirmed time.Time
	bound     bool
	// unlisted is set while the last list lacks the offer.
	unlisted bool
}

func newCell(a *agent) *cell {
	return &cell{agent: a, blocks: map[string]*block{}, answers: map[string]inventory.OfferAnswer{},
		considered: map[string]int64{}}
}

// addCells adds 1 to 4 cells to the world.
func (w *World) addCells() {
	for i := range 1 + w.cells.rng.IntN(4) {
		w.agents = append(w.agents, newAgent(w, Host{ID: fmt.Sprintf("cell-%d", i), SKU: "cell",
			Attributes: map[string]string{"zone": string('a' + rune(i%2))}, Cell: 1 + w.cells.rng.IntN(8)}))
	}
}

// stepCells makes the events more frequent to which an offer leads, in a world with cells: an offer
// takes many of them, and its cells do not wait for ever.
func (w *World) stepCells() {
	if !w.cells.enabled {
		return
	}
	w.someReplica().turn()
	w.deliverOne()
	switch w.cells.rng.IntN(12) {
	case 0:
		w.clients.bind()
	case 1, 2, 3:
		if a := w.agents[w.cells.rng.IntN(len(w.agents))]; a.cell != nil {
			a.turn()
		}
	}
	w.check() // before time passes
}

// forget drops the state of the agent's process. The cluster may lose what it keeps, except for
// workers that run.
func (c *cell) forget() {
	c.answers, c.considered, c.rejected = map[string]inventory.OfferAnswer{}, map[string]int64{}, false
	if !c.w.once(3) {
		return
	}
	c.w.logf("%s: the cell loses what it keeps", c.id)
	for _, uid := range slices.Sorted(maps.Keys(c.blocks)) {
		if c.living(uid) == 0 {
			delete(c.blocks, uid)
		}
	}
}

// living returns the number of running workers of a reservation.
func (c *cell) living(uid string) (n int) {
	for _, worker := range c.workers {
		if worker.uid == uid && !worker.state.Terminal() {
			n++
		}
	}
	return n
}

// ended returns the number of ended workers of a reservation.
func (c *cell) ended(uid string) (n int) {
	for _, worker := range c.workers {
		if worker.uid == uid && worker.state.Terminal() {
			n++
		}
	}
	return n
}

// free returns the number of workers for which the cell has capacity besides its blocks. It does not
// count the block of one reservation.
func (c *cell) free(except string) int {
	n := c.host.Cell
	for uid, b := range c.blocks {
		if uid != except {
			n -= b.workers
		}
	}
	return n
}

// release frees what the cell keeps for a reservation, unless its workers run.
func (c *cell) release(uid, why string) bool {
	if c.blocks[uid] == nil || c.living(uid) > 0 {
		return false
	}
	c.w.logf("%s: frees %s: %s", c.id, uid, why)
	delete(c.blocks, uid)
	return true
}

// expire frees what the cell no longer has to keep. The agent need not run for that.
func (c *cell) expire() {
	for _, uid := range slices.Sorted(maps.Keys(c.blocks)) {
		b := c.blocks[uid]
		switch {
		case c.superseded || c.exited:
			c.release(uid, "another agent has the cell")
		case c.ended(uid) >= b.workers:
			c.release(uid, "its workers have ended")
		case b.unlisted:
			c.release(uid, "its offer has ended")
		case !b.bound && c.w.now.Sub(b.confirmed) >= keepFor && c.release(uid, "no confirmation"):
			c.withdraw(uid, b.number)
		}
	}
}

// turn lets the agent of the cell act while it has a stream.
func (c *cell) turn() {
	if c.lease == 0 || c.superseded {
		return
	}
	if c.replies() {
		c.reply()
	}
	rng := c.w.cells.rng
	if c.rejected && c.w.once(8) {
		c.rejected = false
		c.send(true)
	}
	if c.w.faultsStopped {
		return
	}
	switch rng.IntN(25) {
	case 0:
		uids := slices.Sorted(maps.Keys(c.blocks))
		if len(uids) == 0 {
			return
		}
		uid := uids[rng.IntN(len(uids))]
		if number := c.blocks[uid].number; c.release(uid, "the cell needs the executors") {
			c.withdraw(uid, number)
		}
	case 1:
		uids := slices.Sorted(maps.Keys(c.answers))
		if len(uids) == 0 {
			return
		}
		answer := c.answers[uids[rng.IntN(len(uids))]]
		if rng.IntN(4) == 0 {
			answer.Number -= int64(rng.IntN(3))
		}
		c.send(false, answer)
	}
}

// replies reports whether the replica of the stream has a list that it has not sent.
func (c *cell) replies() bool {
	if c.lease == 0 || c.superseded {
		return false
	}
	n := c.server()
	if c.w.now.Before(n.downUntil) || c.source != nil && c.source != n.driver.Core {
		return true // the stream has ended
	}
	changed, isCell := n.driver.Core.OffersChanged(c.id)
	p, _ := n.driver.Core.Presence(c.id)
	return isCell && p.Executor.Incarnation == c.incarnation && (c.source == nil || c.changed != changed)
}

func (c *cell) server() *node[*inventory.Core] {
	return c.w.replicas[model.ServiceExecutorState][c.replica].(*node[*inventory.Core])
}

// reply makes the replica send the open offers according to its view, which may be old.
func (c *cell) reply() {
	n := c.server()
	if c.w.now.Before(n.downUntil) || c.source != nil && c.source != n.driver.Core {
		c.connect()
		return
	}
	c.source = n.driver.Core
	c.changed, _ = c.source.OffersChanged(c.id)
	list := c.source.OffersTo(c.id)
	if c.sent == 0 && len(c.earlier) > 0 && c.w.once(4) {
		list = c.earlier[c.w.cells.rng.IntN(len(c.earlier))]
		c.changed = ^c.changed // the current list follows
	} else {
		c.earlier = append(c.earlier[max(0, len(c.earlier)-9):], list)
	}
	c.sent++
	stream, number := c.stream, c.sent
	c.w.send("offers to "+c.id, func() {
		if c.stream == stream && !c.partitioned && c.up() && number > c.received {
			c.received = number
			c.receive(list)
		}
	})
}

func (c *cell) leaveStream() {
	c.stream++
	c.source, c.sent, c.received, c.listed = nil, 0, 0, nil
	if c.incarnation == 0 {
		c.earlier = nil
	}
}

// connect begins another stream, at any replica. The agent then repeats its answers.
func (c *cell) connect() {
	c.leaveStream()
	c.replica = c.w.cells.rng.IntN(len(c.w.replicas[model.ServiceExecutorState]))
	var answers []inventory.OfferAnswer
	for _, uid := range slices.Sorted(maps.Keys(c.answers)) {
		answers = append(answers, c.answers[uid])
	}
	c.send(false, answers...)
}

// confirm handles the answer to a heartbeat: the last list of the stream is still valid. If a list was
// lost, the stream has ended.
func (c *cell) confirm() {
	if c.sent != c.received || c.w.once(8) {
		c.connect()
		return
	}
	for uid := range c.listed {
		if b := c.blocks[uid]; b != nil {
			b.confirmed = c.w.now
		}
	}
}

// receive handles a list of the open offers. An offer that it lacks has ended.
func (c *cell) receive(list []inventory.OpenOffer) {
	listed := map[string]bool{}
	c.listed = listed
	for _, o := range list {
		listed[o.UID] = true
		b := c.blocks[o.UID]
		if b != nil {
			b.confirmed = c.w.now
			b.bound, b.unlisted = b.bound || o.State == model.CellBound && !o.Held, false
		}
		switch {
		case o.State == model.CellPending:
			c.consider(o)
		case b == nil && c.living(o.UID)+c.ended(o.UID) == 0:
			c.withdraw(o.UID, o.Number)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(c.blocks)) {
		if c.blocks[uid].unlisted = !listed[uid]; !listed[uid] {
			c.release(uid, "its offer has ended")
		}
	}
	maps.DeleteFunc(c.answers, func(uid string, _ inventory.OfferAnswer) bool { return !listed[uid] })
	maps.DeleteFunc(c.considered, func(uid string, _ int64) bool { return !listed[uid] })
}

// consider answers an offer after a while, or repeats the answer.
func (c *cell) consider(o inventory.OpenOffer) {
	rng := c.w.cells.rng
	if answer, ok := c.answers[o.UID]; ok && answer.Number == o.Number {
		if c.w.faultsStopped || rng.IntN(4) == 0 {
			c.send(false, answer)
		}
		return
	}
	if o.Reservation == nil || c.considered[o.UID] == o.Number {
		return
	}
	c.considered[o.UID] = o.Number
	delay := time.Duration(rng.IntN(100)) * time.Millisecond
	switch n := rng.IntN(8); {
	case c.w.faultsStopped:
	case n == 0:
		return // the cell never answers
	case n == 1:
		delay = time.Duration(rng.IntN(15_000)) * time.Millisecond
	}
	process, workers := c.processCount, o.Reservation.Workers.Len()
	c.w.later(delay, func() {
		if c.processCount == process && c.up() && !c.superseded && c.considered[o.UID] == o.Number {
			c.decide(o.UID, o.Number, workers)
		}
	})
}

// decide accepts or rejects an offer.
func (c *cell) decide(uid string, number int64, workers int) {
	if c.living(uid) > 0 {
		return // an old list lacked the offer, and the cell has considered it twice
	}
	answer := inventory.OfferAnswer{UID: uid, Number: number}
	if workers > c.free(uid) || c.w.once(8) {
		c.release(uid, "the cell rejects it")
		c.rejected = true
		answer.State, answer.Reason = model.CellRejected, fault.ReasonInsufficientCapacity
	} else {
		answer.State, answer.Rating = model.CellAccepted, int32(c.w.cells.rng.IntN(101))
		c.blocks[uid] = &block{number: number, workers: workers, confirmed: c.w.now}
		if c.free("") < 0 {
			c.w.fail("%s keeps executors for more than %d workers", c.id, c.host.Cell)
		}
	}
	c.w.logf("%s: answers offer %d of %s: %s", c.id, number, uid, answer.State)
	c.answers[uid] = answer
	c.send(false, answer)
}

// withdraw answers that the cell no longer keeps executors for an offer.
func (c *cell) withdraw(uid string, number int64) {
	answer := inventory.OfferAnswer{UID: uid, Number: number,
		CellOffer: model.CellOffer{State: model.CellWithdrawn, Reason: fault.ReasonInsufficientCapacity}}
	c.answers[uid] = answer
	c.send(false, answer)
}

// send sends answers, and whether capacity became free. They may be lost, together with the stream.
func (c *cell) send(freed bool, answers ...inventory.OfferAnswer) {
	if c.incarnation == 0 || c.superseded || len(answers) == 0 && !freed {
		return
	}
	if c.w.once(8) {
		c.leaveStream()
		return
	}
	answered := inventory.AnswerOffers{Executor: c.id, Incarnation: c.incarnation, Nonce: c.nonce(), Answers: answers,
		Freed: freed}
	c.call("answers", model.ServiceExecutorState, answered, func(_ any, err error) {
		if f := fault.Of(err); err != nil && (f.Kind == fault.Internal || f.Reason == fault.ReasonInvalid) {
			c.w.fail("answers of %s: %v", c.id, err)
		}
	})
}

// begin records that the reservation of a worker has the executors of its block. It reports whether
// there is a block: without one, the worker must not start.
func (c *cell) begin(uid string) bool {
	b := c.blocks[uid]
	if b == nil {
		c.w.cells.refused++
		return false
	}
	b.bound = true
	return true
}

// checkStart checks the books of the cell after the start of a worker of a reservation.
func (c *cell) checkStart(k instance, uid string) {
	b := c.blocks[uid]
	switch {
	case b == nil:
		c.w.fail("%s at epoch %d is started on %s, which keeps no executors for %s", k.worker, k.epoch, c.id, uid)
	case c.living(uid) > b.workers:
		c.w.fail("%s runs %d workers of %s, and keeps executors for %d", c.id, c.living(uid), uid, b.workers)
	}
}

// draw draws whether a reservation is placed into a cell.
func (c *cells) draw(s *model.Spec) {
	if !c.enabled || c.rng.IntN(3) == 0 {
		return
	}
	s.Constraints.Cells, s.Volume = true, nil
	if c.rng.IntN(4) == 0 {
		s.Hold, s.HoldTimeout = true, new(40*time.Second) // long enough for a bind
	}
	if s.Batch == model.BatchBestEffort {
		s.Batch = model.BatchUnset
	}
}

// keptByCells returns the versions for which a cell keeps executors according to its offer, by UID.
func (w *World) keptByCells() map[string]bool {
	kept := map[string]bool{}
	for _, record := range w.records(model.KindOffer) {
		o := record.(*model.Offer)
		kept[o.UID] = o.Has(model.CellAccepted) || o.Has(model.CellBound)
	}
	return kept
}

// drawBind draws which cell a bind chooses, and whether the reservation stays held.
func (c *cells) drawBind(b *request.Bind) {
	if !c.enabled {
		return
	}
	if c.rng.IntN(2) == 0 {
		b.Pool = fmt.Sprintf("cell-%d", c.rng.IntN(4))
	}
	if c.rng.IntN(3) == 0 {
		b.KeepHeld, b.Task = true, nil
	}
}

// progress returns the last revision that changed more than offers that no cell has accepted. Cells
// that refuse a reservation are asked again for ever. A cell that accepts one is progress: the time of a
// hold begins with it.
func (w *World) progress() int64 {
	for _, r := range slices.Backward(w.store.History()) {
		for _, c := range r.Changes {
			ref, ok := w.space.Parse(c.Key)
			switch {
			case !ok || ref.Kind == model.KindChain:
				continue
			case ref.Kind != model.KindOffer:
				return r.Revision
			}
			if c.Deleted {
				continue
			}
			record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
			if err != nil {
				w.fail("%v", err)
			} else if record.(*model.Offer).Has(model.CellAccepted) {
				return r.Revision
			}
		}
	}
	return 0
}

// checkCells checks at rest that the records and the cells agree on what is kept, and that no head of
// a queue waits for a cell that has capacity.
func (w *World) checkCells() {
	byOrdinal := map[uint32]*cell{}
	registered := w.registeredAgents()
	for _, record := range w.records(model.KindExecutor) {
		e := record.(*model.Executor)
		for _, a := range w.agents {
			if a.cell != nil && a.id == e.ID && registered[a] {
				byOrdinal[e.Ordinal] = a.cell
			}
		}
	}
	open := map[*cell]map[string]bool{}
	held := map[string]bool{}
	for _, record := range w.records(model.KindOffer) {
		o := record.(*model.Offer)
		for _, answer := range o.Cells {
			c := byOrdinal[answer.Ordinal]
			if c == nil || answer.State > model.CellAccepted && answer.State != model.CellBound {
				continue
			}
			if open[c] == nil {
				open[c] = map[string]bool{}
			}
			open[c][o.UID] = true
			held[o.UID] = held[o.UID] || answer.State == model.CellAccepted
			if answer.State == model.CellAccepted && c.blocks[o.UID] == nil {
				w.fail("at rest: %s accepted the offer of %s and keeps no executors", c.id, o.UID)
			}
		}
	}
	for _, a := range w.agents {
		if a.cell == nil {
			continue
		}
		for _, uid := range slices.Sorted(maps.Keys(a.cell.blocks)) {
			if !open[a.cell][uid] {
				w.fail("at rest: %s at %s keeps executors for %s, which has no offer", a.id, a.address, uid)
			}
		}
	}
	leased := map[string]bool{}
	stays := map[model.Key]map[uint32]bool{} // the cells that have workers of a reservation
	for _, record := range w.records(model.KindLeaseChunk) {
		chunk := record.(*model.LeaseChunk)
		leased[chunk.UID] = true
		for _, p := range chunk.Workers {
			if byOrdinal[p.Ordinal] != nil {
				if stays[chunk.Key] == nil {
					stays[chunk.Key] = map[uint32]bool{}
				}
				stays[chunk.Key][p.Ordinal] = true
			}
			if c := byOrdinal[p.Ordinal]; c != nil && c.blocks[chunk.UID] == nil {
				w.fail("at rest: worker %s of %s is leased %s, which keeps no executors for it", p.Worker, chunk.UID, c.id)
			}
		}
	}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.State != model.Queued || !r.Spec.Constraints.Cells || leased[r.UID] {
			continue
		}
		if r.Chosen != "" {
			w.fail("at rest: %s (%s) has no lease on %s, which a bind has chosen", r.Key, r.UID, r.Chosen)
		}
		if held[r.UID] || len(r.Spec.Constraints.Attributes) > 0 || len(r.Failed) > 0 || !w.clients.isHead(r) {
			continue
		}
		for _, ordinal := range slices.Sorted(maps.Keys(byOrdinal)) {
			if len(stays[r.Key]) > 0 && !stays[r.Key][ordinal] {
				continue
			}
			if c := byOrdinal[ordinal]; !c.exited && c.free(r.UID) >= r.Workers.Len() {
				w.fail("at rest: %s is queued for %d executors while %s has %d", r.Key, r.Workers.Len(), c.id, c.free(r.UID))
			}
		}
	}
}

// checkBinds checks that every acknowledged bind is stored, and that at rest no bound version waits for
// its start. A later version of one, also after a cancel of some of its workers, may wait for capacity
// behind others; checkHolds checks those that have executors.
func (w *World) checkBinds() {
	if len(w.clients.bound) == 0 {
		return
	}
	last := map[string]*model.Reservation{}
	for _, r := range w.store.History() {
		for _, change := range r.Changes {
			ref, ok := w.space.Parse(change.Key)
			if !ok || change.Deleted || ref.Kind != model.KindReservation || w.clients.bound[ref.ID].IsZero() {
				continue
			}
			record, err := wire.Decode(ref, change.Value, change.Create, change.Mod, change.Lease)
			if err != nil {
				w.fail("%v", err)
				return
			}
			last[ref.ID] = record.(*model.Reservation)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.clients.bound)) {
		at := w.clients.bound[uid]
		switch r := last[uid]; {
		case r == nil || !r.BoundAt.Equal(at):
			w.fail("at rest: the bind of %s at %v was acknowledged, but never stored", uid, at)
		case r.State == model.Queued && r.Parent == "" && w.clients.isHead(r) &&
			!r.Spec.Constraints.Cells: // checkCells checks the others
			w.fail("at rest: %s (%s) was bound at %v and is not started", r.Key, uid, at)
		}
	}
}
