package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// clients simulates job services that request and cancel batches. It uses only a few
// names, so that calls collide.
type clients struct {
	w        *World
	requests int
	// acked has the keys of the acknowledged versions, by uid.
	acked map[string]model.Key
	// busy has the keys with a call in flight. There is only one call per key at a time,
	// so that the order of the calls of a key is known.
	busy map[model.Key]bool
	// cancelledKeys are the keys whose last acknowledged call was a cancel.
	cancelledKeys map[model.Key]bool
	// bound has when the versions were bound whose binds are acknowledged, by uid.
	bound map[string]time.Time
}

func newClients(w *World) *clients {
	return &clients{w: w, acked: map[string]model.Key{}, busy: map[model.Key]bool{}, cancelledKeys: map[model.Key]bool{},
		bound: map[string]time.Time{}}
}

func (c *clients) act() {
	rng := c.w.rng
	if c.w.volumes.enabled && rng.IntN(10) == 0 {
		c.changeVolumes()
		return
	}
	if c.w.holds.enabled && c.w.holds.rng.IntN(4) == 0 && c.bind() {
		return
	}
	if c.drain() {
		return
	}
	key := model.Key{Job: fmt.Sprintf("job-%d", rng.IntN(3)), Stage: fmt.Sprintf("stage-%d", rng.IntN(2)),
		Name: []string{"main", "extra"}[rng.IntN(2)]}
	if rng.IntN(4) == 0 || c.w.retention > 0 && rng.IntN(8) > 0 {
		key = model.Key{Job: "job", Stage: "stage", Name: model.MainName} // soon deleted, because its job has no other
	}
	cancels, most := rng.IntN(5) < 2, 6
	if c.w.retention > 0 && key.Job == "job" {
		// One small batch after another, always of the same workers.
		if c.cancelledKeys[key] && c.known(key) || !c.cancelledKeys[key] && rng.IntN(4) > 0 {
			return
		}
		cancels, most = !c.cancelledKeys[key], 2
	}
	if c.busy[key] {
		return
	}
	c.busy[key] = true
	always := func() bool { return true }
	switch rng.IntN(12) {
	case 0:
		c.cancelWorkers(key, always)
		return
	case 1:
		c.flush(key, always)
		return
	}
	if cancels {
		c.call("cancel "+key.String(), always, func(id string) any { return request.Cancel{Key: key, RequestID: id} },
			func(value any, err error) {
				c.busy[key] = false
				if err != nil {
					c.w.fail("cancel of %s: %v", key, err)
					return
				}
				c.w.logf("client: cancel of %s acknowledged: %d", key, value.(queue.Cancelled).Count)
				c.cancelledKeys[key] = true
				c.cancelled(key)
			})
		return
	}
	upsert := model.Upsert{Key: key, Count: int32(1 + rng.IntN(most)), Spec: model.Spec{
		Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}},
		MaxAttempts: int32(1 + rng.IntN(3)),
		Task:        model.Task{Command: fmt.Sprint("run-", rng.IntN(2))},
	}}
	if rng.IntN(3) == 0 {
		upsert.Spec.Constraints.Attributes = map[string]string{"zone": "a"}
	}
	if rng.IntN(4) == 0 {
		order := int64(rng.IntN(3))
		upsert.Spec.Priority.Order = &order
	}
	if rng.IntN(5) == 0 {
		upsert.Spec.Task.Readiness = model.ReadyReported
		upsert.Spec.Task.StartTimeout = time.Duration(1+rng.IntN(20)) * time.Second
	}
	if c.w.lives {
		c.w.drawLife(&upsert.Spec)
	}
	if c.w.volumes.enabled {
		c.w.drawVolume(&upsert.Spec)
	}
	upsert.Spec.OnFailure = model.OnFailure(rng.IntN(3))
	upsert.Spec.Start = model.Start(rng.IntN(3))
	upsert.Spec.Batch = model.Batch(rng.IntN(3))
	if upsert.Spec.OnWorkerFailure == model.OnFailedRestart {
		upsert.Spec.Batch = min(upsert.Spec.Batch, model.BatchStrict)
	}
	if c.w.lives && upsert.Count > 0 && rng.IntN(6) == 0 {
		upsert.Spec.CompletesWith = []int32{int32(rng.IntN(int(upsert.Count)))}
	}
	c.w.holds.draw(&upsert.Spec)
	c.w.cells.draw(&upsert.Spec)
	if rng.IntN(4) == 0 {
		upsert.Spec.TargetSize = upsert.Count + int32(rng.IntN(3))
		upsert.Spec.Shrink = model.Shrink(rng.IntN(2))
	}
	c.w.seams.draw(&upsert.Spec)
	if again, ok := c.w.seams.again(key); ok {
		upsert = again
	}
	request := func(id string) any {
		upsert.RequestID = id
		return upsert
	}
	c.call("upsert "+key.String(), always, request, func(value any, err error) {
		c.busy[key] = false
		if err != nil {
			if f := fault.Of(err); f.Kind == fault.Invalid || f.Kind == fault.Conflict || f.Kind == fault.Precondition {
				return
			}
			c.w.fail("upsert of %s: %v", key, err)
			return
		}
		u := value.(queue.Upserted)
		c.w.logf("client: upsert of %s acknowledged: %s %s", key, u.Change, u.Reservation.UID)
		c.checkStored(upsert, u)
		c.checkShrunk(upsert, u.Change)
		c.acked[u.Reservation.UID] = key
		c.w.seams.last[key] = upsert
		c.cancelledKeys[key] = false
	})
}

