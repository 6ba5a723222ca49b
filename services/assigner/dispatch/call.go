package dispatch

import "time"

// call is a request in flight.
type call struct {
	key callKey
	// number is that of the request. The shell may repeat the event of an earlier call's
	// outcome, after the effects that followed from it were abandoned.
	number  int64
	attempt int32
	// incarnation is the executor's incarnation when the request was sent.
	incarnation int64
	until       time.Time
	ended       bool
	// first is set on a start request if no earlier one can have reached the executor.
	first bool
	// workerEnded is set on a start request if its executor has confirmed the end of the
	// worker while the request was in flight.
	workerEnded bool
}

// callKey identifies a call. stop is the instance that a stop request stops, and zero for
// another request: one executor can have several instances of one worker key.
type callKey struct {
	workerKey
	stop instance
}

// sendDue sends the requests that are due, in order, while fewer than InFlight calls are
// in flight.
func (c *Core) sendDue() {
	before := len(c.callsByAge)
	for len(c.calls) < c.cfg.InFlight {
		r, ok := c.due.First()
		if !ok || r.due.After(c.now) {
			break
		}
		c.setSubject(r.key.uid)
		if r.kind == volumesRequest && len(c.drops(c.host(r.key.ordinal))) == 0 {
			c.drop(r) // a record of another executor names its last volume since
			continue
		}
		if queue := c.waitsIn(r); queue != nil {
			r.moveTo(queue)
			continue
		}
		r.moveTo(nil)
		if volume, ok := c.volumeFor(r); ok {
			c.send(r, volume)
		} else {
			c.failWithoutVolume(r)
		}
	}
	c.clearSubject()
	c.cancelUnsent(c.callsByAge[before:])
}

// cancelUnsent ends the calls of this step if an effect before them is abandoned, because
// the shell then never makes these calls.
func (c *Core) cancelUnsent(calls []*call) {
	if len(calls) == 0 {
		return
	}
	c.journal.Outcome(func(durable bool) {
		for _, f := range calls {
			if durable || f.ended {
				continue
			}
			c.endCall(f)
			if r := c.unqueued(f); r != nil {
				c.schedule(r, 0)
			}
		}
	})
}

// waitsIn returns the queue in which a due request must wait, or nil if the core can send
// it now. It is the ready gate: a request to stop an orphan waits until the registry is
// ready.
func (c *Core) waitsIn(r *request) *requestQueue {
	h := c.host(r.key.ordinal)
	switch {
	case r.kind == orphanRequest && !c.ready:
		return &c.untilReady
	case r.kind == startRequest && (c.runsElsewhere(r) || c.volumeUnreadable(r)):
		return &c.blocked
	case r.kind == startRequest && c.refuses(h), r.kind == volumesRequest && h.lost(), !c.present(h):
		return &h.waiting
	case h.calls >= c.cfg.PerExecutor, c.calls[r.callKey()] != nil:
		return &h.waiting
	}
	return nil
}

func (c *Core) send(r *request, volume *VolumeStart) {
	h, t, target := c.host(r.key.ordinal), c.tasks[r.key.uid], r.target
	c.lastCall++
	sent := &call{key: r.callKey(), number: c.lastCall, incarnation: h.record.Incarnation,
		until: c.now.Add(2 * requestTimeout)}
	if r.kind == startRequest {
		at, _ := t.find(r.key.workerID)
		sent.attempt, sent.first = c.read(t, at).Attempts+1, !r.maybeReached
		target = t.instance(r.key.workerID)
	}
	common := Request{
		Term: c.term, Call: sent.number, Executor: h.record.ID, Address: h.record.Address, Incarnation: h.record.Incarnation,
		Nonce:  Nonce(h.record.Nonce),
		Worker: target.worker, UID: target.uid, Epoch: target.epoch, Timeout: requestTimeout,
		Fresh: sent.attempt > 1 || r.failures > 0, Trace: t.traceOf(r.key.workerID),
	}
	switch r.kind {
	case startRequest:
		c.out = append(c.out, Submit{Request: common, Attempt: sent.attempt, Task: &c.reservations[t.uid].Spec.Task,
			Reservation: t.header.Key.Name, Workers: int32(c.gangSize(t)),
			Volume: volume})
	case volumesRequest:
		c.out = append(c.out, DropVolumes{Request: common, IDs: c.nextDrops(h, r.failures)})
	default:
		r.sent++
		r.grace = c.grace(r.key)
		c.out = append(c.out, Stop{Request: common, Grace: r.grace})
	}
	c.calls[sent.key] = sent
	c.callsByAge = append(c.callsByAge, sent)
	h.calls++
}

// endCall ends a call, so that another request can be sent in its place.
func (c *Core) endCall(f *call) {
	f.ended = true
	delete(c.calls, f.key)
	for len(c.callsByAge) > 0 && c.callsByAge[0].ended {
		c.callsByAge = c.callsByAge[1:]
	}
	h := c.host(f.key.ordinal)
	h.calls--
	if c.refuses(h) {
		c.markHost(f.key.ordinal)
	}
	c.wake(h)
}

// unqueued returns the request of a call if the request still exists and is in no queue.
func (c *Core) unqueued(f *call) *request {
	r := c.host(f.key.ordinal).orphans[f.key.stop]
	if r == nil {
		r = c.requests[f.key.workerKey]
	}
	if r == nil || r.callKey() != f.key || r.queue != nil {
		return nil
	}
	return r
}

// expireCalls ends the calls for which the shell has posted no outcome by twice the
// request timeout. Their outcome is unknown.
func (c *Core) expireCalls() {
	for len(c.callsByAge) > 0 && !c.callsByAge[0].until.After(c.now) {
		f := c.callsByAge[0]
		switch {
		case f.key.stop != (instance{}):
			c.stopEnded(f, Unknown{"no answer"})
		case f.key.uid == "":
			c.dropEnded(f, Unknown{"no answer"})
		default:
			c.submitEnded(f, Unknown{"no answer"})
			c.retryUndecided(f)
		}
	}
}
