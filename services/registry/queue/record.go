package queue

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// edit returns a copy of a record for a change. The copy's Mod is 0 until it is durable.
func (c *Core) edit(r *model.Reservation) *model.Reservation {
	next := *r
	next.UpdatedAt, next.Mod = c.now, 0
	return &next
}

// newVersion returns a copy of a record under a new UID.
func (c *Core) newVersion(r *model.Reservation) *model.Reservation {
	next := c.edit(r)
	next.UID, next.Epoch, next.Chosen = c.newUID(), 0, ""
	next.First, next.Ends, next.StopGraces = c.first(r), nil, nil
	return next
}

// end returns the record in a terminal state.
func (c *Core) end(r *model.Reservation, state model.State, reason fault.Reason, message string) *model.Reservation {
	next := c.edit(r)
	next.State, next.Reason, next.Message, next.EndedAt = state, reason, message, c.now
	if v := c.versions[r.UID]; v != nil {
		next.WorkerCounts = v.counts()
		if state != model.Replaced {
			next.Ends = c.endsOf(v)
		}
		if message == "" {
			next.Message = v.failures()
		}
	}
	return next
}

// finish adds the end of a queued version to an effect, and returns the ended record.
func (c *Core) finish(
	effect *model.Effect, v *version, state model.State, kind model.EventKind, reason fault.Reason, message string,
) *model.Reservation {
	ended := c.end(v.r, state, reason, message)
	effect.Puts = append(effect.Puts, ended)
	effect.Expect = append(effect.Expect, noTask(v.uid))
	effect.Events = append(effect.Events, c.event(kind, ended))
	return ended
}

// put decides to store one record and to emit an event for it.
func (c *Core) put(r *model.Reservation, kind model.EventKind, expect ...model.Expect) {
	c.decide(model.Effect{
		Puts: []model.Record{r}, Expect: expect,
		Events: []model.JobEvent{c.event(kind, r)},
	})
}

// noTask returns the requirement that the assigner has no task for a UID. Each effect
// that ends a queued version has it, so that no dispatched version is ended by mistake.
func noTask(uid string) model.Expect {
	return model.Expect{Ref: model.Ref{Kind: model.KindTaskHeader, ID: uid}, Absent: true}
}

// event returns an event of a reservation in its current state.
func (c *Core) event(kind model.EventKind, r *model.Reservation) model.JobEvent {
	e := model.JobEvent{
		Kind: kind, Time: c.now, Key: r.Key, UID: r.UID,
		Count: int32(r.Workers.Len()), Reason: r.Reason, Message: r.Message,
		Trace: r.Trace, Since: c.beginning(kind, r), Epoch: r.Epoch,
	}
	if e.Count <= model.MaxEventWorkers {
		for workerID := range r.Workers.All() {
			e.Workers = append(e.Workers, model.EventWorker{ID: workerID})
		}
	}
	return e
}

// beginning returns the beginning of the phase that an event ends. A dispatch begins when
// the lease is granted, every other phase when the version is created.
func (c *Core) beginning(kind model.EventKind, r *model.Reservation) time.Time {
	if kind == model.EventReservationAssigned {
		if v := c.versions[r.UID]; len(v.lease) > 0 {
			return v.grantedAt()
		}
	}
	return r.CreatedAt
}

func stageKey(key model.Key) model.Key { return model.Key{Job: key.Job, Stage: key.Stage} }

// stage returns a copy of the record of a stage. The copy is empty if there is no record.
func (c *Core) stage(key model.Key) model.Stage {
	if stage := c.stages[stageKey(key)]; stage != nil {
		return *stage
	}
	return model.Stage{Job: key.Job, Stage: key.Stage}
}

// withNumbers returns the record of a stage with the numbers of more workers marked as
// used.
func (c *Core) withNumbers(key model.Key, workers model.WorkerSet) *model.Stage {
	stage := c.stage(key)
	stage.Numbers = stage.Numbers.Raise(workers)
	return &stage
}

// An effect touches at most effectReservations reservations, with one event and one
// compare each, and has about effectBytes bytes. So it stays below the limits of a
// transaction: 120 operations and its size in bytes.
const (
	effectReservations = 50
	effectBytes        = 256 << 10
)