// checkStored checks that the answer to an upsert shows the request, and that UNCHANGED is the
// answer only if nothing differed. The version may have ended since, which changes no request. A late copy
// of an earlier request may have changed it.
func (c *clients) checkStored(u model.Upsert, answer queue.Upserted) {
	u = request.WithDefaults(u)
	shown := *answer.Reservation
	differs := request.Differences(&u.Spec, &shown.Spec) &^ request.FieldTargetSize
	marks := shown.Requests
	later := len(marks) > 0 && marks[len(marks)-1].ID != u.RequestID &&
		slices.ContainsFunc(marks, func(m model.RequestMark) bool { return m.ID == u.RequestID })
	if differs != 0 && shown.BoundAt.IsZero() && !later {
		c.w.fail("the answer %s to the upsert of %s shows another request: %v", answer.Change, u.Key, differs.Names())
	}
	if answer.Change != model.Updated {
		return
	}
	named := map[string]bool{}
	for _, f := range answer.FieldResults {
		named[f.Field] = true
		if (f.Applies == model.AppliesNow) != (f.Message == "") {
			c.w.fail("the answer to the upsert of %s says without a reason that %s applies %s", u.Key, f.Field, f.Applies)
		}
	}
	if len(named) == 0 {
		c.w.fail("the answer to the upsert of %s is %s and names no field", u.Key, answer.Change)
	}
}

// checkShrunk checks that after an upsert with STOP_HIGHEST the stage has no more workers than the target
// size. A stage with several names may have got others since, and a gang that restarts also starts workers
// again that had completed.
func (c *clients) checkShrunk(u model.Upsert, change model.Change) {
	s := &u.Spec
	if s.Shrink != model.ShrinkHighest || u.Key.Job != "job" || change == model.Unchanged ||
		s.OnWorkerFailure == model.OnFailedRestart {
		return
	}
	ended := map[string]model.WorkerSet{}
	for _, record := range c.w.records(model.KindTaskChunk) {
		chunk := record.(*model.TaskChunk)
		for _, tw := range chunk.Workers {
			if tw.State.Terminal() && !tw.Requeue {
				ended[chunk.UID] = ended[chunk.UID].Raise(model.WorkerSetOf([]model.WorkerID{tw.ID}))
			}
		}
	}
	left := 0
	for _, record := range c.w.records(model.KindReservation) {
		if r := record.(*model.Reservation); r.Key == u.Key && (r.State == model.Queued || r.State == model.Active) {
			left += r.Workers.Minus(r.Unwanted).Minus(r.Requeued).Minus(r.Missing).Minus(ended[r.UID]).Len()
		}
	}
	if left > int(s.TargetSize) {
		c.w.fail("%s has %d workers after an upsert with STOP_HIGHEST, the target size is %d", u.Key, left, s.TargetSize)
	}
}

// call sends a request with a request ID until the outcome is known. The registry
// remembers the ID for the time w.memory after the reservation has ended. So no copy of
// the call may be executed later than w.memory after the call began. If the outcome is
// still unknown then, the client sends the request with another ID. The client does not
// know whether the first request took effect: a flush may have ended the reservation.
func (c *clients) call(what string, lives func() bool, request func(id string) any, done func(any, error)) {
	c.requests++
	id := fmt.Sprintf("request-%d", c.requests)
	if c.w.retention == 0 {
		c.w.call(what, model.ServiceRegistry, lives, request(id), done)
		return
	}
	answered, expired := false, false
	c.w.callUntil(what, model.ServiceRegistry, c.w.now.Add(c.w.retention), func() bool { return !expired && lives() },
		request(id), func(value any, err error) {
			answered = true
			done(value, err)
		})
	c.w.later(c.w.retention, func() {
		if expired = true; !answered && lives() {
			c.call(what, lives, request, done)
		}
	})
}

