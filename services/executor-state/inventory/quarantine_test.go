package inventory

import (
	"slices"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// without replaces the core by an elected one that follows the store. The records that
// missed selects are quarantined.
func (r *rig) without(missed func(model.Ref) bool) {
	r.core, r.unseen, r.effects = New(r.core.cfg), nil, nil
	refs := make([]model.Ref, 0, len(r.keys))
	for ref := range r.keys {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b model.Ref) int { return int(r.keys[a].mod - r.keys[b].mod) })
	for _, ref := range refs {
		if missed(ref) {
			r.step(model.Quarantined{Ref: ref})
			continue
		}
		k := r.keys[ref]
		r.step(model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	r.step(model.Progress{Revision: r.rev})
	r.elect()
}

// If the record of a reservation cannot be read, its lease is not deleted, and its UID gets
// no other lease. Other reservations are granted.
func TestQuarantinedReservationKeepsItsLease(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.catchUp()
	waits := r.queue("w", 1, cpu(1000))
	missed := func(ref model.Ref) bool { return ref == refOf("u") || ref == refOf("w") }
	r.without(missed)
	if len(r.leased("u")) != 1 {
		t.Error("its lease is swept")
	}
	behind := r.queue("v", 1, cpu(1000))
	behind.Group = waits.Group
	outcomes := r.cycle(waits, behind)
	if outcomes[0].Result != model.NoFit || outcomes[0].Reason != fault.ReasonPoison ||
		outcomes[1].Result != model.Granted {
		t.Errorf("outcomes %+v", outcomes)
	}
	r.without(func(model.Ref) bool { return false })
	if r.drop(refOf("u")); len(r.leased("u")) != 1 {
		t.Error("the lease was deleted")
	}
	r.catchUp()
	if r.settle(); len(r.leased("u")) != 0 {
		t.Error("an unwanted lease was kept as well")
	}
}

// If a part of a task cannot be read, the core frees the capacity of none of its workers.
func TestQuarantinedTaskFreesNothing(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 2, cpu(1000))))
	r.dispatch("u")
	ended := *r.keys[model.Ref{Kind: model.KindTaskChunk, ID: "u"}].record.(*model.TaskChunk)
	ended.Workers = slices.Clone(ended.Workers)
	for i := range ended.Workers {
		ended.Workers[i].State = model.WorkerCompleted
	}
	r.write(&ended)
	r.drop(refOf("u"))
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindTaskHeader })
	if len(r.leased("u")) != 2 {
		t.Error("capacity is freed")
	}
	r.without(func(model.Ref) bool { return false })
	if len(r.leased("u")) != 0 {
		t.Error("the capacity was not freed after all records are known")
	}
}

// If the record of an executor cannot be read, the executor is isolated: its leases stay,
// nothing is granted on it, and its ID cannot register. Other executors are not affected.
func TestABadExecutorRecordIsolatesThatExecutor(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("good", 1000, 1))
	r.ready(small("bad", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 3, cpu(1000))))
	r.dispatch("u")
	bad := r.keys[model.Ref{Kind: model.KindExecutor, ID: "bad"}].record.(*model.Executor)
	missed := func(ref model.Ref) bool { return ref.Kind == model.KindExecutor && ref.ID == "bad" }
	r.without(missed)
	held := 0
	for _, p := range r.leased("u") {
		if p.Ordinal == bad.Ordinal {
			held++
		}
	}
	if held < 2 || r.core.allocations[bad.Ordinal].Workers != held {
		t.Errorf("%d workers are leased on it, %d counted", held, r.core.allocations[bad.Ordinal].Workers)
	}
	g := small("bad", 4000, 4)
	g.Address, g.Nonce = "bad:1", "another"
	if _, err := r.do(g); fault.Of(err).Reason != fault.ReasonPoison {
		t.Errorf("registration: %v", err)
	}
	r.ready(small("more", 2000, 2))
	if e := r.keys[model.Ref{Kind: model.KindExecutor, ID: "more"}].record.(*model.Executor); e.Ordinal <= bad.Ordinal+1 {
		t.Errorf("a new executor has ordinal %d, the one that cannot be read %d", e.Ordinal, bad.Ordinal)
	}
	outcome := r.cycle(r.queue("v", 2, cpu(1000)))[0]
	if outcome.Result != model.Granted {
		t.Errorf("others are not served: %+v", outcome)
	}
	for _, p := range r.leased("v") {
		if p.Ordinal == bad.Ordinal {
			t.Error("the executor got new work")
		}
	}
	r.pause(time.Hour)
	if r.settle(); len(r.leased("u")) != 3 {
		t.Errorf("its capacity was freed: %v", r.leased("u"))
	}
	r.without(func(model.Ref) bool { return false })
	if view, _ := r.core.Executor("bad"); view.Workers != held {
		t.Errorf("put right, %d workers are counted, want %d", view.Workers, held)
	}
}

