package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// The events of one effect are bounded in number and in bytes, so that it fits
// into a transaction: an event names up to model.MaxEventWorkers workers, each
// with the id of its executor.
const (
	tellPerEffect = 64
	tellBytes     = 256 << 10
)

// tellDisabled tells jobs that executors under their workers were disabled or
// drained: one event for each request, executor and lease. A request may hold
// for thousands, so the events follow it in effects of their own, each of which
// moves the request's progress mark. A successor goes on from the mark.
//
// It is told of what lies on the executors when its turn comes: a worker that
// has ended by then need not know.
func (c *Core) tellDisabled() {
	requests := make([]*model.Disable, 0, min(c.disables.untold.len(), c.cfg.StepLimit))
	for d := range c.disables.untold.all() {
		if len(requests) == c.cfg.StepLimit {
			break
		}
		if !d.ExpireAt.IsZero() && !d.ExpireAt.After(c.now) {
			continue // its end comes first
		}
		requests = append(requests, d)
	}
	placed := c.placed(requests)
	for _, d := range requests {
		c.tell(d, placed)
	}
}

// tell decides the next effect of one request.
func (c *Core) tell(d *model.Disable, placed map[uint32]map[string]*laid) {
	next := *d
	var events []model.JobEvent
	bytes := 0
	for h := range c.heldBy(d) {
		lies := placed[h.executor.Ordinal]
		for _, uid := range slices.Sorted(maps.Keys(lies)) {
			mark := h.id + "/" + uid
			if compareMarks(mark, d.Told) <= 0 {
				continue
			}
			if len(events) == tellPerEffect || bytes >= tellBytes {
				c.decide(model.Effect{Puts: []model.Record{&next}, Events: events})
				return
			}
			next.Told = mark
			event := c.disabledEvent(d, h, uid, lies[uid])
			bytes += len(event.Message) + len(event.Workers)*(len(h.id)+24) + 512
			events = append(events, event)
		}
	}
	next.ToldAll = true
	c.decide(model.Effect{Puts: []model.Record{&next}, Events: events})
}

func (c *Core) disabledEvent(d *model.Disable, h *host, uid string, s *laid) model.JobEvent {
	event := model.JobEvent{
		Kind: model.EventExecutorDisabled, Time: c.now, Key: s.key, UID: uid, Count: int32(len(s.seats)),
		Reason: fault.ReasonExecutorDisabled, Message: d.Reason,
		Trace: s.trace, Epoch: s.epoch,
	}
	if d.Drain {
		event.Reason = fault.ReasonExecutorDraining
	}
	for _, seat := range s.seats[:min(len(s.seats), model.MaxEventWorkers)] {
		event.Workers = append(event.Workers, model.EventWorker{Seat: seat, Executor: h.id})
	}
	return event
}

// compareMarks orders marks by executor, then lease.
func compareMarks(a, b string) int {
	aID, aUID, _ := strings.Cut(a, "/")
	bID, bUID, _ := strings.Cut(b, "/")
	return cmp.Or(cmp.Compare(aID, bID), cmp.Compare(aUID, bUID))
}

// laid is the workers of one lease on one executor, in order of seat.
type laid struct {
	key   model.Key
	trace model.Trace
	epoch int64
	seats []model.Seat
}

// placed answers what lies on the executors that the requests hold for, by
// ordinal and uid. It looks at every lease, once for all of them: that is rare
// enough not to keep an index for it.
func (c *Core) placed(requests []*model.Disable) map[uint32]map[string]*laid {
	placed := map[uint32]map[string]*laid{}
	for _, d := range requests {
		for h := range c.heldBy(d) {
			if h.hold.workers > 0 {
				placed[h.executor.Ordinal] = map[string]*laid{}
			}
		}
	}
	if len(placed) == 0 {
		return nil
	}
	for uid, l := range c.leases {
		for _, chunk := range l.inOrder() {
			for _, p := range chunk.Workers {
				lies := placed[p.Ordinal]
				if lies == nil {
					continue
				}
				if lies[uid] == nil {
					lies[uid] = &laid{key: chunk.Key, trace: chunk.Trace, epoch: chunk.Epoch}
				}
				lies[uid].seats = append(lies[uid].seats, p.Seat)
			}
		}
	}
	return placed
}
