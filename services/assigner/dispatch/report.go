package dispatch

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// report handles an executor's report of its workers. model.Reconcile decides what the
// report means for each worker. If a reported worker contradicts the records, it is an
// orphan and gets a stop request. The request waits at the ready gate (waitsIn): before the
// registry is ready, no orphan is stopped.
func (c *Core) report(r Report) (Reported, error) {
	ordinal, ok := c.ordinals[r.Executor]
	if !ok {
		return Reported{}, fault.New(fault.Unavailable, fault.ReasonUnavailable, "executor %s is not known here yet",
			r.Executor)
	}
	h := c.hosts[ordinal]
	s := reconciliation{
		current:  h.record.Incarnation,
		unlisted: model.Reported{Ordinal: ordinal, Incarnation: r.Incarnation, Sequence: r.Sequence, Complete: r.Complete},
		listed:   make(map[placed]bool, len(r.Workers)), orphans: map[instance]bool{},
	}
	if model.Reconcile(s.current, s.unlisted, nil) == model.Duplicate {
		return Reported{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %s has incarnation %d, not %d", r.Executor, s.current, r.Incarnation)
	}
	answer := Reported{Executor: r.Executor, Sequence: r.Sequence, Term: c.term}
	if r.Complete && len(h.orphans) > 0 {
		c.keepOrphans(h, instances(r.Workers)) // stays below maxOrphans
	}
	for _, status := range r.Workers {
		c.setSubject(status.UID)
		if c.reportWorker(&s, status) == model.Ended {
			answer.Ended = append(answer.Ended, status)
		}
	}
	c.clearSubject()
	if r.Complete {
		c.reportAbsent(h, &s)
		c.keepOrphans(h, s.orphans)
	}
	answer.Orphans = len(h.orphans) + s.unstopped
	return answer, nil
}

// reconciliation collects the results of one report.
type reconciliation struct {
	// current is the incarnation of the executor's record.
	current int64
	// unlisted is the input of model.Reconcile for a worker that the report does not list.
	unlisted model.Reported
	// listed has every uid and worker ID that the report lists in any way except as
	// ended. Such a worker is not absent, so it has not freed its capacity.
	listed map[placed]bool
	// orphans are the orphaned workers in the report. unstopped counts the orphaned
	// workers that have no stop request because of a limit.
	orphans   map[instance]bool
	unstopped int
}

// instances returns the instances of the workers that a report lists.
func instances(workers []WorkerStatus) map[instance]bool {
	set := make(map[instance]bool, len(workers))
	for _, w := range workers {
		set[w.instance()] = true
	}
	return set
}

func (w WorkerStatus) instance() instance { return instance{w.UID, w.Worker, w.Epoch} }

// reportWorker handles the status of one worker in a report, and returns the verdict.
func (c *Core) reportWorker(s *reconciliation, status WorkerStatus) model.Verdict {
	if !status.State.Reportable() || c.quarantined.uids[status.UID] {
		s.listed[placed{status.UID, status.Worker.ID}] = true
		return model.VerdictUnset
	}
	target := status.instance()
	t, at, known := c.recorded(target)
	said := s.unlisted
	said.Listed, said.Epoch, said.State = true, status.Epoch, status.State
	verdict := model.Reconcile(s.current, said, known)
	if verdict != model.Ended {
		s.listed[placed{target.uid, target.worker.ID}] = true
	} else {
		c.endInstance(said.Ordinal, target)
	}
	recorded := known != nil && known.Epoch == status.Epoch && known.Worker.Ordinal == said.Ordinal
	switch {
	case recorded && known.Worker.Unconfirmed && verdict != model.Ended:
		c.answeredLate(t, at, known.Worker) // its stop request is repeated
	case verdict.Stops():
		s.orphans[target] = true
		if !c.stopOrphan(said.Ordinal, target, verdict) {
			s.unstopped++
		}
	case recorded && known.Worker.Occupies():
		c.update(t, at, known.Worker, said.Incarnation, said.Sequence, status.Status)
		c.trackStart(workerKey{said.Ordinal, t.uid, status.Worker.ID}, c.read(t, at).State, status)
	}
	return verdict
}

// trackStart keeps when an executor began the start of a worker in a state. A clock that is
// ahead must not delay the worker's deadline for ever, so the first time counts, and it is
// not in the future.
func (c *Core) trackStart(key workerKey, state model.WorkerState, status WorkerStatus) {
	if state != model.WorkerStarting || status.State != model.WorkerStarting {
		return
	}
	switch began := status.Begun; {
	case status.Queued:
		c.starts[key] = time.Time{}
	case began.IsZero() || !c.starts[key].IsZero():
	case began.After(c.now):
		c.starts[key] = c.now
	default:
		c.starts[key] = began
	}
}

// recorded returns the record of an instance, or nil if the uid has no worker of that
// name. The recorded worker may be placed on another executor.
func (c *Core) recorded(of instance) (*task, slot, *model.Recorded) {
	t := c.tasks[of.uid]
	if t == nil || !t.active() {
		return nil, slot{}, nil
	}
	at, found := t.find(of.worker.ID)
	if !found || t.worker(of.worker.ID) != of.worker {
		return nil, slot{}, nil
	}
	return t, at, &model.Recorded{Epoch: t.header.Epoch, Worker: c.read(t, at)}
}

// update records the reported status of a worker whose record has not ended. The state
// never moves backwards. EVICTING changes nothing: the executor may have stopped the worker
// without a request, and only its answer acknowledges a request. A later incarnation of the
// executor adopts the workers that it lists.
func (c *Core) update(t *task, at slot, w model.TaskWorker, incarnation, sequence int64, status Status) {
	was, key := w, workerKey{w.Ordinal, t.uid, w.ID}
	// A report may arrive before the answer to the start request.
	if f := c.calls[callKey{workerKey: key}]; f != nil && w.State == model.WorkerAssigned {
		w.Attempts = f.attempt
	}
	if status.State.Terminal() {
		c.recordUse(t, &w, incarnation, status.NeverStarted)
		c.recordEnd(t, at, w, status)
		return
	}
	if incarnation > w.Incarnation {
		w.Incarnation, w.Sequence = incarnation, sequence
	}
	w.UnansweredSince = 0
	if status.State < model.WorkerEvict && w.State.MayBecome(status.State) {
		w.State = status.State
	}
	if status.Host != "" && c.hosts[w.Ordinal].isCell() {
		w.Host = model.Intern(status.Host)
	}
	if w.State >= model.WorkerEvict && status.State < model.WorkerEvict {
		c.stopNow(key)
	}
	if w != was {
		c.write(t, at, w)
	}
}

// reportAbsent handles the workers that a complete report does not list.
func (c *Core) reportAbsent(h *host, s *reconciliation) {
	for _, p := range h.placed {
		if c.quarantined.uids[p.uid] {
			continue
		}
		c.setSubject(p.uid)
		key := workerKey{s.unlisted.Ordinal, p.uid, p.workerID}
		t, at, _ := c.find(key)
		w := c.read(t, at)
		if s.listed[p] || !w.Occupies() {
			continue
		}
		switch model.Reconcile(s.current, s.unlisted, &model.Recorded{Epoch: t.header.Epoch, Worker: w}) {
		case model.Missing:
			w.State, w.Reason = model.WorkerLost, fault.ReasonNotReported
			c.write(t, at, w)
		case model.Await:
			// The executor does not have the worker, so it answers a repeated stop
			// request at once, and that answer ends the worker.
			c.stopNow(key)
		}
	}
	c.clearSubject()
}

// stopNow repeats an acknowledged stop request at once, without the pause for the grace
// period.
func (c *Core) stopNow(key workerKey) {
	r := c.requests[key]
	if r != nil && r.kind == stopRequest && r.state >= model.WorkerEvicting && r.queue == &c.due && r.due.After(c.now) {
		c.schedule(r, 0)
	}
}
