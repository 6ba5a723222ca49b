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

// drama is a world, what is asked for first, and the calls that are made while
// that is under way.
type drama struct {
	replicas int
	hosts    []Host
	workers  int32
}

// dramaKey is what all calls are about.
var dramaKey = model.Key{Job: "job", Stage: "stage", Name: model.MainName}

// cast is a drama while it is played.
type cast struct {
	*interleaving
	drama    drama
	requests []*sentRequest
	// over are the versions, and gone the workers of one, that were acknowledged
	// as cancelled: none is sent to be started any more.
	over map[string]bool
	gone map[lateWorker]bool
	// deposed are the services whose leader may not know that it leads no more.
	deposed map[string]bool
}

// lateWorker is a worker of a version that was cancelled by itself.
type lateWorker struct {
	uid      string
	workerID model.WorkerID
}

// sentRequest is a request that the client sent; steps are those of the interleaving.
type sentRequest struct {
	name          string
	issued, acked int
	// revision is that of the store when it was acknowledged.
	revision int64
}

const notYet = -1

// asks says whether the call may queue workers.
func (c *sentRequest) asks() bool {
	switch c.name {
	case "start", "resend", "replace", "lower":
		return true
	}
	return false
}

// result is what came of a schedule.
type result struct {
	schedule schedule
	err      error
	choices  []int
	// turns are the steps at which a call meets the registry in another state,
	// from the acknowledgement of the first request on.
	turns   []int
	history uint64
}

var hashSeed = maphash.MakeSeed()

// perform plays one schedule and looks at what is left.
func (d drama) perform(s schedule, out io.Writer) result {
	c := &cast{
		interleaving: newInterleaving(d.replicas, d.hosts, out), drama: d,
		over: map[string]bool{}, gone: map[lateWorker]bool{}, deposed: map[string]bool{},
	}
	c.w.submitting = c.submitting
	full := schedule{moves: append([]move{{"start", 0}}, s.moves...), deviations: s.deviations}
	c.play(full, c.call)
	if c.w.failure == nil {
		c.check()
	}
	r := result{schedule: s, err: c.w.failure, choices: c.choices, history: c.w.history(hashSeed)}
	if first := c.requests[0].acked; first != notYet {
		r.turns = append(r.turns, first)
		for _, step := range c.turns {
			if step > first {
				r.turns = append(r.turns, step)
			}
		}
	}
	return r
}

// call makes the call of a name, or deposes a leader.
func (c *cast) call(name string) {
	for _, service := range services {
		if name == "depose-"+service {
			c.deposed[service] = true
			c.w.evict(service)
			return
		}
	}
	made := &sentRequest{name: name, issued: c.step, acked: notYet}
	c.requests = append(c.requests, made)
	id := fmt.Sprintf("%s-%d", name, len(c.requests))
	c.w.call(name, model.ServiceRegistry, func() bool { return true }, c.body(name, id), func(value any, err error) {
		made.acked, made.revision = c.step, c.w.store.Revision()
		c.w.logf("client: %s is acknowledged: %v", name, err)
		if err != nil {
			if f := fault.Of(err); !made.asks() || f.Kind != fault.Invalid && f.Kind != fault.Conflict && f.Kind != fault.Precondition {
				c.w.fail("%s: %v", name, err)
			}
			return
		}
		if u, ok := value.(queue.Upserted); ok {
			c.w.clients.acked[u.Reservation.UID] = dramaKey
			return
		}
		c.acknowledged(made)
	})
}

// body is what a call asks.
func (c *cast) body(name, id string) any {
	upsert := model.Upsert{Key: dramaKey, Count: c.drama.workers, RequestID: id, Spec: model.Spec{
		TargetSize: c.drama.workers, MaxAttempts: 2,
		Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}},
		Task:        model.Task{Command: "sh"},
	}}
	switch name {
	case "cancel":
		return request.Cancel{Key: dramaKey, RequestID: id}
	case "cancel-job":
		return request.CancelJob{Job: dramaKey.Job, RequestID: id}
	case "cancel-worker":
		return request.CancelWorkers{Job: dramaKey.Job, Stage: dramaKey.Stage, RequestID: id, Workers: []model.WorkerID{{Index: 1, Number: 1}}}
	case "cancel-requeue":
		return request.CancelWorkers{Job: dramaKey.Job, Stage: dramaKey.Stage, RequestID: id, Workers: []model.WorkerID{{Index: 1, Number: 2}}}
	case "lower":
		upsert.Count, upsert.Spec.TargetSize = 1, 1
	case "replace":
		upsert.Spec.Task.Args = []string{"-c", "true"}
	case "start", "resend":
	default:
		c.w.fail("there is no call %q", name)
	}
	return upsert
}

