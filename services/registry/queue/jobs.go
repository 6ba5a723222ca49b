package queue

import (
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// JobCounts counts what is alive of a job. Every worker that has not ended, of a version
// that has not ended, is in exactly one of the numbers of workers.
type JobCounts struct {
	// Reservations is the number of versions that have not ended. PendingReservations is the
	// number of those in their queues. DelayedReservations have no executors and are in no queue.
	Reservations, PendingReservations, DelayedReservations int
	// PendingWorkers and DelayedWorkers are those of these reservations. ReservedWorkers have
	// executors, and do not run yet.
	PendingWorkers, DelayedWorkers, ReservedWorkers int
	// StoppingWorkers are cancelled or being stopped, and have not ended.
	RunningWorkers, StoppingWorkers int
}

// Job is a job that has a version that has not ended.
type Job struct {
	Name string
	JobCounts
	// LastActivity is the time of the last change of a version or a worker of the job. It
	// includes the versions that have ended, while they are kept.
	LastActivity time.Time
}

// job is what the core knows of a job that has a version with a record.
type job struct {
	contribution
	// changed is the time of the latest change of the versions and workers of the job. If
	// recount is set, the record with that time was deleted or taken back, so the time may be
	// earlier.
	changed time.Time
	recount bool
}

// contribution is what one version, or all versions of a job, contribute to the job.
type contribution struct {
	// records is the number of versions with a record.
	records int
	JobCounts
}

func (k contribution) add(o contribution, sign int) contribution {
	return contribution{k.records + sign*o.records, JobCounts{
		k.Reservations + sign*o.Reservations, k.PendingReservations + sign*o.PendingReservations,
		k.DelayedReservations + sign*o.DelayedReservations, k.PendingWorkers + sign*o.PendingWorkers,
		k.DelayedWorkers + sign*o.DelayedWorkers, k.ReservedWorkers + sign*o.ReservedWorkers,
		k.RunningWorkers + sign*o.RunningWorkers, k.StoppingWorkers + sign*o.StoppingWorkers,
	}}
}

// contribution returns what the version contributes to its job.
func (v *version) contribution() contribution {
	if v.r == nil {
		return contribution{}
	}
	k := contribution{records: 1}
	if v.r.State.Terminal() {
		return k
	}
	k.Reservations = 1
	k.ReservedWorkers = int(v.workers.sum(model.WorkerAssigned, model.WorkerStarting))
	k.RunningWorkers = int(v.workers.states[model.WorkerRunning])
	k.StoppingWorkers = int(v.workers.sum(model.WorkerEvict, model.WorkerEvicting))
	// The rest of the workers is in no task.
	rest := v.r.Workers.Len() - v.workers.all()
	switch {
	case v.is(model.Cancelling):
		k.StoppingWorkers += rest
	case v.isPending():
		k.PendingReservations, k.PendingWorkers = 1, rest
	case v.demand != model.NoDemand: // a quarantined version is in no queue either
		k.DelayedReservations, k.DelayedWorkers = 1, rest
	default:
		k.ReservedWorkers += rest
	}
	return k
}

// accountJob replaces what a version contributes to its job.
func (c *Core) accountJob(name string, before, after contribution) {
	if before == after {
		return
	}
	j := c.jobs[name]
	wasAlive := j.Reservations > 0
	j.contribution = j.add(after, 1).add(before, -1)
	if j.records == 0 {
		core.Drop(&c.jobs, name)
	} else {
		c.jobs[name] = j
	}
	switch isAlive := j.Reservations > 0; {
	case isAlive && !wasAlive:
		c.aliveJobs.Insert(name)
	case !isAlive && wasAlive:
		c.aliveJobs.Remove(name)
	}
}

// noteChange replaces the time of a record in the time of the latest change of its job. A
// time is zero if there is no such record.
func (c *Core) noteChange(name string, before, after time.Time) {
	j, known := c.jobs[name]
	switch {
	case !known || before.Equal(after):
		return
	case !after.Before(j.changed):
		j.changed, j.recount = after, false
	case before.Equal(j.changed):
		j.recount = true
	}
	c.jobs[name] = j
}

// lastChangeOf returns the time of the latest change of a version or a worker of a job. It
// reads all of them only if the latest one was deleted or taken back since the last call.
func (c *Core) lastChangeOf(name string) time.Time {
	j := c.jobs[name]
	if j.recount {
		j.changed, j.recount = time.Time{}, false
		for _, v := range c.versionsOf(model.Key{Job: name}) {
			j.changed = latest(j.changed, v.r.UpdatedAt)
			for _, chunk := range v.tasks {
				j.changed = latest(j.changed, changeOf(chunk))
			}
		}
		c.jobs[name] = j
	}
	return j.changed
}

// updatedAt returns the time of the latest change of a version; zero if it has no record.
func updatedAt(r *model.Reservation) (at time.Time) {
	if r != nil {
		at = r.UpdatedAt
	}
	return at
}

// changeOf returns the time of the latest change of a worker in a chunk of a task.
func changeOf(chunk *model.TaskChunk) (at time.Time) {
	if chunk != nil {
		for i := range chunk.Workers {
			at = latest(at, chunk.Workers[i].Since.Time())
		}
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Jobs returns the jobs that have a version that has not ended and that a prefix covers, in
// order of their names, after a name and at most limit of them. An empty prefix covers all
// jobs. Jobs reports whether there are more. It skips the names between those that the
// prefix covers.
func (c *Core) Jobs(prefix, after string, limit int) (jobs []Job, more bool) {
	begins := []string{prefix}
	for _, separator := range model.Separators {
		begins = append(begins, prefix+string(separator))
	}
	for _, begin := range begins {
		for name := range c.aliveJobs.From(max(begin, after)) {
			if name == after {
				continue
			}
			if prefix != "" && !model.Covers(prefix, name) {
				break
			}
			if len(jobs) == limit {
				return jobs, true
			}
			jobs = append(jobs, Job{name, c.jobs[name].JobCounts, c.lastChangeOf(name)})
			after = name
		}
	}
	return jobs, false
}
