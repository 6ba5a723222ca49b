package dispatch

import (
	"slices"

	"berth.dev/pkg/model"
)

// The limits on requests to stop orphaned workers: of one executor, and of all executors.
// An agent may list any number of unknown workers. An orphan beyond a limit gets its stop
// request after a later complete report: executors with orphans send complete reports
// repeatedly.
const (
	maxOrphans    = 1000
	maxAllOrphans = 200_000
)

// stopOrphan adds a request to stop a worker that an executor should not have. It reports
// whether the worker has a stop request now. The request is sent only when the registry is
// ready: before that, the worker's record may still be missing (waitsIn).
func (c *Core) stopOrphan(ordinal uint32, target instance, why model.Verdict) bool {
	h := c.host(ordinal)
	if h.orphans[target] != nil {
		return true
	}
	if len(h.orphans) >= maxOrphans || c.orphanCount >= maxAllOrphans {
		return false
	}
	c.orphanCount++
	r := &request{key: workerKey{ordinal, target.uid, target.worker.ID}, kind: orphanRequest, target: target, why: why,
		since: c.now}
	h.orphans[target] = r
	c.orphansByName[target.worker] = append(c.orphansByName[target.worker], r)
	if c.calls[r.callKey()] == nil {
		c.schedule(r, 0)
	}
	return true
}

// endInstance handles the end of a worker that its executor has confirmed. The end is final:
// the worker is not an orphan, and the answer to a start request in flight does not make it
// one.
func (c *Core) endInstance(ordinal uint32, target instance) {
	if r := c.host(ordinal).orphans[target]; r != nil {
		c.drop(r)
	}
	key := workerKey{ordinal, target.uid, target.worker.ID}
	f, t := c.calls[callKey{workerKey: key}], c.tasks[target.uid]
	if f != nil && t != nil && t.active() && t.instance(target.worker.ID) == target {
		f.workerEnded = true
	}
}

// dropOrphan drops the request to stop a worker as an orphan if the worker is recorded as
// live again, because the decision that ended it was undone.
func (c *Core) dropOrphan(t *task, w *model.TaskWorker) {
	h := c.hosts[w.Ordinal]
	if !t.active() || !w.Occupies() || h == nil || len(h.orphans) == 0 {
		return
	}
	if r := h.orphans[t.instance(w.ID)]; r != nil {
		c.drop(r)
	}
}

// keepOrphans drops the requests to stop orphaned workers of an executor, except the
// requests for the workers in the set.
func (c *Core) keepOrphans(h *host, set map[instance]bool) {
	for target, r := range h.orphans {
		if !set[target] {
			c.drop(r)
		}
	}
}

// runsElsewhere reports whether an orphan with the name of the worker of a start request
// may still run on some executor. This happens after a restore, when a worker gets the
// name of a worker from the lost history. An agent knows only its own workers, so the
// assigner must check this. Workers of a LOST executor are given up and do not count.
func (c *Core) runsElsewhere(r *request) bool {
	t := c.tasks[r.key.uid]
	return slices.ContainsFunc(c.orphansByName[t.worker(r.key.workerID)], func(orphan *request) bool {
		return !c.host(orphan.key.ordinal).lost()
	})
}

// removeOrphanName removes an orphan from the index by name, and unblocks the workers
// that waited for its end.
func (c *Core) removeOrphanName(orphan *request) {
	name := orphan.target.worker
	left := slices.DeleteFunc(c.orphansByName[name], func(r *request) bool { return r == orphan })
	if c.orphansByName[name] = left; len(left) == 0 {
		delete(c.orphansByName, name)
	}
	c.unblock()
}

// unblock makes every request due that waits for the end of an orphan. There are few such
// requests.
func (c *Core) unblock() { c.moveAll(&c.blocked, c.blocked.Len()) }
