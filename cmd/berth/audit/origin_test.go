package audit

import (
	"slices"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// lostWorker marks a worker of a task, which could not be started, for a requeue.
func lostWorker(c *model.TaskChunk, at int) *model.TaskChunk {
	next := *c
	next.Workers = append([]model.TaskWorker{}, c.Workers...)
	next.Workers[at].State, next.Workers[at].Requeue = model.WorkerFailed, true
	next.Workers[at].Reason = fault.ReasonAttemptsExhausted
	return &next
}

// endedFor lets the worker that lostWorker marked end in a state for a reason.
func endedFor(c *model.TaskChunk, state model.WorkerState, reason fault.Reason) *model.TaskChunk {
	c.Workers[0].State, c.Workers[0].Reason = state, reason
	return c
}

// ranFor lets the worker that lostWorker marked end in a state after it ran for a time.
func ranFor(c *model.TaskChunk, ran time.Duration, state model.WorkerState) *model.TaskChunk {
	w := &c.Workers[0]
	w.State, w.Reason, w.RunningSince = state, "", model.InstantOf(time.Unix(1000, 0))
	w.Since = model.InstantOf(w.RunningSince.Time().Add(ran))
	return c
}

// restarting returns a reservation that restarts its workers.
func restarting(of *model.Reservation, restart model.Restart, limit int32) *model.Reservation {
	next := *of
	next.Spec.Restart, next.Spec.MaxRestarts = restart, &limit
	return &next
}

// requeue returns a requeue of the first worker of a reservation, with the next worker
// number, as an older version of Berth queues it.
func requeue(uid string, of *model.Reservation) *model.Reservation {
	next := *of
	next.UID, next.Origin, next.Parent, next.Round = uid, model.OriginRequeue, of.UID, of.Round+1
	next.Failures, next.Place, next.PlaceEpoch = of.Failures+1, 100, 0
	next.Workers = model.WorkerSet{{First: of.Workers[0].First, Last: of.Workers[0].First,
		Number: of.Workers[0].Number + 1}}
	return &next
}

// recorded returns a requeue of the first worker of a reservation with a number, and the
// ACTIVE record of the reservation that records it.
func recorded(uid string, of *model.Reservation, number int32) (again, from *model.Reservation) {
	again, from = requeue(uid, of), in(of, model.Active)
	failed := of.Workers[0]
	failed.Last = failed.First
	from.RecordsRequeues, from.Requeued = true, model.WorkerSet{failed}
	again.Earlier = slices.Concat(of.Earlier, []model.NumberRange{{First: failed.Number, Last: failed.Number}})
	again.Workers[0].Number = number
	return again, from
}

// updated returns a started reservation after a request with another command.
func updated(r *model.Reservation, command string) *model.Reservation {
	next := *r
	next.Latest = &model.Latest{Spec: r.Spec}
	next.Latest.Spec.Task.Command = command
	return &next
}

// requeueNow returns a requeue that has taken another command, which ends its delay.
func requeueNow(r *model.Reservation, command string) *model.Reservation {
	next := *r
	next.Spec.Task.Command, next.Failures, next.NotBefore = command, 0, time.Time{}
	return &next
}

// used returns the record of the stage after the first worker index of a reservation has used
// the numbers up to the given one.
func used(r *model.Reservation, number int32) *model.Stage {
	return &model.Stage{Job: r.Key.Job, Stage: r.Key.Stage,
		Numbers: model.WorkerSet{{First: r.Workers[0].First, Last: r.Workers[0].First, Number: number}}}
}

// splitFirst splits off the first worker.
func splitFirst(of *model.Reservation, epoch int64) (part, rest *model.Reservation) {
	p, r := *of, *of
	p.UID, p.Origin, p.Parent, p.PlaceEpoch = "part", model.OriginPart, of.UID, epoch
	first := of.Workers[0].First
	p.Workers = model.WorkerSet{{First: first, Last: first, Number: 1}}
	r.Workers = model.WorkerSet{{First: first + 1, Last: of.Workers[0].Last, Number: 1}}
	return &p, &r
}

// splitInTwo splits off the first two of three workers. It also returns the replacement of
// the part after the second of them is cancelled.
func splitInTwo(of *model.Reservation, epoch int64) (part, smaller, rest *model.Reservation) {
	part, rest = splitFirst(of, epoch)
	next := *part
	next.UID = "smaller"
	last := of.Workers[0].Last
	part.Workers = model.WorkerSet{{First: of.Workers[0].First, Last: last - 1, Number: 1}}
	rest.Workers = model.WorkerSet{{First: last, Last: last, Number: 1}}
	return part, &next, rest
}

func cancelling(r *model.Reservation, at int) *model.Reservation {
	next := *r
	workerID := r.Workers.List()[at]
	next.Unwanted = model.WorkerSetOf([]model.WorkerID{workerID})
	return &next
}

// round returns the next round of a batch.
func round(uid string, of *model.Reservation) *model.Reservation {
	next := *of
	next.UID, next.Parent, next.Round, next.PlaceEpoch = uid, of.UID, of.Round+1, 1
	next.Workers = model.WorkerSet{{First: of.Workers[0].First, Last: of.Workers[0].Last,
		Number: of.Workers[0].Number + 1}}
	return &next
}

// withdraw ends a batch that could not start.
func (w *world) withdraw(l *model.LeaseChunk) {
	h := header(l)
	h.Withdrawn, h.Stopping = true, true
	w.put(h, task(l, model.WorkerEvict))
	ended := *h
	ended.Ended = true
	w.put(&ended, task(l, model.WorkerEvicted))
	w.put(deletion{l.Ref()})
}

// TestOrigins plays requeues, parts and rounds without a violation.
func TestOrigins(t *testing.T) {
	r, other := reservation("r", 1, 3), reservation("s", 2, 2)
	tests := []struct {
		name  string
		write func(w *world)
	}{
		{"a requeue comes before older reservations", func(w *world) {
			l := w.run(r, 1)
			w.put(other)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			w.run(again, 2)
		}},
		{"a requeue is requeued", func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			l = w.run(again, 2)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			next := requeue("once-more", again)
			next.Parent = r.UID
			w.put(next)
		}},
		{"a requeue gets the next unused number of its index", func(w *world) {
			l := w.run(r, 1)
			w.put(used(r, 4))
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", r, 5)
			l = w.start(again, w.put(again, from, used(r, 5)), 2)
			w.put(used(r, 9))
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			next, from := recorded("once-more", again, 10)
			next.Parent = r.UID
			w.put(next, from, used(r, 10))
		}},
		{"one revision requeues workers of two reservations that share an index", func(w *world) {
			l := w.run(r, 1)
			twin := reservation("twin", 1, 1)
			twin.Workers[0].Number = 2
			k := w.run(twin, 2)
			w.put(lostWorker(task(l, model.WorkerRunning), 0), lostWorker(task(k, model.WorkerRunning), 0))
			first, of := recorded("first", r, 4)
			second, from := recorded("second", twin, 3)
			w.put(first, of, second, from, used(r, 4))
		}},
		{"another request has the index of a worker", func(w *world) {
			l := w.run(r, 1)
			ended := lostWorker(task(l, model.WorkerRunning), 0)
			w.put(ended)
			next := requeue("next", r)
			next.Origin, next.Parent, next.Round, next.Failures = model.OriginRequested, "", 0, 0
			w.put(next)
			_, from := recorded("", r, 2)
			w.put(in(next, model.Cancelled))
			w.put(from, deletion{next.Ref()})
		}},
		{"an older version of Berth drops what is recorded", func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", r, 2)
			w.put(again, from)
			w.put(in(r, model.Active))
		}},
		{"a completed worker is restarted", func(w *world) {
			r := restarting(r, model.RestartAlways, 0)
			l := w.run(r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerCompleted))
			w.put(requeue("again", r))
		}},
		{"a worker that ran for long counts its failures anew", func(w *world) {
			r := *restarting(r, model.RestartOnFailure, 3)
			r.Origin, r.Failures = model.OriginRequeue, 3
			l := w.run(&r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), model.StableAfter, model.WorkerFailed))
			again := requeue("again", &r)
			again.Failures = 1
			w.put(again)
		}},
		{"a worker moves more often than it may be restarted, and does not wait", func(w *world) {
			r := *restarting(r, model.RestartNever, 0)
			r.Spec.OnWorkerLoss, r.Origin, r.Failures = model.OnLossReplace, model.OriginRequeue, 3
			l := w.run(&r, 1)
			w.put(endedFor(lostWorker(task(l, model.WorkerRunning), 0), model.WorkerEvicted, fault.ReasonExecutorDraining))
			again := requeue("again", &r)
			again.Granted, again.Failures = true, 3
			w.put(again)
		}},
		{"a worker that is requeued by order waits behind others", func(w *world) {
			r := *restarting(r, model.RestartOnFailure, 2)
			r.Spec.Requeue = model.RequeueByOrder
			l := w.run(&r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerFailed))
			again := requeue("again", &r)
			again.PlaceEpoch = l.Epoch
			w.put(again)
			first := *other
			order := int64(-1)
			first.Spec.Priority.Order = &order
			epoch := w.put(&first)
			w.put(lease(&first, epoch, w.revision, 2))
		}},
		{"a restart waits, and others are granted meanwhile", func(w *world) {
			r := *restarting(r, model.RestartAlways, 2)
			r.Origin, r.Failures = model.OriginRequeue, 3
			l := w.run(&r, 1)
			ended := ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Minute, model.WorkerFailed)
			w.put(ended)
			again := requeue("again", &r)
			again.NotBefore = ended.Workers[0].Since.Time().Add(4 * time.Second)
			w.put(again)
			epoch := w.put(other)
			w.put(lease(other, epoch, w.revision, 2))
		}},
		{"a worker that was being stopped is lost and requeued", func(w *world) {
			l := w.run(r, 1)
			lost := lostWorker(task(l, model.WorkerRunning), 0)
			lost.Workers[0].State = model.WorkerLost
			w.put(lost)
			w.put(requeue("again", r))
		}},
		{"its parent is completed by the same revision", func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerCompleted), 0))
			w.put(deletion{l.Ref()})
			w.put(requeue("again", r), in(r, model.Completed))
		}},
		{"a requeue takes the latest request", func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", updated(r, "other"), 2)
			again.Spec.Task.Command, again.Failures, again.Latest = "other", 0, nil
			w.put(again, from)
		}},
		{"a delay ends, and an earlier cycle grants meanwhile", func(w *world) {
			r := *restarting(r, model.RestartAlways, 2)
			r.Failures = 3
			l := w.run(&r, 1)
			epoch := w.put(other)
			ended := ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Minute, model.WorkerFailed)
			w.put(ended)
			again := requeue("again", &r)
			again.NotBefore = ended.Workers[0].Since.Time().Add(4 * time.Second)
			cut := w.put(again)
			w.put(updated(in(&r, model.Active), "other"), requeueNow(again, "other"))
			w.put(lease(other, epoch, cut, 2))
		}},
		{"a round takes the latest request", func(w *world) {
			l := w.run(r, 1)
			w.put(other)
			w.withdraw(l)
			next := round("again", updated(r, "other"))
			next.Spec.Task.Command, next.Latest = "other", nil
			w.put(in(updated(r, "other"), model.Replaced), next)
		}},
		{"a refused requeue is queued again", func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			w.put(again)
			next := requeue("next", r)
			w.put(in(again, model.Replaced), next)
		}},
		{"a part is leased before the rest", func(w *world) {
			epoch := w.put(r)
			part, rest := splitFirst(r, epoch)
			partEpoch := w.put(part, rest)
			cut := w.put(other)
			w.put(lease(part, partEpoch, cut, 1))
			w.put(lease(rest, epoch, w.revision, 2))
		}},
		{"a worker of a part is cancelled in the revision of the split", func(w *world) {
			epoch := w.put(r)
			part, smaller, rest := splitInTwo(r, epoch)
			w.put(in(part, model.Replaced), smaller, rest)
			w.put(lease(smaller, w.revision, w.revision, 1))
		}},
		{"a cancelled worker's index is filled while it is being stopped", func(w *world) {
			w.run(r, 1)
			w.put(cancelling(in(r, model.Active), 0))
			next := reservation("next", 4, 1)
			next.Key, next.Workers = r.Key, model.WorkerSet{{First: r.Workers[0].First, Last: r.Workers[0].First, Number: 2}}
			w.run(next, 2)
		}},
		{"a batch gets another round in its place", func(w *world) {
			l := w.run(r, 1)
			w.put(other)
			w.withdraw(l)
			w.put(in(r, model.Replaced), round("again", r))
			w.put(lease(round("again", r), w.revision, w.revision, 1))
		}},
		{"a round is replaced after the record of the round before it was deleted", func(w *world) {
			l := w.run(r, 1)
			w.withdraw(l)
			again := round("again", r)
			w.put(in(r, model.Replaced), again)
			w.put(deletion{task(l, model.WorkerEvicted).Ref()}, deletion{header(l).Ref()})
			w.put(deletion{r.Ref()})
			next := *again
			next.UID = "next"
			w.put(in(again, model.Replaced), &next)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.write(w)
			wantRules(t, w.audit())
		})
	}
}

