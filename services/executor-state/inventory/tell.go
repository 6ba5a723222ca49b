package inventory

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// The events of one effect are bounded in number and in bytes, so that it fits
// into a transaction: an event names up to model.MaxEventWorkers workers, each
// with the id of its executor. The workers that a step tells of are bounded, but for
// those of one executor, so that others are let in between.
const (
	tellPerEffect = 64
	tellBytes     = 256 << 10
	tellPerStep   = 2048
	// looksOfWorker is how many executors without workers count for one.
	looksOfWorker = 16
)

// tellDisabled tells jobs that executors under their workers were disabled or
// drained: one event for each request, executor and lease. A request may hold
// for thousands, so the events follow it in effects of their own, each of which
// moves the request's progress mark. A successor goes on from the mark.
//
// It is told of what byLease on the executors when its turn comes: a worker that
// has ended by then need not know.
func (c *Core) tellDisabled() {
	var turns []turn
	left := tellPerStep
	for d := range c.disables.untold.All() {
		if left <= 0 {
			break
		}
		if !d.ExpireAt.IsZero() && !d.ExpireAt.After(c.now) {
			continue // its end comes first
		}
		t := c.nextTurn(d, left)
		left -= 1 + t.workers + t.looks/looksOfWorker
		turns = append(turns, t)
	}
	for h := range c.late.All() {
		if left <= 0 {
			break
		}
		turns = append(turns, turn{late: h, hosts: []*host{h}})
		left -= 1 + h.hold.Workers
	}
	placed := c.placed(turns)
	for _, t := range turns {
		if t.late != nil {
			c.tellLate(t.late, placed)
		} else {
			c.tell(t, placed)
		}
	}
}

// turn is what a step tells of one request, or of one executor that came under
// requests late.
type turn struct {
	request *model.Disable
	late    *host
	// hosts are the executors whose jobs are told, workers those on them.
	hosts   []*host
	workers int
	// looks counts the executors that were looked at.
	looks int
	// last: no executor of the request is left to be told of after hosts.
	last bool
}

// nextTurn answers the next executors with workers whose jobs are to be told of a
// request, until they hold limit of them. What came under it late is told of by
// itself.
func (c *Core) nextTurn(d *model.Disable, limit int) turn {
	t := turn{request: d}
	from, _, _ := strings.Cut(d.Told, "/")
	for h := range c.heldFrom(d, from) {
		t.looks++
		if h.hold.Workers == 0 || slices.Contains(h.executor.Untold, d.ID) {
			continue
		}
		if t.workers >= limit {
			return t
		}
		t.hosts = append(t.hosts, h)
		if h.ID != from { // which may be told of already: the next one is to have its turn
			t.workers += h.hold.Workers
		}
	}
	t.last = true
	return t
}

// heldFrom gives the executors that a request holds for, from an id on, in
// order of id.
func (c *Core) heldFrom(d *model.Disable, from string) iter.Seq[*host] {
	return func(yield func(*host) bool) {
		if len(d.Attributes) == 0 {
			for _, id := range slices.Sorted(slices.Values(d.IDs)) {
				if h := c.hosts[id]; h != nil && id >= from && !yield(h) {
					return
				}
			}
			return
		}
		for h := range c.byID.From(hostAt(from)) {
			if h.Class().IsClosedBy(d.ID) && !yield(h) {
				return
			}
		}
	}
}

// tell decides the next effects of one request.
func (c *Core) tell(t turn, placed map[uint32]map[string]*leaseWorkers) {
	next := *t.request
	var told telling
	flush := func() {
		d := next
		c.decide(model.Effect{Puts: []model.Record{&d}, Events: told.events})
		told = telling{}
	}
	for _, h := range t.hosts {
		byLease := placed[h.executor.Ordinal]
		for _, uid := range slices.Sorted(maps.Keys(byLease)) {
			mark := h.ID + "/" + uid
			if compareMarks(mark, next.Told) <= 0 {
				continue
			}
			if told.full() {
				flush()
			}
			next.Told = mark
			told.add(c.disabledEvent(&next, h, uid, byLease[uid]), h)
		}
	}
	next.ToldAll = t.last
	if t.last || len(told.events) > 0 {
		flush()
	}
}

