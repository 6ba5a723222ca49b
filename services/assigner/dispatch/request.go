package dispatch

import (
	"cmp"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

type requestKind uint8

const (
	noRequest requestKind = iota
	startRequest
	stopRequest
	// orphanRequest is a stop request for a worker that the executor should not have.
	orphanRequest
	// volumesRequest is a request to destroy volumes of an executor. Its key has only the
	// ordinal.
	volumesRequest
)

// workerKey identifies a worker at an executor.
type workerKey struct {
	ordinal  uint32
	uid      string
	workerID model.WorkerID
}

// instance identifies a worker that an executor has. For one uid and worker ID, an executor
// may have several instances: the recorded worker, and workers with another name or another
// epoch.
type instance struct {
	uid    string
	worker model.Worker
	epoch  int64
}

// request is a start or stop request about one worker, or a request to destroy volumes. The
// core sends it until records or answers show that it is done. A request is derived from
// records, so a lost request costs only a repeat.
type request struct {
	key   workerKey
	kind  requestKind
	state model.WorkerState
	// The core sends requests in the order of due, then of sequence.
	due      time.Time
	sequence uint64
	// queue is the queue in which the request waits, or nil while it is in flight.
	queue *requestQueue
	// failures counts the failures since the last answer that changed a record or
	// acknowledged a stop.
	failures int
	// maybeReached is true if an attempt without an answer may have reached the executor.
	maybeReached bool
	// target is the instance that a stop request stops, and sent counts its calls.
	target instance
	sent   int
	// grace is the longest time to end that the executor may know of: that of the last stop
	// request, or unknown if an earlier leader sent it.
	grace time.Duration
	// why is the verdict that the worker is an orphan, and since is the time of the verdict.
	why   model.Verdict
	since time.Time
}

func (r *request) callKey() callKey { return callKey{r.key, r.target} }

// moveTo moves the request to a queue. nil only removes the request from its queue.
func (r *request) moveTo(queue *requestQueue) {
	if r.queue != nil {
		r.queue.Remove(r)
	}
	r.queue = queue
	if queue != nil {
		queue.Insert(r)
	}
}

// requestQueue has requests in the order in which they are sent.
type requestQueue = core.Ordered[*request]

func newRequestQueue() requestQueue {
	return core.NewOrdered(func(a, b *request) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.sequence, b.sequence))
	})
}

// moveAll moves up to limit requests to the queue of due requests.
func (c *Core) moveAll(from *requestQueue, limit int) {
	for ; limit > 0 && from.Len() > 0; limit-- {
		from.At(0).moveTo(&c.due)
	}
}

// updateRequests updates the requests of all workers of a task.
func (c *Core) updateRequests(t *task) {
	for _, chunk := range t.chunks {
		for i := range size(chunk) {
			c.updateRequest(t, &chunk.Workers[i])
		}
	}
}

// updateRequest creates, updates or drops the request about a worker, so that it matches
// the worker's record. A request that is in flight is not sent again before its call ends.
func (c *Core) updateRequest(t *task, w *model.TaskWorker) {
	if !c.leading || c.quarantined.uids[t.uid] {
		return
	}
	c.dropOrphan(t, w)
	key, kind := workerKey{w.Ordinal, t.uid, w.ID}, t.requestFor(w)
	r := c.requests[key]
	if r != nil && r.kind != kind {
		c.drop(r)
		r = nil
	}
	if kind == noRequest {
		return
	}
	if r == nil {
		r = c.newRequest(key, kind, t)
	}
	if r.state == w.State {
		return
	}
	r.state = w.State
	if c.calls[r.callKey()] == nil {
		c.schedule(r, c.pauseBefore(r))
	}
}

// requestFor returns the kind of request that a worker's record requires.
func (t *task) requestFor(w *model.TaskWorker) requestKind {
	switch {
	case !t.active():
		return noRequest
	case w.State == model.WorkerAssigned && !t.header.Stopping:
		return startRequest
	case w.State == model.WorkerEvict, w.State == model.WorkerEvicting, w.Unconfirmed:
		return stopRequest
	}
	return noRequest
}

