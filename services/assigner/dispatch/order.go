package dispatch

import (
	"container/heap"
	"hash/fnv"
	"strconv"
	"time"

	"berth.dev/pkg/model"
)

// orderKind is what an executor is to be told.
type orderKind uint8

const (
	orderSubmit orderKind = iota + 1
	orderStop
	// orderStray stops what the executor should not have.
	orderStray
)

// orderKey names a worker at an executor.
type orderKey struct {
	ordinal  uint32
	uid      string
	workerID model.WorkerID
}

// instance names what an executor has: of one uid and worker ID it may have more
// than what is recorded, under another name or of another epoch.
type instance struct {
	uid    string
	worker model.Worker
	epoch  int64
}

// order is what is to be sent about one worker until records or answers say
// that it is done. It is derived: losing one costs a repeat.
type order struct {
	key   orderKey
	kind  orderKind
	state model.WorkerState
	// due and then sequence decide who goes first.
	due      time.Time
	sequence uint64
	// in is the queue that holds it, at index; nil while it is in flight.
	in    *queue
	index int
	// misses counts the answers that led nowhere since the order was made.
	misses int
	// doubt: an attempt may have reached the executor without our knowing.
	doubt bool
	// of is what is to be stopped, and sent how often that was sent.
	of   instance
	sent int
	// why and since when a stray is one.
	why   model.Verdict
	since time.Time
}

// flight is an order under way.
type flight struct {
	key     flightKey
	attempt int32
	// incarnation is that of the executor as the order was sent.
	incarnation int64
	until       time.Time
	// after is the last effect decided before it was sent: it is carried out
	// once that is durable.
	after  int
	landed bool
}

// flightKey tells flights apart: orders to stop by what is to be stopped.
type flightKey struct {
	orderKey
	stop instance
}

func (o *order) flightKey() flightKey { return flightKey{o.key, o.of} }

// refitAll fits the orders of a task to its records.
func (c *Core) refitAll(t *task) {
	for _, chunk := range t.chunks {
		for i := range size(chunk) {
			c.refit(t, &chunk.Workers[i], true)
		}
	}
}

// refit makes, keeps or drops the order that a worker's record asks for.
func (c *Core) refit(t *task, w *model.TaskWorker, there bool) {
	if !c.leading || c.aside.uids[t.uid] {
		return
	}
	key := orderKey{w.Ordinal, t.uid, w.ID}
	if h := c.hosts[w.Ordinal]; there && t.active() && !w.State.Terminal() && h != nil && len(h.strays) > 0 {
		// It is known to live after all, for what said otherwise was undone.
		if o := h.strays[t.instance(w.ID)]; o != nil {
			c.drop(o)
		}
	}
	var kind orderKind
	if there && t.active() {
		switch w.State {
		case model.WorkerAssigned:
			if !t.header.Stopping {
				kind = orderSubmit
			}
		case model.WorkerEvict, model.WorkerEvicting:
			kind = orderStop
		}
	}
	o := c.orders[key]
	if kind == 0 {
		if o != nil {
			c.drop(o)
		}
		return
	}
	if o != nil && o.kind != kind {
		c.drop(o)
		o = nil
	}
	if o == nil {
		o = &order{key: key, kind: kind, doubt: true}
		if kind == orderStop {
			o.of = t.instance(w.ID)
		}
		c.orders[key] = o
	}
	if o.state == w.State {
		return
	}
	o.state = w.State
	if c.flights[o.flightKey()] != nil {
		return
	}
	if w.State == model.WorkerEvicting {
		c.schedule(o, c.again(key.uid))
	} else {
		c.schedule(o, 0)
	}
}

// The bounds of the orders to stop strays: of one executor, and of all. An agent may
// list any number of workers that no record knows. What is beyond a bound gets its
// order with a later complete report, for which an executor with strays is asked
// again and again.
const (
	maxStrays    = 1000
	maxAllStrays = 200_000
)

// stray orders an executor to stop what it should not have, and reports whether
// there is an order now.
func (c *Core) stray(ordinal uint32, of instance, why model.Verdict) bool {
	h := c.host(ordinal)
	if h.strays[of] != nil {
		return true
	}
	if len(h.strays) >= maxStrays || c.strayOrders >= maxAllStrays {
		return false
	}
	c.strayOrders++
	o := &order{key: orderKey{ordinal, of.uid, of.worker.ID}, kind: orderStray, of: of, why: why, since: c.now}
	h.strays[of] = o
	c.namesakes[of.worker] = append(c.namesakes[of.worker], o)
	if c.flights[o.flightKey()] == nil {
		c.schedule(o, 0)
	}
	return true
}

// schedule queues an order to be sent after a pause.
func (c *Core) schedule(o *order, pause time.Duration) {
	if o.in != nil {
		heap.Remove(o.in, o.index)
	}
	c.sequence++
	o.due, o.sequence = c.now.Add(pause), c.sequence
	o.enter(&c.due)
}

func (o *order) enter(q *queue) {
	o.in = q
	heap.Push(q, o)
}

// drop forgets an order. One in flight still takes its place until it lands.
func (c *Core) drop(o *order) {
	h := c.host(o.key.ordinal)
	if o.kind == orderStray {
		if h.strays[o.of] == o {
			delete(h.strays, o.of)
			c.strayOrders--
		}
		c.unname(o)
	} else {
		delete(c.orders, o.key)
	}
	if o.in != nil {
		heap.Remove(o.in, o.index)
		o.in = nil
	}
	c.wake(h)
}

// wake queues as many of the orders that wait for an executor as it has room
// for.
func (c *Core) wake(h *host) {
	for room := c.cfg.PerExecutor - h.flying; room > 0 && len(h.waiting) > 0; room-- {
		heap.Pop(&h.waiting).(*order).enter(&c.due)
	}
}