// Even if no readable record names the executor's ordinal, no other executor gets that
// ordinal.
func TestTheOrdinalOfABadExecutorRecordIsNotReused(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("good", 1000, 1))
	r.ready(small("bad", 1000, 1))
	bad := r.keys[model.Ref{Kind: model.KindExecutor, ID: "bad"}].record.(*model.Executor)
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindExecutor && ref.ID == "bad" })
	r.ready(small("more", 1000, 1))
	if e := r.keys[model.Ref{Kind: model.KindExecutor, ID: "more"}].record.(*model.Executor); e.Ordinal == bad.Ordinal {
		t.Errorf("both have ordinal %d", e.Ordinal)
	}
}

// If a lease cannot be read, nothing is granted on the executors that its task names. The
// UID of the lease gets no other lease.
func TestABadLeaseChunkIsolatesItsExecutors(t *testing.T) {
	for _, early := range []bool{true, false} {
		r := lead(DefaultConfig())
		r.ready(small("a", 4000, 4))
		r.ready(small("b", 4000, 4))
		entry := r.queue("u", 1, cpu(1000))
		expectGranted(t, r.cycle(entry))
		on := r.leased("u")[0].Ordinal
		if early {
			r.dispatch("u")
		}
		r.without(func(ref model.Ref) bool { return ref.Kind == model.KindLeaseChunk })
		if !early {
			if o := r.cycle(entry)[0]; o.Result != model.NoFit || o.Reason != fault.ReasonPoison {
				t.Errorf("the reservation was leased again: %+v", o)
			}
			task := &model.TaskChunk{UID: "u", Workers: []model.TaskWorker{{ID: model.WorkerID{Number: 1}, Ordinal: on,
				State: model.WorkerRunning}}}
			r.apply(task)
		}
		if fitting := r.core.Explain("", cpu(1000), 8).Fitting; fitting != 4 {
			t.Errorf("%d fit, want the 4 of the other executor", fitting)
		}
		checks := r.core.Explain("", cpu(1000), 8).Checks
		if len(checks) != 2 || checks[0].Name != "full.cpu" || checks[1].Name != "quarantined" {
			t.Errorf("explained by %+v", checks)
		}
		if o := r.cycle(r.queue("v", 4, cpu(1000)))[0]; o.Result != model.Granted {
			t.Errorf("others are not served: %+v", o)
		}
		r.without(func(model.Ref) bool { return false })
		if fitting := r.core.Explain("", cpu(1000), 8).Fitting; fitting != 3 {
			t.Errorf("put right, %d fit, want 3", fitting)
		}
	}
}

// If the presence of an executor cannot be read, the executor gets no work and does not
// become LOST. This ends when its agent announces the executor again.
func TestABadPresenceIsolatesItsExecutor(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.dispatch("u")
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindLive })
	r.pause(time.Hour)
	if view, _ := r.core.Executor("h"); view.Workers != 1 || view.State != model.ExecutorRegistered {
		t.Errorf("%+v", view)
	}
	if fitting := r.core.Explain("", cpu(1), 1).Fitting; fitting != 0 {
		t.Error("the executor got new work")
	}
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindLive })
	e := r.keys[model.Ref{Kind: model.KindExecutor, ID: "h"}].record.(*model.Executor)
	must[Announced](t, r, Announce{ID: "h", Incarnation: e.Incarnation, EtcdLease: 7, Workers: 1})
	if view, _ := r.core.Executor("h"); view.State != model.ExecutorReady {
		t.Errorf("state after the announcement: %s", view.State)
	}
}