// newRequest adds a request. It sets maybeReached, because an earlier leader may have sent
// the same request.
func (c *Core) newRequest(key workerKey, kind requestKind, t *task) *request {
	r := &request{key: key, kind: kind, maybeReached: true}
	if kind == stopRequest {
		r.target, r.grace = t.instance(key.workerID), math.MaxInt64
	}
	c.requests[key] = r
	return r
}

// pauseBefore returns the pause before a request for a new state is sent. The core repeats
// a stop that the executor has acknowledged only after the worker's grace period, unless that
// became shorter.
func (c *Core) pauseBefore(r *request) time.Duration {
	if r.state == model.WorkerEvicting {
		return c.pauseAfterStop(r)
	}
	return 0
}

// schedule queues a request to be sent after a pause.
func (c *Core) schedule(r *request, pause time.Duration) {
	r.moveTo(nil)
	c.sequence++
	r.due, r.sequence = c.now.Add(pause), c.sequence
	r.moveTo(&c.due)
}

// drop removes a request. If its call is in flight, the call counts until it ends.
func (c *Core) drop(r *request) {
	h := c.host(r.key.ordinal)
	if r.kind == orphanRequest {
		delete(h.orphans, r.target)
		c.orphanCount--
		c.removeOrphanName(r)
	} else {
		delete(c.requests, r.key)
	}
	r.moveTo(nil)
	c.wake(h)
}

// dropRequest removes the request about a worker, if there is one.
func (c *Core) dropRequest(key workerKey) {
	if r := c.requests[key]; r != nil {
		c.drop(r)
	}
}

// wake makes waiting requests of an executor due, as many as the limit on its calls in
// flight allows.
func (c *Core) wake(h *host) { c.moveAll(&h.waiting, c.cfg.PerExecutor-h.calls) }

// retry sends a request again after a pause that grows with each failure.
func (c *Core) retry(r *request) {
	r.failures++
	c.schedule(r, c.backoff(r.key, r.failures))
}

// backoff returns the pause after a failure: exponential with full jitter. The jitter is a
// hash, so that a replay has the same pauses and two workers have different pauses.
func (c *Core) backoff(key workerKey, failures int) time.Duration {
	ceiling := backoffCap
	if shift := failures - 1; shift < 20 {
		ceiling = min(ceiling, backoffBase<<shift)
	}
	h := fnv.New64a()
	if key.uid == "" {
		key.uid = strconv.Itoa(int(key.ordinal))
	}
	h.Write([]byte(key.uid + "/" + key.workerID.String() + "/" + strconv.Itoa(failures)))
	// The multiplication spreads the low bits of the hash.
	part := float64(h.Sum64()*0x9e3779b97f4a7c15>>11) / (1 << 53)
	return time.Duration(float64(ceiling) * part)
}

// grace returns how long a worker on an executor has to end after a stop: what its reservation gives
// it, or less if a drain of the executor does.
func (c *Core) grace(key workerKey) time.Duration {
	grace := model.DefaultStopGrace
	if r := c.reservations[key.uid]; r.Reservation != nil {
		grace = r.GraceOf(key.workerID)
	}
	if h := c.hosts[key.ordinal]; h != nil && h.draining() && h.record.DrainGrace != nil {
		grace = min(grace, *h.record.DrainGrace)
	}
	return grace
}

// hasten repeats the acknowledged stop requests of a reservation whose workers got less time to
// end. The executor keeps the earliest end.
func (c *Core) hasten(uid string) {
	t := c.tasks[uid]
	if t == nil || !c.leading {
		return
	}
	for _, chunk := range t.chunks {
		for i := range size(chunk) {
			c.hastenWorker(workerKey{chunk.Workers[i].Ordinal, uid, chunk.Workers[i].ID})
		}
	}
}

// hastenWorker repeats the acknowledged stop request of a worker that got less time to end.
func (c *Core) hastenWorker(key workerKey) {
	if r := c.requests[key]; r != nil && r.grace > c.grace(key) {
		c.stopNow(key)
	}
}

// repeatStopAfter returns the pause before an acknowledged stop is sent again.
func (c *Core) repeatStopAfter(key workerKey) time.Duration {
	return c.grace(key) + repeatStop
}