// sendDue sends what is due, in order, as far as there is room. What an
// executor has no room for, or cannot be reached for, waits there; what no record
// wants is held until the registry is ready, and a worker is not started while one
// of its name is still to be stopped.
func (c *Core) sendDue() {
	for len(c.flights) < c.cfg.InFlight && len(c.due) > 0 && !c.due[0].due.After(c.now) {
		o := heap.Pop(&c.due).(*order)
		o.in = nil
		h := c.host(o.key.ordinal)
		c.about(o.key.uid)
		if o.kind == orderStray && !c.ready {
			o.enter(&c.held)
			continue
		}
		if o.kind == orderSubmit && c.runsElsewhere(o) {
			o.enter(&c.barred)
			continue
		}
		if o.kind == orderSubmit && c.refuses(h) || !c.present(h) || h.flying >= c.cfg.PerExecutor || c.flights[o.flightKey()] != nil {
			o.enter(&h.waiting)
			continue
		}
		c.send(o, h.record)
	}
	c.aboutNone()
}

func (c *Core) send(o *order, e *model.Executor) {
	f := &flight{key: o.flightKey(), incarnation: e.Incarnation, until: c.now.Add(2 * c.cfg.Timeout), after: c.emitted}
	switch o.kind {
	case orderSubmit:
		t := c.tasks[o.key.uid]
		at, _ := t.find(o.key.workerID)
		f.attempt = t.chunks[at.chunk].Workers[at.i].Attempts + 1
		c.out = append(c.out, Submit{
			Term: c.term, Executor: e.ID, Address: e.Address, Incarnation: e.Incarnation, Nonce: Nonce(e.Nonce),
			Worker: t.worker(o.key.workerID), UID: t.uid, Epoch: t.header.Epoch, Attempt: f.attempt,
			Task: c.reservations[t.uid].Spec.Task, Timeout: c.cfg.Timeout, Fresh: f.attempt > 1 || o.misses > 0,
			Trace: t.traceOf(o.key.workerID),
		})
	default:
		o.sent++
		c.out = append(c.out, Stop{
			Term: c.term, Executor: e.ID, Address: e.Address, Incarnation: e.Incarnation, Nonce: Nonce(e.Nonce),
			Worker: o.of.worker, UID: o.of.uid, Epoch: o.of.epoch,
			Grace: c.grace(o.key.uid), Timeout: c.cfg.Timeout, Fresh: o.misses > 0,
			Trace: c.tasks[o.key.uid].traceOf(o.key.workerID),
		})
	}
	c.flights[f.key] = f
	c.flown = append(c.flown, f)
	c.host(o.key.ordinal).flying++
}

// land ends a flight: there is room for another.
func (c *Core) land(f *flight) {
	f.landed = true
	delete(c.flights, f.key)
	for len(c.flown) > 0 && c.flown[0].landed {
		c.flown = c.flown[1:]
	}
	h := c.host(f.key.ordinal)
	h.flying--
	if c.refuses(h) {
		c.markHost(f.key.ordinal)
	}
	c.wake(h)
}

// unsend takes back a flight that was never carried out.
func (c *Core) unsend(f *flight) {
	c.land(f)
	if o := c.standing(f); o != nil {
		c.schedule(o, 0)
	}
}

// standing answers the order that a flight was sent for, where it still stands
// and is not queued again.
func (c *Core) standing(f *flight) *order {
	o := c.host(f.key.ordinal).strays[f.key.stop]
	if o == nil {
		o = c.orders[f.key.orderKey]
	}
	if o == nil || o.flightKey() != f.key || o.in != nil {
		return nil
	}
	return o
}

// expireFlights frees the place of orders that were never answered, long after
// they should have been. What they did is unknown.
func (c *Core) expireFlights() {
	for len(c.flown) > 0 && !c.flown[0].until.After(c.now) {
		f := c.flown[0]
		if f.key.stop != (instance{}) {
			c.stopped(f, Unknown{"no answer"})
		} else {
			c.submitted(f, Unknown{"no answer"})
			c.submitsDecided(f)
		}
	}
}

// retry sends an order again after a pause that grows with each miss.
func (c *Core) retry(o *order) {
	o.misses++
	c.schedule(o, c.backoff(o.key, o.misses))
}

// backoff is exponential with full jitter. The jitter is a hash, so that a
// replay takes the same pauses and two workers do not.
func (c *Core) backoff(key orderKey, failures int) time.Duration {
	ceiling := c.cfg.BackoffCap
	if shift := failures - 1; shift < 20 {
		ceiling = min(ceiling, c.cfg.BackoffBase<<shift)
	}
	h := fnv.New64a()
	h.Write([]byte(key.uid + "/" + key.workerID.String() + "/" + strconv.Itoa(failures)))
	// The multiplication spreads what the hash leaves in its low bits.
	part := float64(h.Sum64()*0x9e3779b97f4a7c15>>11) / (1 << 53)
	return time.Duration(float64(ceiling) * part)
}

// grace is how long the workers of a reservation have to end by themselves.
func (c *Core) grace(uid string) time.Duration {
	if r := c.reservations[uid]; r.Reservation != nil && r.Spec.Task.StopGrace > 0 {
		return r.Spec.Task.StopGrace
	}
	return model.DefaultStopGrace
}

// again is how long after a stop was acknowledged it is sent once more.
func (c *Core) again(uid string) time.Duration { return c.grace(uid) + c.cfg.StopAgain }

// queue is a heap of orders: the one due first, then the one made first, is
// next.
type queue []*order

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].sequence < q[j].sequence
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queue) Push(x any) {
	o := x.(*order)
	o.index = len(*q)
	*q = append(*q, o)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	o := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return o
}