// TestOriginRules breaks the rules about reservations with a parent.
func TestOriginRules(t *testing.T) {
	r, other := reservation("r", 1, 3), reservation("s", 2, 2)
	tests := []struct {
		name  string
		rule  Rule
		write func(w *world)
	}{
		{"a requeue is overtaken", RuleOrder, func(w *world) {
			l := w.run(r, 1)
			epoch := w.put(other)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(requeue("again", r))
			w.put(lease(other, epoch, w.revision, 2))
		}},
		{"the rest overtakes its part", RuleOrder, func(w *world) {
			epoch := w.put(r)
			part, rest := splitFirst(r, epoch)
			w.put(part, rest)
			w.put(lease(rest, epoch, w.revision, 1))
		}},
		{"a later reservation overtakes the rest", RuleOrder, func(w *world) {
			epoch := w.put(r)
			otherEpoch := w.put(other)
			part, rest := splitFirst(r, epoch)
			partEpoch := w.put(part, rest)
			w.put(lease(part, partEpoch, w.revision, 1))
			w.put(lease(other, otherEpoch, w.revision, 2))
		}},
		{"a requeue has the earlier request", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", updated(r, "other"), 2)
			w.put(again, from)
		}},
		{"a round has the earlier request", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(other)
			w.withdraw(l)
			w.put(in(updated(r, "other"), model.Replaced), round("again", r))
		}},
		{"a started reservation takes the latest request", RuleImmutable, func(w *world) {
			w.run(r, 1)
			next := *in(r, model.Active)
			next.Spec.Task.Command = "other"
			w.put(&next)
		}},
		{"a delay ends, and a later cycle grants another", RuleOrder, func(w *world) {
			r := *restarting(r, model.RestartAlways, 2)
			r.Failures = 3
			l := w.run(&r, 1)
			epoch := w.put(other)
			ended := ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Minute, model.WorkerFailed)
			w.put(ended)
			again := requeue("again", &r)
			again.NotBefore = ended.Workers[0].Since.Time().Add(4 * time.Second)
			w.put(again)
			w.put(updated(in(&r, model.Active), "other"), requeueNow(again, "other"))
			w.put(lease(other, epoch, w.revision, 2))
		}},
		{"a running worker is requeued", RuleOrigin, func(w *world) {
			w.run(r, 1)
			w.put(requeue("again", r))
		}},
		{"a worker is requeued twice", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(requeue("again", r))
			w.put(requeue("once-more", r))
		}},
		{"a worker is requeued twice by one revision", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(requeue("again", r), requeue("once-more", r))
		}},
		{"a recorded worker is requeued twice", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", r, 2)
			w.put(again, from, used(r, 2))
			again, from = recorded("once-more", r, 3)
			w.put(again, from, used(r, 3))
		}},
		{"a requeue is not recorded", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, _ := recorded("again", r, 2)
			w.put(again)
		}},
		{"a requeue gets a used number", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(used(r, 4))
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", r, 2)
			w.put(again, from)
		}},
		{"a requeue is recorded and not made", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			_, from := recorded("again", r, 2)
			w.put(from)
		}},
		{"a recorded requeue is forgotten", RuleImmutable, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again, from := recorded("again", r, 2)
			w.put(again, from)
			forgets := *from
			forgets.Requeued = nil
			w.put(&forgets)
		}},
		{"a round gets used numbers", RuleOrigin, func(w *world) {
			w.put(used(r, 4))
			w.withdraw(w.run(r, 1))
			w.put(in(r, model.Replaced), round("again", r))
		}},
		{"a cancelled worker is requeued", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(cancelling(in(r, model.Active), 0))
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(requeue("again", r))
		}},
		{"a cancelled reservation is requeued", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(in(r, model.Cancelling))
			w.put(lostWorker(task(l, model.WorkerEvicted), 0))
			w.put(requeue("again", r))
		}},
		{"a worker of a requeue that has ended is requeued", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			l = w.run(again, 2)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(deletion{l.Ref()})
			w.put(in(again, model.Completed))
			next := requeue("once-more", again)
			next.Parent = r.UID
			w.put(next)
		}},
		{"a worker of another requeue is requeued", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			w.run(again, 2)
			next := requeue("once-more", again)
			next.Parent = r.UID
			w.put(next)
		}},
		{"a worker that ran is requeued without a policy", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerFailed))
			w.put(requeue("again", r))
		}},
		{"a worker that exited is requeued without a policy", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(endedFor(lostWorker(task(l, model.WorkerRunning), 0), model.WorkerFailed, fault.ReasonExited))
			w.put(requeue("again", r))
		}},
		{"a lost worker is requeued without a policy", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(endedFor(lostWorker(task(l, model.WorkerRunning), 0), model.WorkerLost, fault.ReasonExecutorLost))
			w.put(requeue("again", r))
		}},
		{"a worker that could not be started is requeued although the owner is to be notified", RuleOrigin, func(w *world) {
			r := *restarting(r, model.RestartOnFailure, 2)
			r.Spec.OnFailure = model.OnFailureNotify
			l := w.run(&r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			w.put(requeue("again", &r))
		}},
		{"a completed worker is restarted after failures only", RuleOrigin, func(w *world) {
			r := restarting(r, model.RestartOnFailure, 2)
			l := w.run(r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerCompleted))
			w.put(requeue("again", r))
		}},
		{"a lost worker that ran is not replaced", RuleOrigin, func(w *world) {
			r := restarting(r, model.RestartAlways, 2)
			l := w.run(r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerLost))
			w.put(requeue("again", r))
		}},
		{"a worker is restarted more often than allowed", RuleOrigin, func(w *world) {
			r := restarting(r, model.RestartOnFailure, 0)
			l := w.run(r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Second, model.WorkerFailed))
			w.put(requeue("again", r))
		}},
		{"a restart forgets its failures", RuleOrigin, func(w *world) {
			r := *restarting(r, model.RestartAlways, 2)
			r.Origin, r.Failures = model.OriginRequeue, 3
			l := w.run(&r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Minute, model.WorkerFailed))
			again := requeue("again", &r)
			again.Failures = 1
			w.put(again)
		}},
		{"a restart does not wait", RuleOrigin, func(w *world) {
			r := *restarting(r, model.RestartAlways, 2)
			r.Origin, r.Failures = model.OriginRequeue, 3
			l := w.run(&r, 1)
			w.put(ranFor(lostWorker(task(l, model.WorkerRunning), 0), time.Minute, model.WorkerFailed))
			w.put(requeue("again", &r))
		}},
		{"a move counts as a failure", RuleOrigin, func(w *world) {
			r := *restarting(r, model.RestartNever, 2)
			r.Spec.OnWorkerLoss = model.OnLossReplace
			l := w.run(&r, 1)
			w.put(endedFor(lostWorker(task(l, model.WorkerRunning), 0), model.WorkerEvicted, fault.ReasonExecutorDraining))
			again := requeue("again", &r)
			again.Granted = true
			w.put(again)
		}},
		{"a worker that was queued again expires after its queueTimeout", RuleReservationState, func(w *world) {
			r := *r
			r.Granted = true
			w.put(&r)
			ended := in(&r, model.Expired)
			ended.Reason = fault.ReasonQueueTimeout
			w.put(ended)
		}},
		{"a requeue has no parent", RuleOrigin, func(w *world) {
			w.put(requeue("again", r))
		}},
		{"a requeue skips a round", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(lostWorker(task(l, model.WorkerRunning), 0))
			again := requeue("again", r)
			again.Round++
			w.put(again)
		}},
		{"a part has another place", RuleOrigin, func(w *world) {
			epoch := w.put(r)
			part, rest := splitFirst(r, epoch)
			part.Place++
			w.put(part, rest)
		}},
		{"a worker is lost in a split", RuleImmutable, func(w *world) {
			epoch := w.put(r)
			part, rest := splitFirst(r, epoch)
			rest.Workers = model.WorkerSet{{First: rest.Workers[0].Last, Last: rest.Workers[0].Last, Number: 1}}
			w.put(part, rest)
		}},
		{"a worker is in both halves", RuleImmutable, func(w *world) {
			epoch := w.put(r)
			part, rest := splitFirst(r, epoch)
			part.Workers = model.WorkerSet{{First: part.Workers[0].First, Last: part.Workers[0].First + 1, Number: 1}}
			w.put(part, rest)
		}},
		{"two parts share a worker", RuleImmutable, func(w *world) {
			epoch := w.put(r)
			part, smaller, rest := splitInTwo(r, epoch)
			w.put(part, smaller, rest)
		}},
		{"a leased reservation is split", RuleImmutable, func(w *world) {
			epoch := w.put(r)
			w.put(lease(r, epoch, w.revision, 1))
			part, rest := splitFirst(r, epoch)
			w.put(part, rest)
		}},
		{"a cancelled worker is revived", RuleImmutable, func(w *world) {
			w.run(r, 1)
			w.put(cancelling(in(r, model.Active), 0))
			w.put(in(r, model.Active))
		}},
		{"a worker of another reservation is cancelled", RuleImmutable, func(w *world) {
			w.run(r, 1)
			stranger := *in(r, model.Active)
			stranger.Unwanted = model.WorkerSet{{First: 99, Last: 99, Number: 1}}
			w.put(&stranger)
		}},
		{"the index of a worker is filled before it is cancelled", RuleOnePerIndex, func(w *world) {
			w.run(r, 1)
			w.put(cancelling(in(r, model.Active), 1))
			next := reservation("next", 4, 1)
			next.Key, next.Workers = r.Key, model.WorkerSet{{First: r.Workers[0].First, Last: r.Workers[0].First, Number: 2}}
			w.run(next, 2)
		}},
		{"a round begins before the lease is released", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			h := header(l)
			h.Withdrawn, h.Stopping = true, true
			w.put(h, task(l, model.WorkerEvict))
			w.put(task(l, model.WorkerEvicted))
			w.put(in(r, model.Replaced), round("again", r))
		}},
		{"a round begins without a withdrawal", RuleOrigin, func(w *world) {
			l := w.run(r, 1)
			w.put(task(l, model.WorkerCompleted))
			w.put(deletion{l.Ref()})
			w.put(in(r, model.Replaced), round("again", r))
		}},
		{"a round gets a new place", RuleOrigin, func(w *world) {
			w.withdraw(w.run(r, 1))
			again := round("again", r)
			again.Place = 7
			w.put(in(r, model.Replaced), again)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.write(w)
			wantRules(t, w.audit(), tt.rule)
		})
	}
}