// known reports whether the registry remembers the worker numbers of a stage.
func (c *clients) known(key model.Key) bool {
	stage := model.Ref{Kind: model.KindStage, Key: model.Key{Job: key.Job, Stage: key.Stage}}
	_, known, _ := c.w.store.Get(context.Background(), c.w.space.Key(stage))
	return known
}

// cancelWorkers cancels a few workers of a stage, whether or not they exist.
func (c *clients) cancelWorkers(key model.Key, lives func() bool) {
	var workers []model.WorkerID
	for range 1 + c.w.rng.IntN(3) {
		workers = append(workers, model.WorkerID{Index: int32(c.w.rng.IntN(6)), Number: int32(1 + c.w.rng.IntN(4))})
	}
	cancel := func(id string) any {
		return request.CancelWorkers{Job: key.Job, Stage: key.Stage, Workers: model.WorkerSetOf(workers).List(),
			RequestID: id}
	}
	c.call("cancel of workers of "+key.String(), lives, cancel, func(_ any, err error) {
		c.busy[key] = false
		if err != nil {
			c.w.fail("cancel of workers of %s: %v", key, err)
		}
	})
}

// flush cancels the queued reservations of a job.
func (c *clients) flush(key model.Key, lives func() bool) {
	c.call("flush of "+key.Job, lives, func(id string) any { return request.Flush{Job: key.Job, RequestID: id} },
		func(_ any, err error) {
			c.busy[key] = false
			if err != nil {
				c.w.fail("flush of %s: %v", key.Job, err)
			}
		})
}

// cancelled checks that after an acknowledged cancel no worker of the key can be started
// any more, and that the assigner is stopping the running workers.
func (c *clients) cancelled(key model.Key) {
	for _, record := range c.w.records(model.KindTaskHeader) {
		h := record.(*model.TaskHeader)
		if h.Key == key && !h.Stopping && !h.Ended {
			c.w.fail("%s was cancelled, but its task %s is not stopping", key, h.UID)
		}
	}
	for _, record := range c.w.records(model.KindReservation) {
		if r := record.(*model.Reservation); r.Key == key && (r.State == model.Queued || r.State == model.Active) {
			c.w.fail("%s was cancelled, but version %s is %s", key, r.UID, r.State)
		}
	}
}

// checkRest checks that every acknowledged version was stored, that no version was
// deleted before it had ended, and that acknowledged cancels have ended their keys.
func (c *clients) checkRest() {
	ended := map[string]bool{}
	present := map[string]model.State{}
	for _, r := range c.w.store.History() {
		for _, change := range r.Changes {
			ref, ok := c.w.space.Parse(change.Key)
			if !ok || ref.Kind != model.KindReservation {
				continue
			}
			if change.Deleted {
				if !present[ref.ID].Terminal() {
					c.w.fail("version %s of %s was deleted while %s", ref.ID, ref.Key, present[ref.ID])
				}
				ended[ref.ID] = true
				continue
			}
			present[ref.ID] = c.w.state(ref, change.Value)
		}
	}
	for uid, key := range c.acked {
		if _, ok := present[uid]; !ok {
			c.w.fail("version %s of %s was acknowledged, but never stored", uid, key)
		}
	}
	for _, record := range c.w.records(model.KindReservation) {
		if r := record.(*model.Reservation); c.cancelledKeys[r.Key] && !r.State.Terminal() {
			c.w.fail("at rest: the last acknowledged call of %s is a cancel, but version %s is %s", r.Key, r.UID, r.State)
		}
	}
}

// isHead reports whether a queued version is the head of its group according to the
// registry's leader.
func (c *clients) isHead(r *model.Reservation) bool {
	for _, n := range c.w.replicas[model.ServiceRegistry] {
		registry, ok := n.(*node[*queue.Core])
		if !ok || !registry.leads() {
			continue
		}
		if view, ok := registry.driver.Core.GetUID(r.UID); ok && view.Position == 1 {
			return true
		}
	}
	return false
}
