package queue

import (
	"cmp"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// usage is how much the registry stores for one job, one tenant or all jobs.
type usage struct {
	// queued is the number of reservations whose record says QUEUED.
	queued int
	// workers is the number of workers that have not ended, of reservations that have not
	// ended.
	workers int
	// bytes is about the size of all reservation and stage records, including ended
	// reservations while they are kept.
	bytes int64
}

func (u usage) plus(o usage) usage {
	return usage{u.queued + o.queued, u.workers + o.workers, u.bytes + o.bytes}
}

func (u usage) minus(o usage) usage {
	return usage{u.queued - o.queued, u.workers - o.workers, u.bytes - o.bytes}
}

// account replaces what a record contributes to the usage of its job and of its tenant.
func (c *Core) account(job string, before, after usage) {
	if before == after {
		return
	}
	more := after.minus(before)
	c.stored = c.stored.plus(more)
	if t := c.tenants.Of(job); t != nil {
		c.storedBy[t] = c.storedBy[t].plus(more)
	}
	u := c.storedOf[job].plus(more)
	if u == (usage{}) {
		core.Drop(&c.storedOf, job)
		return
	}
	c.storedOf[job] = u
}

// accountVersion replaces what a version of a job contributes to the usage.
func (c *Core) accountVersion(v *version, job string) {
	before := v.stored
	v.stored = usageOf(v)
	c.account(job, before, v.stored)
}

func usageOf(v *version) usage {
	if v.r == nil {
		return usage{}
	}
	u := usage{bytes: int64(request.Size(v.r))}
	if v.r.State == model.Queued {
		u.queued = 1
	}
	if !v.r.State.Terminal() {
		u.workers = v.r.Workers.Len() - int(v.workers.ended())
	}
	return u
}

func usageOfStage(s *model.Stage) usage { return usage{bytes: int64(request.StageSize(s))} }

// cancelReserve defines the reserve above the limits of stored bytes: one tenth of each
// limit. Only calls that cancel workers may use it, because the queue keeps the version
// that such a call replaces.
const cancelReserve = 10

// admit rejects an upsert that would queue a reservation beyond the limits. A version
// that replaces queued versions does not add to the number of queued reservations.
// Versions that Berth queues without a request, such as requeues, are never rejected.
func (c *Core) admit(u model.Upsert, l living, workers model.WorkerSet) error {
	if len(workers) == 0 {
		return nil
	}
	bytes := request.Size(&model.Reservation{Spec: u.Spec, Workers: workers})
	more := usage{1 - len(l.queued), workers.Len(), int64(bytes)}
	for _, v := range l.queued {
		more.workers -= v.stored.workers
	}
	return cmp.Or(c.admitToTenant(u, l, more),
		c.checkLimits(u.Key.Job, more, c.config.MaxStoredPerJob, c.config.MaxStored))
}

// admitRemovals rejects a cancel of workers if the queued versions that it replaces need
// more bytes than the limits and the reserve allow.
func (c *Core) admitRemovals(job string, removals []removal) error {
	var more usage
	for _, r := range removals {
		if !r.v.started() && r.workers.Len() < r.v.r.Workers.Len() {
			more.bytes += int64(request.Size(r.v.r))
		}
	}
	perJob, all := c.config.MaxStoredPerJob, c.config.MaxStored
	return cmp.Or(c.checkTenantBytes(c.tenants.Of(job), more.bytes, true),
		c.checkLimits(job, more, perJob+perJob/cancelReserve, all+all/cancelReserve))
}

// checkLimits rejects an increase of a job's usage beyond the limits. perJob and all
// limit the stored bytes, and may include the reserve.
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
		{"max-stored-bytes-per-job", "the reservations of the job take %d bytes", stored.bytes, more.bytes, perJob,
			config.MaxStoredPerJob},
		{"max-stored-bytes", "all reservations take %d bytes", c.stored.bytes, more.bytes, all, config.MaxStored},
	} {
		if l.more > 0 && l.stored+l.more > l.most {
			return fault.New(fault.Exhausted, fault.ReasonOverloaded,
				l.message+", the limit is %d (option %s of the registry): cancel some reservations, or wait until "+
					"ended ones are deleted",
				l.stored, l.limit, l.option)
		}
	}
	return nil
}
