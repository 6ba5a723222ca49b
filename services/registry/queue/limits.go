package queue

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// usage is how much the registry stores, of a job or of all.
type usage struct {
	// queued are the reservations whose record says so.
	queued int
	// bytes are about those of all reservation and stage records: ended ones too, as
	// long as they are kept.
	bytes int64
}

// account adds to what is stored of a job. It is called by the set function alone.
func (c *Core) account(job string, queued int, bytes int64) {
	if queued == 0 && bytes == 0 {
		return
	}
	c.stored.queued += queued
	c.stored.bytes += bytes
	u := c.storedOf[job]
	u.queued += queued
	u.bytes += bytes
	if u == (usage{}) {
		drop(&c.storedOf, job)
		return
	}
	c.storedOf[job] = u
}

// usageOf is what a reservation's record adds to that of its job.
func usageOf(r *model.Reservation) usage {
	if r == nil {
		return usage{}
	}
	u := usage{bytes: int64(size(r))}
	if r.State == model.Queued {
		u.queued = 1
	}
	return u
}

// sizeOfStage is about how many bytes a stage's record takes.
func sizeOfStage(s *model.Stage) int64 {
	if s == nil {
		return 0
	}
	return int64(128 + sizeOfWorkers(s.Numbers) + 64*len(s.Idle))
}

// admit refuses an upsert that would queue a reservation beyond the limits. What takes
// the place of queued reservations needs no other place in the queue. What Berth
// queues by itself, such as requeues, is never refused.
func (c *Core) admit(u model.Upsert, l living, workers model.WorkerSet) error {
	if len(workers) == 0 {
		return nil
	}
	bytes := int64(size(&model.Reservation{Spec: u.Spec, Workers: workers}))
	more := 1 - len(l.queued)
	job, config := c.storedOf[u.Key.Job], c.config
	of := fmt.Sprintf("job %s", u.Key.Job)
	switch {
	case more > 0 && job.queued+more > config.MaxQueuedPerJob:
		return overLimit(of+" has %d reservations queued, at most %d are allowed", int64(job.queued), int64(config.MaxQueuedPerJob), "max-queued-per-job")
	case more > 0 && c.stored.queued+more > config.MaxQueued:
		return overLimit("%d reservations are queued, at most %d are allowed", int64(c.stored.queued), int64(config.MaxQueued), "max-queued")
	}
	return c.admitBytes(u.Key.Job, bytes, config.MaxStoredPerJob, config.MaxStored)
}

// admitBytes refuses to store more bytes than the limits of a job and of all.
func (c *Core) admitBytes(job string, bytes, perJob, all int64) error {
	stored := c.storedOf[job].bytes
	switch {
	case stored+bytes > perJob:
		return overLimit("the reservations of job "+job+" take %d bytes, and at most %d are allowed", stored, c.config.MaxStoredPerJob, "max-stored-per-job")
	case c.stored.bytes+bytes > all:
		return overLimit("all reservations take %d bytes, and at most %d are allowed", c.stored.bytes, c.config.MaxStored, "max-stored")
	}
	return nil
}

// cancelReserve is the part of the limits of stored bytes that only calls which cancel
// workers may use: the queue keeps the version that such a call replaces.
const cancelReserve = 10 // one tenth

// admitRemovals refuses to cancel workers of queued versions when the versions that
// the call replaces would take more than the limits and the reserve.
func (c *Core) admitRemovals(job string, removals []removal) error {
	var bytes int64
	for _, r := range removals {
		if !r.v.started() && r.workers.Len() < r.v.r.Workers.Len() {
			bytes += int64(size(r.v.r))
		}
	}
	if bytes == 0 {
		return nil
	}
	perJob, all := c.config.MaxStoredPerJob, c.config.MaxStored
	return c.admitBytes(job, bytes, perJob+perJob/cancelReserve, all+all/cancelReserve)
}

// overLimit refuses a request for what is stored already; option is the limit's.
func overLimit(format string, stored, limit int64, option string) error {
	return fault.New(fault.Exhausted, fault.ReasonOverloaded,
		"%s (option %s of the registry): cancel some, or wait until they have ended and are forgotten", fmt.Sprintf(format, stored, limit), option)
}
