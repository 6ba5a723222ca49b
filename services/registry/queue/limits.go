package queue

import (
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

// cancelReserve is the part of the limits of stored bytes, one tenth, that only calls
// that cancel workers may use: the queue keeps the version that such a call replaces.
const cancelReserve = 10

// admit rejects an upsert that would queue a reservation beyond the limits. A version
// that replaces queued ones needs no other place. Versions that Berth queues without a
// request, such as requeues, are never rejected.
func (c *Core) admit(u model.Upsert, l living, workers model.WorkerSet) error {
	if len(workers) == 0 {
		return nil
	}
	bytes := request.Size(&model.Reservation{Spec: u.Spec, Workers: workers})
	return c.checkLimits(u.Key.Job, usage{1 - len(l.queued), int64(bytes)}, c.config.MaxStoredPerJob, c.config.MaxStored)
}

// admitRemovals rejects a cancel of workers if the queued versions that it replaces take
// more than the limits and the reserve.
func (c *Core) admitRemovals(job string, removals []removal) error {
	var more usage
	for _, r := range removals {
		if !r.v.started() && r.workers.Len() < r.v.r.Workers.Len() {
			more.bytes += int64(request.Size(r.v.r))
		}
	}
	perJob, all := c.config.MaxStoredPerJob, c.config.MaxStored
	return c.checkLimits(job, more, perJob+perJob/cancelReserve, all+all/cancelReserve)
}

// checkLimits rejects more usage of a job beyond the limits. Those of stored bytes are
// given, and may include the reserve.
func (c *Core) checkLimits(job string, more usage, perJob, all int64) error {
	stored, config := c.storedOf[job], c.config
	for _, l := range []struct {
		option, message           string
		stored, more, most, limit int64
	}{
		{"max-queued-per-job", "the job has %d queued reservations", int64(stored.queued), int64(more.queued),
			int64(config.MaxQueuedPerJob), int64(config.MaxQueuedPerJob)},
		{"max-queued", "%d reservations are queued", int64(c.stored.queued), int64(more.queued), int64(config.MaxQueued),
			int64(config.MaxQueued)},
		{"max-stored-per-job", "the reservations of the job take %d bytes", stored.bytes, more.bytes, perJob,
			config.MaxStoredPerJob},
		{"max-stored", "all reservations take %d bytes", c.stored.bytes, more.bytes, all, config.MaxStored},
	} {
		if l.more > 0 && l.stored+l.more > l.most {
			return fault.New(fault.Exhausted, fault.ReasonOverloaded,
				l.message+", the limit is %d (option %s of the registry): cancel some, or wait until ended ones are forgotten",
				l.stored, l.limit, l.option)
		}
	}
	return nil
}
