package queue

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// limited returns tenants of which "a" has limits.
func limited(limits model.TenantLimits) *model.Tenants {
	return model.NewTenants([]model.Tenant{{Name: "team-a", Prefix: "a", Limits: limits}, {Name: "team-b", Prefix: "b"}})
}

// tenantWorld sends upserts with tenants.
type tenantWorld struct {
	*world
	*testing.T
	tenants *model.Tenants
}

func newTenantWorld(t *testing.T, config Config, limits model.TenantLimits) *tenantWorld {
	w := &tenantWorld{newWorld(config), t, limited(limits)}
	w.successor(10)
	return w
}

func (w *tenantWorld) ask(job, name string, count int32, change func(*model.Upsert)) *fault.Error {
	return asked(w.world, job, name, count, func(u *model.Upsert) {
		u.Tenants = w.tenants
		if change != nil {
			change(u)
		}
	})
}

func (w *tenantWorld) accepts(job, name string, count int32, change func(*model.Upsert)) {
	w.Helper()
	wantTaken(w.T, w.ask(job, name, count, change))
}

func (w *tenantWorld) refuses(job, name string, count int32, change func(*model.Upsert), limit, current, most string) {
	w.Helper()
	before := w.core.dump()
	f := w.ask(job, name, count, change)
	switch {
	case f == nil || f.Kind != fault.Exhausted || f.Reason != fault.ReasonTenantLimit:
		w.Errorf("got %v, want a refusal by the limit %s", f, limit)
		return
	case w.core.dump() != before:
		w.Error("a rejected request changed something")
	}
	for name, want := range map[string]string{"tenant": "team-a", "limit": limit, "current": current, "max": most} {
		if f.Meta[name] != want || !strings.Contains(f.Message, want) {
			w.Errorf("%s is %q, want %q in it and in the message %q", name, f.Meta[name], want, f.Message)
		}
	}
}

// work shows the task of a job's reservation, whose workers are in the given states.
func (w *tenantWorld) work(job, name string, states ...model.WorkerState) {
	key := model.Key{Job: job, Stage: "s", Name: name}
	v := representative(w.core.living(key).all())
	if v == nil {
		v = w.core.byKey[key][0]
	}
	chunk := &model.TaskChunk{UID: v.uid}
	i := 0
	for workerID := range v.r.Workers.All() {
		chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: workerID, State: states[min(i, len(states)-1)]})
		i++
	}
	header := &model.TaskHeader{UID: v.uid, Key: key, Complete: true}
	w.foreign(w.leaseOf(v.uid), model.Changed{Ref: header.Ref(), Record: header},
		model.Changed{Ref: chunk.Ref(), Record: chunk})
	w.now = w.now.Add(noteWithin)
	w.step(nil)
}

func (w *tenantWorld) uses(queued, workers int) {
	w.Helper()
	if use := w.core.UseOf(w.tenants)[0]; use.Queued != queued || use.Workers != workers {
		w.Errorf("the tenant uses %+v, want %d queued reservations and %d workers", use, queued, workers)
	}
}

func TestTenantLimitsQueuedReservations(t *testing.T) {
	w := newTenantWorld(t, Config{}, model.TenantLimits{QueuedReservations: 2})
	w.accepts("a", "1", 2, nil)
	w.accepts("a-x", "1", 1, func(u *model.Upsert) { u.RequestID = "r" })
	w.refuses("a.y", "1", 1, nil, "queuedReservations", "2", "2")
	w.accepts("a", "1", 2, nil) // unchanged
	w.accepts("a", "1", 9, nil) // replaces
	w.accepts("a-x", "1", 1, func(u *model.Upsert) { u.RequestID = "r" })
	w.accepts("ab", "1", 1, nil) // no tenant
	for _, name := range []string{"1", "2", "3"} {
		w.accepts("b", name, 1, nil) // another tenant, without limits
	}
	w.input(request.Cancel{Key: model.Key{Job: "a", Stage: "s", Name: "1"}})
	w.accepts("a.y", "1", 1, nil)
	w.uses(2, 2)
}

func TestTenantLimitsWorkersThatHaveNotEnded(t *testing.T) {
	w := newTenantWorld(t, Config{}, model.TenantLimits{Workers: 10})
	w.accepts("a", "1", 6, nil)
	w.refuses("a", "2", 5, nil, "workers", "6", "10")
	w.accepts("a", "2", 4, nil)
	w.refuses("a", "2", 5, nil, "workers", "10", "10") // one more than what it replaces
	w.accepts("a", "2", 3, nil)
	w.accepts("a", "2", 4, nil)
	w.work("a", "1", model.WorkerCompleted, model.WorkerFailed, model.WorkerRunning)
	w.uses(1, 8)
	w.accepts("a", "1", 0, func(u *model.Upsert) { // replaces the workers that ended
		u.Workers = []model.WorkerID{{Index: 0, Number: 9}, {Index: 1, Number: 9}}
	})
	w.uses(2, 10)
	// Cancelled workers run until the assigner has stopped them.
	w.input(request.Cancel{Key: model.Key{Job: "a", Stage: "s", Name: "1"}})
	w.uses(1, 8)
	w.refuses("a", "3", 3, nil, "workers", "8", "10")
	w.work("a", "1", model.WorkerEvicted)
	w.uses(1, 4)
	w.successor(20)
	w.uses(1, 4)
}

