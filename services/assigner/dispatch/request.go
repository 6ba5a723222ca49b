package dispatch

import (
	"cmp"
	"hash/fnv"
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
	// orphanRequest stops a worker that the executor should not have.
	orphanRequest
)

// workerKey identifies a worker at an executor.
type workerKey struct {
	ordinal  uint32
	uid      string
	workerID model.WorkerID
}

// instance identifies what an executor has. Of one uid and worker ID it may have more
// than the recorded worker: under another name, or of another epoch.
type instance struct {
	uid    string
	worker model.Worker
	epoch  int64
}

// request is a start or stop of one worker that is sent until records or answers show
// that it is done. It is derived from records, so losing one costs only a repeat.
type request struct {
	key   workerKey
	kind  requestKind
	state model.WorkerState
	// Requests are sent in the order of due and then sequence.
	due      time.Time
	sequence uint64
	// queue is the queue that the request waits in, nil while it is in flight.
	queue *requestQueue
	// failures counts the answers that changed nothing since the request was made.
	failures int
	// maybeReached: an attempt may have reached the executor without an answer.
	maybeReached bool
	// target is what a stop is about; sent counts how often it was sent.
	target instance
	sent   int
	// why and since when a worker is an orphan.
	why   model.Verdict
	since time.Time
}

func (r *request) callKey() callKey { return callKey{r.key, r.target} }

// moveTo moves the request to a queue; nil means that it waits in none.
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

// updateRequest makes the request about a worker match its record. A request that is in
// flight is not sent again before its call ends.
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

// requestFor returns the kind of request that a worker's record calls for.
func (t *task) requestFor(w *model.TaskWorker) requestKind {
	switch {
	case !t.active():
		return noRequest
	case w.State == model.WorkerAssigned && !t.header.Stopping:
		return startRequest
	case w.State == model.WorkerEvict, w.State == model.WorkerEvicting:
		return stopRequest
	}
	return noRequest
}

// newRequest adds a request. Another leader may have sent it before.
func (c *Core) newRequest(key workerKey, kind requestKind, t *task) *request {
	r := &request{key: key, kind: kind, maybeReached: true}
	if kind == stopRequest {
		r.target = t.instance(key.workerID)
	}
	c.requests[key] = r
	return r
}

// pauseBefore returns when a request for a new state is sent. A stop that the executor
// has acknowledged is repeated only after the worker's grace period.
func (c *Core) pauseBefore(r *request) time.Duration {
	if r.state == model.WorkerEvicting {
		return c.repeatStopAfter(r.key.uid)
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

// drop removes a request. If it is in flight, its call still counts until it ends.
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

// wake makes as many of an executor's waiting requests due as it has free calls.
func (c *Core) wake(h *host) { c.moveAll(&h.waiting, c.cfg.PerExecutor-h.calls) }

// retry sends a request again after a pause that grows with each failure.
func (c *Core) retry(r *request) {
	r.failures++
	c.schedule(r, c.backoff(r.key, r.failures))
}

// backoff is exponential with full jitter. The jitter is a hash, so that a replay has
// the same pauses and two workers have different ones.
func (c *Core) backoff(key workerKey, failures int) time.Duration {
	ceiling := backoffCap
	if shift := failures - 1; shift < 20 {
		ceiling = min(ceiling, backoffBase<<shift)
	}
	h := fnv.New64a()
	h.Write([]byte(key.uid + "/" + key.workerID.String() + "/" + strconv.Itoa(failures)))
	// The multiplication spreads the low bits of the hash.
	part := float64(h.Sum64()*0x9e3779b97f4a7c15>>11) / (1 << 53)
	return time.Duration(float64(ceiling) * part)
}

// grace returns how long the workers of a reservation have to end after a stop.
func (c *Core) grace(uid string) time.Duration {
	if r := c.reservations[uid]; r.Reservation != nil && r.Spec.Task.StopGrace > 0 {
		return r.Spec.Task.StopGrace
	}
	return model.DefaultStopGrace
}

// repeatStopAfter returns when an acknowledged stop is sent again.
func (c *Core) repeatStopAfter(uid string) time.Duration { return c.grace(uid) + repeatStop }