// alone says whether every request that may queue workers, of those made up to
// a step, was answered before this one was made.
func (c *cast) alone(made *sentRequest, step int) bool {
	return !slices.ContainsFunc(c.requests, func(o *sentRequest) bool {
		return o != made && o.asks() && (o.acked == notYet || o.acked > made.issued) && o.issued <= step
	})
}

// acknowledged holds Berth to what it has said: nothing of what was cancelled is
// sent to be started from now on.
func (c *cast) acknowledged(made *sentRequest) {
	alone := c.alone(made, c.step)
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		switch made.name {
		case "cancel", "cancel-job":
			if r.State == model.Cancelling || r.State.Terminal() {
				c.over[r.UID] = true
			} else if alone {
				c.w.fail("%s is acknowledged, and version %s is %s", made.name, r.UID, r.State)
			}
		case "cancel-worker":
			for workerID := range r.Workers.All() {
				if workerID.Index == 1 && alone {
					c.gone[lateWorker{r.UID, workerID}] = true
				}
			}
		}
	}
	if alone && (made.name == "cancel" || made.name == "cancel-job") {
		c.w.clients.cancelled(dramaKey)
	}
}

// submitting sees every order to start a worker as it is sent. A leader that
// was deposed and does not know it is held back by its deadline in life, and
// here by the agents alone.
func (c *cast) submitting(s dispatch.Submit) {
	if c.deposed[model.ServiceAssigner] {
		return
	}
	if c.over[s.UID] || c.gone[lateWorker{s.UID, s.Worker.ID}] {
		c.w.fail("%s of %s is sent to be started after its cancel was acknowledged", s.Worker, s.UID)
	}
}

// check looks at a world at rest.
func (c *cast) check() {
	for _, made := range c.requests {
		if made.acked == notYet {
			c.w.fail("at rest: %s, made at step %d, is not answered", made.name, made.issued)
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

// checkFree: all was cancelled, so nothing is left and everything is free.
func (c *cast) checkFree(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		if r := record.(*model.Reservation); !r.State.Terminal() {
			c.w.fail("at rest: %s was acknowledged, and version %s (parent %q) is %s", made.name, r.UID, r.Parent, r.State)
		}
	}
	for _, kind := range []model.Kind{model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk} {
		for _, record := range c.w.records(kind) {
			c.w.fail("at rest: %s was acknowledged, and %+v is left", made.name, record.Ref())
		}
	}
	for _, a := range c.w.agents {
		for _, k := range a.names {
			if worker := a.workers[k]; !worker.state.Terminal() {
				c.w.fail("at rest: %s was acknowledged, and %s is %s on %s", made.name, k.worker, worker.state, a.id)
			}
		}
	}
}

// checkGone: a worker was cancelled, and with it those that were queued for it.
func (c *cast) checkGone(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if number, ok := r.Workers.Number(1); ok && r.State == model.Queued {
			c.w.fail("at rest: %s was acknowledged, and 1.%d waits in version %s", made.name, number, r.UID)
		}
	}
	for _, a := range c.w.agents {
		for _, k := range a.names {
			if k.worker.ID.Index == 1 && !a.workers[k].state.Terminal() {
				c.w.fail("at rest: %s was acknowledged, and %s runs on %s", made.name, k.worker, a.id)
			}
		}
	}
}

// checkLowered: with a lower target no worker at or above it waits, and none was
// queued again since.
func (c *cast) checkLowered(made *sentRequest) {
	for _, record := range c.w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if _, ok := r.Workers.Number(1); ok && r.Origin == model.OriginRequeue && (r.State == model.Queued || r.Epoch > made.revision) {
			c.w.fail("at rest: %s was acknowledged at revision %d, and the requeue %s of epoch %d is %s", made.name, made.revision, r.UID, r.Epoch, r.State)
		}
	}
}