func TestTenantLimitsBatch(t *testing.T) {
	w := newTenantWorld(t, Config{}, model.TenantLimits{Batch: 4})
	listed := func(u *model.Upsert) {
		u.Count = 0
		for i := range int32(5) {
			u.Workers = append(u.Workers, model.WorkerID{Index: i, Number: 1})
		}
	}
	w.refuses("a", "1", 5, nil, "batch", "5", "4")
	w.refuses("a", "1", 0, listed, "batch", "5", "4")
	w.accepts("a", "1", 4, nil)
	w.accepts("a", "2", 4, nil)
	w.tenants = limited(model.TenantLimits{Batch: 2})
	w.accepts("a", "1", 4, nil)
	w.accepts("a", "1", 3, nil)
	w.refuses("a", "1", 4, nil, "batch", "4", "2")
	w.accepts("a", "1", 3, func(u *model.Upsert) { u.Spec.Task.Command = "other" })
}

func TestTenantLimitsStoredBytes(t *testing.T) {
	payload := func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 50<<10) }
	w := newTenantWorld(t, Config{}, model.TenantLimits{StoredBytes: 120 << 10})
	w.accepts("a", "1", 3, payload)
	w.accepts("a-2", "1", 3, payload)
	used := w.core.UseOf(w.tenants)[0].Bytes
	if used <= 100<<10 || used > 102<<10 {
		t.Errorf("the tenant uses %d bytes", used)
	}
	f := w.ask("a-3", "1", 3, payload)
	if f == nil || f.Meta["limit"] != "storedBytes" || f.Meta["max"] != "122880" {
		t.Errorf("got %v", f)
	}
	w.accepts("a-3", "1", 3, nil)
	w.accepts("b", "1", 3, payload)
	// Each of these calls leaves the ended version. The reserve lets the first pass.
	w.tenants = limited(model.TenantLimits{StoredBytes: 150 << 10})
	w.accepts("a", "1", 2, payload)
	if f := w.ask("a", "1", 1, payload); f == nil || f.Meta["limit"] != "storedBytes" {
		t.Errorf("got %v", f)
	}
	cancel := request.CancelWorkers{Job: "a", Stage: "s", Workers: []model.WorkerID{{Index: 0, Number: 1}}}
	reply := actionsOf[model.Reply](w.input(cancel))[0]
	if f := fault.Of(reply.Err); f == nil || f.Meta["limit"] != "storedBytes" {
		t.Errorf("got %v", f)
	}
	w.input(request.CancelJob{Job: "a"})
	w.now = w.now.Add(model.KeepTerminal)
	w.step(nil)
	w.accepts("a", "1", 2, payload)
}

func TestTenantLimitsPriority(t *testing.T) {
	class := func(class model.Class) func(*model.Upsert) {
		return func(u *model.Upsert) { u.Spec.Priority.Class = class }
	}
	order := func(order int64) func(*model.Upsert) {
		return func(u *model.Upsert) { u.Spec.Priority.Order = &order }
	}
	w := newTenantWorld(t, Config{}, model.TenantLimits{HighestPriority: model.ClassScale})
	w.accepts("a", "1", 2, nil)
	w.accepts("a", "2", 2, class(model.ClassNewJob))
	w.accepts("a", "3", 2, class(model.ClassScale))
	w.refuses("a", "4", 2, class(model.ClassReplace), "highestPriority", "REPLACE", "SCALE")
	w.refuses("a", "1", 2, class(model.ClassReplace), "highestPriority", "REPLACE", "SCALE") // would be REORDERED
	w.refuses("a", "3", 1, class(model.ClassReplace), "highestPriority", "REPLACE", "SCALE")
	w.refuses("a", "4", 2, order(7), "highestPriority", "REPLACE", "SCALE")
	w.accepts("b", "1", 2, class(model.ClassReplace))
	w.tenants = limited(model.TenantLimits{HighestPriority: model.ClassNewJob})
	w.accepts("a", "3", 2, class(model.ClassScale))
	w.accepts("a", "3", 1, class(model.ClassScale))
	w.refuses("a", "3", 2, class(model.ClassScale), "highestPriority", "SCALE", "NEW_JOB")
	w.accepts("a", "3", 1, class(model.ClassNewJob))
	w.refuses("a", "3", 1, class(model.ClassScale), "highestPriority", "SCALE", "NEW_JOB")

	w = newTenantWorld(t, Config{Scheduling: scheduler.Config{Order: scheduler.OrderByClass{}}},
		model.TenantLimits{HighestPriority: model.ClassScale})
	w.accepts("a", "1", 2, order(-5)) // has no effect
	w.refuses("a", "2", 2, class(model.ClassReplace), "highestPriority", "REPLACE", "SCALE")
}

