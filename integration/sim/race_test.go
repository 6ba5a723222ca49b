package sim

import (
	"fmt"
	"hash/maphash"
	"io"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// race has a world, a first request, and the calls that are made while that request is
// processed.
type race struct {
	replicas int
	hosts    []Host
	workers  int32
}

// raceKey is the reservation key of all calls.
var raceKey = model.Key{Job: "job", Stage: "stage", Name: model.MainName}

// raceRun is a race in progress.
type raceRun struct {
	*interleaving
	race     race
	requests []*sentRequest
	// cancelledVersions has the versions whose cancel was acknowledged, and cancelledWorkers
	// the single workers. None of them may be started afterwards.
	cancelledVersions map[string]bool
	cancelledWorkers  map[lateWorker]bool
	// deposed has the services whose leader may not know that it was deposed.
	deposed map[string]bool
}

// lateWorker is a worker that was cancelled separately.
type lateWorker struct {
	uid      string
	workerID model.WorkerID
}

// sentRequest is a request of the client. issued and acked are steps of the interleaving.
type sentRequest struct {
	name          string
	issued, acked int
	// revision is the revision of the store when the request was acknowledged.
	revision int64
}

const pending = -1

// queuesWorkers reports whether the request may queue workers.
func (c *sentRequest) queuesWorkers() bool {
	switch c.name {
	case "start", "resend", "replace", "lower":
		return true
	}
	return false
}

// result is the result of playing a schedule.
type result struct {
	schedule schedule
	err      error
	choices  []int
	// turns has the steps at which a call meets a new state of the registry. It starts at the
	// acknowledgement of the first request.
	turns   []int
	history uint64
}

var hashSeed = maphash.MakeSeed()

// perform plays a schedule and checks the result.
func (d race) perform(s schedule, out io.Writer) result {
	c := &raceRun{
		interleaving: newInterleaving(d.replicas, d.hosts, out), race: d,
		cancelledVersions: map[string]bool{}, cancelledWorkers: map[lateWorker]bool{}, deposed: map[string]bool{},
	}
	c.w.submitting = c.submitting
	full := schedule{moves: append([]move{{"start", 0}}, s.moves...), deviations: s.deviations}
	c.play(full, c.call)
	if c.w.failure == nil {
		c.check()
	}
	r := result{schedule: s, err: c.w.failure, choices: c.choices, history: c.w.history(hashSeed)}
	if first := c.requests[0].acked; first != pending {
		r.turns = append(r.turns, first)
		for _, step := range c.turns {
			if step > first {
				r.turns = append(r.turns, step)
			}
		}
	}
	return r
}

// call makes the call with the given name, or deposes a leader.
func (c *raceRun) call(name string) {
	for _, service := range services {
		if name == "depose-"+service {
			c.deposed[service] = true
			c.w.evict(service)
			return
		}
	}
	made := &sentRequest{name: name, issued: c.step, acked: pending}
	c.requests = append(c.requests, made)
	id := fmt.Sprintf("%s-%d", name, len(c.requests))
	c.w.call(name, model.ServiceRegistry, func() bool { return true }, c.body(name, id), func(value any, err error) {
		made.acked, made.revision = c.step, c.w.store.Revision()
		c.w.logf("client: %s is acknowledged: %v", name, err)
		if err != nil {
			if f := fault.Of(err); !made.queuesWorkers() || f.Kind != fault.Invalid && f.Kind != fault.Conflict &&
				f.Kind != fault.Precondition {
				c.w.fail("%s: %v", name, err)
			}
			return
		}
		if u, ok := value.(queue.Upserted); ok {
			c.w.clients.acked[u.Reservation.UID] = raceKey
			return
		}
		c.acknowledged(made)
	})
}

// body returns the body of the call with the given name.
func (c *raceRun) body(name, id string) any {
	upsert := model.Upsert{Key: raceKey, Count: c.race.workers, RequestID: id, Spec: model.Spec{
		TargetSize: c.race.workers, MaxAttempts: 2,
		Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}},
		Task:        model.Task{Command: "sh"},
	}}
	switch name {
	case "cancel":
		return request.Cancel{Key: raceKey, RequestID: id}
	case "cancel-job":
		return request.CancelJob{Job: raceKey.Job, RequestID: id}
	case "cancel-worker":
		return request.CancelWorkers{Job: raceKey.Job, Stage: raceKey.Stage, RequestID: id,
			Workers: []model.WorkerID{{Index: 1, Number: 1}}}
	case "cancel-requeue":
		return request.CancelWorkers{Job: raceKey.Job, Stage: raceKey.Stage, RequestID: id,
			Workers: []model.WorkerID{{Index: 1, Number: 2}}}
	case "lower":
		upsert.Count, upsert.Spec.TargetSize = 1, 1
	case "replace":
		upsert.Spec.Task.Args = []string{"-c", "true"}
	case "start", "resend":
	default:
		c.w.fail("unknown call %q", name)
	}
	return upsert
}