// If the record of a pool cannot be read, the pool has no executors, not even those that
// name the pool.
func TestABadPoolHasNoExecutors(t *testing.T) {
	r := lead(DefaultConfig())
	g := small("h", 1000, 1)
	g.Attributes = map[string]string{"pool": "Gold"}
	r.ready(g)
	must[*model.Pool](t, r, policy.PutPool{Pool: model.Pool{Name: "gold", Attributes: map[string]string{"zone": "a"}}})
	r.catchUp()
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindPool })
	k := cpu(1)
	k.Pools = []string{"gold"}
	if fitting := r.core.Explain("", k, 1).Fitting; fitting != 0 {
		t.Error("the pool has an executor")
	}
	if fitting := r.core.Explain("", cpu(1), 1).Fitting; fitting != 1 {
		t.Error("the executor is not served")
	}
}

// No unreadable record stops the service.
func TestTheInventoryCanMissAnyRecord(t *testing.T) {
	for _, kind := range []model.Kind{
		model.KindReservation, model.KindTaskHeader, model.KindTaskChunk, model.KindSKU, model.KindLeaseChunk,
		model.KindExecutor, model.KindLive, model.KindDisable, model.KindPool, model.KindForgotten,
	} {
		c := New(DefaultConfig())
		ref := model.Ref{Kind: kind, ID: "x"}
		if !c.CanMiss(ref) {
			t.Errorf("a bad record of kind %d stops the core", kind)
		}
		c.Step(start, model.Quarantined{Ref: ref})
	}
}

// If a decision about a lease panics, Subject returns the lease.
func TestSubjectOfARelease(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.dispatch("u")
	defer func() {
		if recover() == nil {
			t.Fatal("the test is about a panic")
		}
		if want := leaseRef("u"); r.core.Subject() != want {
			t.Errorf("to blame is %+v, want %+v", r.core.Subject(), want)
		}
	}()
	// A lease never has an empty chunk, so this lease is corrupt.
	ref := leaseRef("u")
	r.rev++
	r.core.Step(r.now, model.Changed{Ref: ref, Record: &model.LeaseChunk{UID: "u"}, Create: r.keys[ref].create,
		Mod: r.rev})
	r.end("u", model.WorkerCompleted, 0)
	r.catchUp()
}

// When an unreadable record is rewritten, its quarantine ends. The executors that the
// quarantine protected may become LOST again.
func TestARewrittenPoolEndsItsQuarantine(t *testing.T) {
	r := lead(DefaultConfig())
	g := small("h", 1000, 1)
	g.Attributes = map[string]string{"pool": "Gold"}
	r.ready(g)
	must[*model.Pool](t, r, policy.PutPool{Pool: model.Pool{Name: "gold", Attributes: map[string]string{"zone": "a"}}})
	r.catchUp()
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindPool })
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h"})
	r.pause(time.Hour)
	if view, _ := r.core.Executor("h"); view.State != model.ExecutorUnreachable {
		t.Fatalf("state with an unreadable pool: %s", view.State)
	}
	must[*model.Pool](t, r, policy.PutPool{Pool: model.Pool{Name: "gold", Attributes: map[string]string{"zone": "b"}}})
	r.pause(time.Hour)
	if view, _ := r.core.Executor("h"); view.State != model.ExecutorLost {
		t.Errorf("state after the pool was rewritten: %s", view.State)
	}
}

// A rewritten presence ends the quarantine only when it is durable. If the rewrite is
// undone, the executor does not become LOST.
func TestAnUndonePresenceEndsNoQuarantine(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h", 4000, 4))
	bad := model.Ref{Kind: model.KindLive, ID: "h"}
	r.without(func(ref model.Ref) bool { return ref == bad })
	e := r.keys[model.Ref{Kind: model.KindExecutor, ID: "h"}].record.(*model.Executor)
	r.ask(Announce{ID: "h", Incarnation: e.Incarnation, EtcdLease: 7})
	r.inputs = nil
	r.abandon()
	for range 100 { // until the compare on the presence fails
		r.now = r.now.Add(time.Minute)
		r.step(nil)
		for _, effect := range r.effects {
			t.Fatalf("the core decided an effect that always fails: %+v", effect)
		}
	}
}

// If the presence of an unknown executor cannot be read, the presence has no effect, and
// the executor can register.
func TestBadPresenceOfAnUnknownExecutorRejectsNoAgent(t *testing.T) {
	r := lead(DefaultConfig())
	r.write(&model.Live{ID: "h", Incarnation: 1, EtcdLease: 1})
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindLive })
	r.ready(small("h", 4000, 4))
	if fitting := r.core.Explain("", cpu(1000), 4).Fitting; fitting != 4 {
		t.Errorf("%d workers fit", fitting)
	}
}
