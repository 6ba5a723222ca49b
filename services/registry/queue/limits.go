package queue

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// usage is how much the registry stores, of a job or of all.
type usage struct {
	// queued is the number of reservations whose record says QUEUED.
	queued int
	// bytes are about those of all reservation and stage records, ended ones included
	// while they are kept.
	bytes int64
}

// account replaces what a record adds to the usage of its job.
func (c *Core) account(job string, before, after usage) {
	if before == after {
		return
	}
	queued, bytes := after.queued-before.queued, after.bytes-before.bytes
	c.stored = usage{c.stored.queued + queued, c.stored.bytes + bytes}
	u := c.storedOf[job]
	u = usage{u.queued + queued, u.bytes + bytes}
	if u == (usage{}) {
		core.Drop(&c.storedOf, job)
		return
	}
	c.storedOf[job] = u
}

func usageOf(r *model.Reservation) usage {
	if r == nil {
		return usage{}
	}
	u := usage{bytes: int64(request.Size(r))}
	if r.State == model.Queued {
		u.queued = 1
	}
	return u
}

func usageOfStage(s *model.Stage) usage { return usage{bytes: int64(request.StageSize(s))} }

// admit rejects an upsert that would queue a reservation beyond the limits. A version
// that replaces queued ones needs no other place. Versions that Berth queues without a
// request, such as requeues, are never rejected.
func (c *Core) admit(u model.Upsert, l living, workers model.WorkerSet) error {
	if len(workers) == 0 {
		return nil
	}
	job, config := c.storedOf[u.Key.Job], c.config
	more := 1 - len(l.queued)
	switch {
	case more > 0 && job.queued+more > config.MaxQueuedPerJob:
		return overLimit("max-queued-per-job", "job %s has %d queued reservations, the limit is %d", u.Key.Job, job.queued, config.MaxQueuedPerJob)
	case more > 0 && c.stored.queued+more > config.MaxQueued:
		return overLimit("max-queued", "%d reservations are queued, the limit is %d", c.stored.queued, config.MaxQueued)
	}
	return c.admitBytes(u.Key.Job, int64(request.Size(&model.Reservation{Spec: u.Spec, Workers: workers})), 0)
}

// cancelReserve is the part of the limits of stored bytes, one tenth, that only calls
// that cancel workers may use: the queue keeps the version that such a call replaces.
const cancelReserve = 10

// admitRemovals rejects a cancel of workers if the queued versions that it replaces take
// more than the limits and the reserve.
func (c *Core) admitRemovals(job string, removals []removal) error {
	var bytes int64
	for _, r := range removals {
		if !r.v.started() && r.workers.Len() < r.v.r.Workers.Len() {
			bytes += int64(request.Size(r.v.r))
		}
	}
	if bytes == 0 {
		return nil
	}
	return c.admitBytes(job, bytes, cancelReserve)
}

// admitBytes rejects more bytes than the limits of a job and of all, and of a reserve if
// there is one.
func (c *Core) admitBytes(job string, bytes, reserve int64) error {
	stored, config := c.storedOf[job].bytes, c.config
	withReserve := func(limit int64) int64 {
		if reserve > 0 {
			limit += limit / reserve
		}
		return limit
	}
	switch {
	case stored+bytes > withReserve(config.MaxStoredPerJob):
		return overLimit("max-stored-per-job", "the reservations of job %s take %d bytes, the limit is %d", job, stored, config.MaxStoredPerJob)
	case c.stored.bytes+bytes > withReserve(config.MaxStored):
		return overLimit("max-stored", "all reservations take %d bytes, the limit is %d", c.stored.bytes, config.MaxStored)
	}
	return nil
}

// overLimit is the error for a request beyond the limit of an option.
func overLimit(option, format string, args ...any) error {
	return fault.New(fault.Exhausted, fault.ReasonOverloaded,
		"%s (option %s of the registry): cancel some, or wait until ended ones are forgotten", fmt.Sprintf(format, args...), option)
}