func TestTenantLimitsSKUsAndPools(t *testing.T) {
	names := func(sku string, pools ...string) func(*model.Upsert) {
		return func(u *model.Upsert) { u.Spec.Constraints.SKU, u.Spec.Constraints.Pools = sku, pools }
	}
	w := newTenantWorld(t, Config{}, model.TenantLimits{SKUs: []string{"small", "large"}})
	w.refuses("a", "1", 2, nil, "skus", "none", "small, large")
	w.refuses("a", "1", 2, names("other", "p"), "skus", "other", "small, large")
	w.accepts("a", "1", 2, names("Large"))
	w.accepts("b", "1", 2, nil)
	w.tenants = limited(model.TenantLimits{SKUs: []string{"small"}})
	w.accepts("a", "1", 2, names("large"))
	w.accepts("a", "1", 1, names("large"))
	w.refuses("a", "1", 2, names("large"), "skus", "large", "small")
	w.tenants = limited(model.TenantLimits{Pools: []string{"red", "blue"}})
	w.refuses("a", "2", 2, names("small"), "pools", "none", "red, blue")
	w.refuses("a", "2", 2, names("small", "red", "green"), "pools", "red, green", "red, blue")
	w.accepts("a", "2", 2, names("", "RED", "blue"))
}

// A tenant may exceed its limits by requeues, and they are accepted work.
func TestTenantLimitsDoNotApplyToRequeues(t *testing.T) {
	w := newTenantWorld(t, Config{}, model.TenantLimits{QueuedReservations: 1, Workers: 2, StoredBytes: 2 << 10})
	w.accepts("a", "1", 2, nil)
	uid := w.core.byKey[model.Key{Job: "a", Stage: "s", Name: "1"}][0].uid
	header := &model.TaskHeader{UID: uid, Complete: true}
	chunk := &model.TaskChunk{UID: uid}
	for i := range int32(2) {
		chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: model.WorkerID{Index: i, Number: 1},
			State: model.WorkerFailed, Requeue: true})
	}
	w.foreign(model.Changed{Ref: header.Ref(), Record: header}, model.Changed{Ref: chunk.Ref(), Record: chunk})
	w.step(nil)
	w.uses(2, 2)
	w.refuses("a", "2", 1, nil, "queuedReservations", "2", "1")
	w.tenants = nil
	w.accepts("a", "2", 1, nil)
}

// After every step the usage of each tenant is the sum over the records of its jobs,
// whatever tenants an upsert brings. No request raises the usage of a tenant above a limit.
func TestTenantUsageIsTheSumOfTheRecords(t *testing.T) {
	limits := func(t *rapid.T) model.TenantLimits {
		return model.TenantLimits{
			QueuedReservations: rapid.IntRange(0, 2).Draw(t, "queued"), Workers: rapid.IntRange(0, 6).Draw(t, "workers"),
			StoredBytes: int64(rapid.SampledFrom([]int{0, 5000, 10_000}).Draw(t, "bytes")),
		}
	}
	const slack = 1 << 10 // for messages and remembered requests
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		w.successor(10)
		var tenants *model.Tenants
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0:
				if tenants = nil; rapid.Bool().Draw(t, "tenants") {
					tenants = model.NewTenants([]model.Tenant{{Name: "x", Prefix: "a", Limits: limits(t)},
						{Name: "y", Prefix: rapid.SampledFrom([]string{"b", "c"}).Draw(t, "prefix"), Limits: limits(t)}})
				}
			case 1:
				w.successor(w.revision)
			case 2, 3, 4, 5, 6:
				w.others(t)
			default:
				before := w.core.UseOf(tenants)
				in := drawRequest(t)
				if u, ok := in.(model.Upsert); ok {
					u.Tenants = tenants
					in = u
				}
				w.input(in)
				for i, use := range w.core.UseOf(tenants) {
					l, b := tenants.All()[i].Limits, before[i]
					if use.Queued > b.Queued && l.QueuedReservations > 0 && use.Queued > l.QueuedReservations ||
						use.Workers > b.Workers && l.Workers > 0 && use.Workers > l.Workers ||
						use.Bytes > b.Bytes+slack && l.StoredBytes > 0 && use.Bytes > l.StoredBytes+l.StoredBytes/cancelReserve+slack {
						t.Fatalf("%+v raised the usage from %+v to %+v, with the limits %+v", in, b, use, l)
					}
				}
			}
			w.now = w.now.Add(time.Second)
			w.step(nil)
			w.compareUsage(t)
		}
	})
}