// tellLate decides the next effect of an executor that came under requests late.
func (c *Core) tellLate(h *host, placed map[uint32]map[string]*leaseWorkers) {
	next := *h.executor
	var told telling
	byLease := placed[h.executor.Ordinal]
	uids := slices.Sorted(maps.Keys(byLease))
	for len(next.Untold) > 0 && !told.full() {
		request := next.Untold[0]
		if d := c.known(request); d != nil && d.Holds() && h.Class().IsClosedBy(request) {
			for _, uid := range uids {
				if uid > next.Told && !told.full() {
					next.Told = uid
					told.add(c.disabledEvent(d, h, uid, byLease[uid]), h)
				}
			}
			if len(uids) > 0 && next.Told < uids[len(uids)-1] {
				break
			}
		}
		next.Untold, next.Told = next.Untold[1:], ""
	}
	c.decide(model.Effect{Puts: []model.Record{&next}, Events: told.events})
}

// untold answers the requests of which the jobs on an executor are to be told
// because it comes under them as it registers: those that select its attributes
// as they are from now on, and did not before. What is still being told of in
// order of executors, and has not passed this one, gets to it by itself.
func (c *Core) untold(h *host, attributes map[string]string) []string {
	if h.hold.Workers == 0 {
		return nil
	}
	late := slices.Clone(h.executor.Untold)
	for _, id := range (owner{c}).ClosedBy(match.AttributesOf(attributes)) {
		d := c.known(id)
		passed, _, _ := strings.Cut(d.Told, "/")
		if !h.Class().IsClosedBy(id) && (d.ToldAll || h.ID <= passed) && !slices.Contains(late, id) {
			late = append(late, id)
		}
	}
	return late
}

// telling gathers the events of one effect.
type telling struct {
	events []model.JobEvent
	bytes  int
}

func (t *telling) full() bool { return len(t.events) == tellPerEffect || t.bytes >= tellBytes }

func (t *telling) add(event model.JobEvent, h *host) {
	t.events = append(t.events, event)
	t.bytes += len(event.Message) + len(event.Workers)*(len(h.ID)+24) + 512
}

func (c *Core) disabledEvent(d *model.Disable, h *host, uid string, s *leaseWorkers) model.JobEvent {
	event := model.JobEvent{
		Kind: model.EventExecutorDisabled, Time: c.now, Key: s.key, UID: uid, Count: int32(len(s.seats)),
		Reason: fault.ReasonExecutorDisabled, Message: d.Reason,
		Trace: s.trace, Epoch: s.epoch,
	}
	if d.Drain {
		event.Reason = fault.ReasonExecutorDraining
	}
	for _, seat := range s.seats[:min(len(s.seats), model.MaxEventWorkers)] {
		event.Workers = append(event.Workers, model.EventWorker{ID: seat, Executor: h.ID})
	}
	return event
}

// compareMarks orders marks by executor, then lease.
func compareMarks(a, b string) int {
	aID, aUID, _ := strings.Cut(a, "/")
	bID, bUID, _ := strings.Cut(b, "/")
	return cmp.Or(cmp.Compare(aID, bID), cmp.Compare(aUID, bUID))
}

// leaseWorkers is the workers of one lease on one executor, in order of seat.
type leaseWorkers struct {
	key   model.Key
	trace model.Trace
	epoch int64
	seats []model.WorkerID
}

// placed answers what byLease on the executors of the turns, by ordinal and uid. It
// looks once at each lease that has workers there.
func (c *Core) placed(turns []turn) map[uint32]map[string]*leaseWorkers {
	placed, uids := map[uint32]map[string]*leaseWorkers{}, map[string]bool{}
	for _, t := range turns {
		for _, h := range t.hosts {
			placed[h.executor.Ordinal] = map[string]*leaseWorkers{}
			for _, l := range h.hold.placements {
				uids[l.uid] = true
			}
		}
	}
	for uid := range uids {
		for _, held := range c.leases[uid].chunks {
			chunk := held.record.(*model.LeaseChunk)
			for _, p := range chunk.Workers {
				byLease := placed[p.Ordinal]
				if byLease == nil {
					continue
				}
				if byLease[uid] == nil {
					byLease[uid] = &leaseWorkers{key: chunk.Key, trace: chunk.Trace, epoch: chunk.Epoch}
				}
				byLease[uid].seats = append(byLease[uid].seats, p.Worker)
			}
		}
	}
	for _, byLease := range placed {
		for _, l := range byLease {
			slices.SortFunc(l.seats, model.WorkerID.Compare)
		}
	}
	return placed
}
