package dispatch

import (
	"slices"

	"berth.dev/pkg/model"
)

// The limits of requests to stop orphaned workers, of one executor and of all. An agent
// may list any number of unknown workers. A worker beyond a limit gets its request with
// a later complete report: executors with orphans send complete reports repeatedly.
const (
	maxOrphans    = 1000
	maxAllOrphans = 200_000
)

// stopOrphan requests the stop of a worker that an executor should not have. It reports
// whether there is a request now.
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

// dropOrphan drops the request to stop a worker that is recorded as live after all: the
// decision that said otherwise was undone.
func (c *Core) dropOrphan(t *task, w *model.TaskWorker) {
	h := c.hosts[w.Ordinal]
	if !t.active() || w.State.Terminal() || h == nil || len(h.orphans) == 0 {
		return
	}
	if r := h.orphans[t.instance(w.ID)]; r != nil {
		c.drop(r)
	}
}

// keepOrphans drops the requests to stop all orphaned workers of an executor except
// those in the set.
func (c *Core) keepOrphans(h *host, set map[instance]bool) {
	for target, r := range h.orphans {
		if !set[target] {
			c.drop(r)
		}
	}
}

// runsElsewhere reports whether the worker of a start request runs on some executor at
// another epoch, and is still to be stopped there. That happens after a restore, when a
// name of the lost history is used again. An agent sees only its own workers; the
// assigner sees both. Workers of a LOST executor are given up and do not count.
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

// unblock makes every request due that waits for the end of an orphan. They are few.
func (c *Core) unblock() { c.moveAll(&c.blocked, c.blocked.Len()) }
