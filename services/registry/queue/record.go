package queue

import (
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// edit answers a copy of a record to change. Its Mod is 0 until it is durable.
func (c *Core) edit(r *model.Reservation) *model.Reservation {
	next := *r
	next.UpdatedAt, next.Mod = c.now, 0
	return &next
}

// end answers the record in a terminal state.
func (c *Core) end(r *model.Reservation, state model.State, reason fault.Reason, message string) *model.Reservation {
	next := c.edit(r)
	next.State, next.Reason, next.Message, next.EndedAt = state, reason, message, c.now
	if v := c.versions[r.UID]; v != nil {
		next.WorkerCounts = v.counts()
		if message == "" {
			next.Message = v.failures()
		}
	}
	return next
}

// finish adds the end of a queued version to an effect, and answers its record.
func (c *Core) finish(
	effect *model.Effect, v *version, state model.State, kind model.EventKind, reason fault.Reason, message string,
) *model.Reservation {
	ended := c.end(v.r, state, reason, message)
	effect.Puts = append(effect.Puts, ended)
	effect.Expect = append(effect.Expect, noTask(v.uid))
	effect.Events = append(effect.Events, c.event(kind, ended))
	return ended
}

// remember keeps the answer to a call with the version it made or changed.
func remember(r *model.Reservation, mark model.RequestMark) {
	if mark.ID == "" {
		return
	}
	r.Requests = append(slices.Clone(r.Requests), mark)
	if over := len(r.Requests) - maxRequests; over > 0 {
		r.Requests = r.Requests[over:]
	}
}

// remembered finds the version of a key, ended ones included, that a call made
// or changed, and what was answered.
func (c *Core) remembered(key model.Key, id string) (*version, model.RequestMark) {
	if id == "" {
		return nil, model.RequestMark{}
	}
	for _, v := range slices.Backward(c.byKey[key]) {
		for _, mark := range slices.Backward(v.r.Requests) {
			if mark.ID == id {
				return v, mark
			}
		}
	}
	return nil, model.RequestMark{}
}

// rememberIdle keeps a call that changed nothing with its stage, if that has a
// record: there is none only while nothing was ever asked of it.
func (c *Core) rememberIdle(key model.Key, request model.IdleRequest) {
	stage := c.stages[stageKey(key)]
	if request.ID == "" || stage == nil {
		return
	}
	next := *stage
	next.Idle = append(slices.Clone(stage.Idle), request)
	if over := len(next.Idle) - maxRequests; over > 0 {
		next.Idle = next.Idle[over:]
	}
	c.decide(model.Effect{Puts: []model.Record{&next}})
}

// idle finds a call of a stage that changed nothing before.
func (c *Core) idle(key model.Key, id string) (model.IdleRequest, bool) {
	if stage := c.stages[stageKey(key)]; id != "" && stage != nil {
		for _, request := range slices.Backward(stage.Idle) {
			if request.ID == id {
				return request, true
			}
		}
	}
	return model.IdleRequest{}, false
}

// noTask compares that the assigner has not begun with a uid: whatever ends a
// queued version asks for it, so that nothing dispatched is ended by mistake.
func noTask(uid string) model.Expect {
	return model.Expect{Ref: model.Ref{Kind: model.KindTaskHeader, ID: uid}, Absent: true}
}

// event tells of a reservation as it now is.
func (c *Core) event(kind model.EventKind, r *model.Reservation) model.JobEvent {
	e := model.JobEvent{
		Kind: kind, Time: c.now, Key: r.Key, UID: r.UID,
		Count: int32(r.Workers.Len()), Reason: r.Reason, Message: r.Message,
		Trace: r.Trace, Since: c.began(kind, r), Epoch: r.Epoch,
	}
	if e.Count <= model.MaxEventWorkers {
		for workerID := range r.Workers.All() {
			e.Workers = append(e.Workers, model.EventWorker{ID: workerID})
		}
	}
	return e
}

// began is when the step that an event ends began: a dispatch with the grant of
// the lease, all else with the version.
func (c *Core) began(kind model.EventKind, r *model.Reservation) time.Time {
	if kind == model.EventReservationAssigned {
		for _, chunk := range c.versions[r.UID].lease { // all chunks are granted at once
			return chunk.GrantedAt
		}
	}
	return r.CreatedAt
}

func epochMismatch(key model.Key, epoch int64) error {
	return fault.New(fault.Conflict, fault.ReasonEpochMismatch, "%s has no living version of epoch %d", key, epoch)
}