// alone reports whether every other request that may queue workers, and was sent before the
// given step, was answered before this request was sent.
func (c *raceRun) alone(made *sentRequest, step int) bool {
	return !slices.ContainsFunc(c.requests, func(o *sentRequest) bool {
		return o != made && o.queuesWorkers() && (o.acked == pending || o.acked > made.issued) && o.issued <= step
	})
}

// acknowledged records which workers must no longer be started, because their cancel was
// acknowledged.
func (c *raceRun) acknowledged(made *sentRequest) {
	alone := c.alone(made, c.step)
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		switch made.name {
		case "cancel", "cancel-job":
			if r.State == model.Cancelling || r.State.Terminal() {
				c.cancelledVersions[r.UID] = true
			} else if alone {
				c.w.fail("%s is acknowledged, but version %s is %s", made.name, r.UID, r.State)
			}
		case "cancel-worker":
			for workerID := range r.Workers.All() {
				if workerID.Index == 1 && alone {
					c.cancelledWorkers[lateWorker{r.UID, workerID}] = true
				}
			}
		}
	}
	if alone && (made.name == "cancel" || made.name == "cancel-job") {
		c.w.clients.cancelled(raceKey)
	}
}

// submitting checks every start request when it is sent. In production, the deadline of a
// deposed leader also stops its requests. In this test, only the agents stop them.
func (c *raceRun) submitting(s dispatch.Submit) {
	if c.deposed[model.ServiceAssigner] {
		return
	}
	if c.cancelledVersions[s.UID] || c.cancelledWorkers[lateWorker{s.UID, s.Worker.ID}] {
		c.w.fail("%s of %s is started after its cancel was acknowledged", s.Worker, s.UID)
	}
}

// check checks a world in which no event is left.
func (c *raceRun) check() {
	for _, made := range c.requests {
		if made.acked == pending {
			c.w.fail("at rest: %s, sent at step %d, has no answer", made.name, made.issued)
		}
	}
	c.w.checkRest()
	for _, made := range c.requests {
		if !c.alone(made, c.step) {
			continue
		}
		switch made.name {
		case "cancel", "cancel-job":
			c.checkFree(made)
		case "cancel-worker":
			c.checkGone(made)
		case "lower":
			c.checkLowered(made)
		}
	}
}

// checkFree checks a race in which everything was cancelled: no worker is left, and all
// capacity is free.
func (c *raceRun) checkFree(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		if r := record.(*model.Reservation); !r.State.Terminal() {
			c.w.fail("at rest: %s was acknowledged, but version %s (parent %q) is %s", made.name, r.UID, r.Parent, r.State)
		}
	}
	for _, kind := range []model.Kind{model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk} {
		for _, record := range c.w.records(kind) {
			c.w.fail("at rest: %s was acknowledged, but %+v is left", made.name, record.Ref())
		}
	}
	for _, a := range c.w.agents {
		for _, k := range a.names {
			if worker := a.workers[k]; !worker.state.Terminal() {
				c.w.fail("at rest: %s was acknowledged, but %s is %s on %s", made.name, k.worker, worker.state, a.id)
			}
		}
	}
}

// checkGone checks a race in which a worker was cancelled: neither the worker nor a requeue
// of it is left.
func (c *raceRun) checkGone(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if number, ok := r.Workers.Number(1); ok && r.State == model.Queued {
			c.w.fail("at rest: %s was acknowledged, but 1.%d is queued in version %s", made.name, number, r.UID)
		}
	}
	for _, a := range c.w.agents {
		for _, k := range a.names {
			if k.worker.ID.Index == 1 && !a.workers[k].state.Terminal() {
				c.w.fail("at rest: %s was acknowledged, but %s runs on %s", made.name, k.worker, a.id)
			}
		}
	}
}

// checkLowered checks that no worker at or above a lowered target is queued, and that no
// such worker was requeued afterwards.
func (c *raceRun) checkLowered(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if _, ok := r.Workers.Number(1); ok && r.Origin == model.OriginRequeue &&
			(r.State == model.Queued || r.Epoch > made.revision) {
			c.w.fail("at rest: %s was acknowledged at revision %d, but the requeue %s of epoch %d is %s", made.name,
				made.revision, r.UID, r.Epoch, r.State)
		}
	}
}
