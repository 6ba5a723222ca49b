package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
)

func wantRules(t *testing.T, a *Auditor, want ...Rule) {
	t.Helper()
	var got []Rule
	for _, v := range a.Violations() {
		if n := len(got); n == 0 || got[n-1] != v.Rule {
			got = append(got, v.Rule)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules broken (-want +got):\n%s\n%v", diff, a.Violations())
	}
}

// TestCleanHistory plays several reservations without a violation, including changes of
// leader, a replacement and a shrinking host.
func TestCleanHistory(t *testing.T) {
	w := newWorld(t)
	a1, a2 := reservation("a1", 1, 3), reservation("a2", 2, 2)
	l1 := w.run(a1, 1, 2)
	w.lead(model.ServiceRegistry)
	l2 := w.run(a2, 1)
	w.put(host(1, 1)) // the capacity shrinks below the use
	if over := w.audit().Stats().OverCommitted; over != 1 {
		t.Errorf("%d executors are over-committed, want 1", over)
	}
	w.stop(a1, l1)

	replaced := reservation("b1", 3, 2)
	w.put(replaced)
	successor := reservation("b2", 3, 1)
	w.put(in(replaced, model.Replaced), successor)
	w.lead(model.ServiceAssigner)
	w.put(in(successor, model.Expired))

	// The worker numbers restart after the last record of a job is deleted.
	w.put(host(2, 8))
	w.put(&model.Stage{Job: "job", Stage: "stage"})
	w.stop(a2, l2)
	w.put(deletion{model.Ref{Kind: model.KindStage, Key: model.Key{Job: "job", Stage: "stage"}}})
	l2 = w.run(a2, 2)

	a := w.audit()
	wantRules(t, a)
	want := Stats{
		Revision: w.revision, Reservations: 5, LeasesGranted: 3, WorkersLeased: 7, WorkersRunning: 7,
	}
	if diff := cmp.Diff(want, a.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if left := a.Quiesced(); len(left) > 0 {
		t.Errorf("not quiesced: %v", left)
	}
	w.stop(a2, l2)
	a = w.audit()
	wantRules(t, a)
	if left := a.Quiesced(); len(left) > 0 {
		t.Errorf("not quiesced: %v", left)
	}
}

// TestNumbersRestartInOneTransaction deletes the last record of a job and accepts a new
// reservation of the same stage in one revision. That revision puts the stage record
// instead of deleting it, but the worker numbers restart. If the job has another record,
// the numbers continue.
func TestNumbersRestartInOneTransaction(t *testing.T) {
	for _, last := range []bool{true, false} {
		w := newWorld(t)
		old, next, other := reservation("old", 1, 2), reservation("next", 1, 2), reservation("other", 2, 1)
		l := w.run(old, 1)
		if !last {
			other.Spec.Constraints.Resources = resource.Vector{"slots": 1}
			w.put(other)
		}
		w.put(in(old, model.Cancelling))
		w.put(task(l, model.WorkerEvict))
		w.put(task(l, model.WorkerEvicted))
		w.put(deletion{l.Ref()})
		w.put(in(old, model.Cancelled))
		w.put(deletion{task(l, 0).Ref()}, deletion{header(l).Ref()})
		epoch := w.put(deletion{old.Ref()}, &model.Stage{Job: "job", Stage: "stage"}, next)
		again := lease(next, epoch, w.revision, 2)
		w.put(again)
		w.put(header(again), task(again, model.WorkerAssigned))
		w.put(in(next, model.Active))
		w.put(task(again, model.WorkerRunning))
		if last {
			wantRules(t, w.audit())
		} else {
			wantRules(t, w.audit(), RuleStartedTwice)
		}
	}
}

// TestRules breaks each rule with a history that breaks no other rule.
func TestRules(t *testing.T) {
	r, other := reservation("r", 1, 2), reservation("s", 2, 2)
	number2 := func(r *model.Reservation) *model.Reservation { // a requeue for the same worker indexes
		next := reservation("again", 3, 2)
		next.Workers = model.WorkerSet{{First: r.Workers[0].First, Last: r.Workers[0].Last, Number: 2}}
		return next
	}
	tests := []struct {
		name  string
		rule  Rule
		write func(w *world)
	}{
		{"one slot is used twice", RuleCapacity, func(w *world) {
			big := reservation("big", 1, 5)
			big.Spec.Constraints.Resources = resource.Vector{"slots": 1}
			w.put(lease(big, w.put(big), w.revision, 1))
		}},
		{"the executor is unknown", RuleCapacity, func(w *world) {
			w.put(lease(r, w.put(r), w.revision, 9))
		}},
		{"more is leased on an executor whose capacity shrank", RuleCapacity, func(w *world) {
			w.run(r, 1)
			w.put(host(1, 1))
			small := reservation("small", 2, 1)
			small.Spec.Constraints.Resources = resource.Vector{"slots": 1}
			w.put(lease(small, w.put(small), w.revision, 1))
		}},
		{"a worker without a role uses a share", RuleShare, func(w *world) {
			w.put(reserveShares(map[string]int64{"web": 2}))
			big := reservation("big", 1, 3)
			w.put(lease(big, w.put(big), w.revision, 1))
		}},
		{"another role uses a share", RuleShare, func(w *world) {
			w.put(reserveShares(map[string]int64{"web": 2, "batch": 1}))
			w.run(ofRole("web", 1, 1, "web"), 1)
			batch := ofRole("batch", 2, 3, "batch")
			w.put(lease(batch, w.put(batch), w.revision, 1))
		}},
		{"a share is used after the agent registered again", RuleShare, func(w *world) {
			w.run(r, 1)
			w.put(reserveShares(map[string]int64{"web": 3}))
			small := reservation("small", 2, 1)
			w.put(lease(small, w.put(small), w.revision, 1))
		}},
		{"a lease has another role", RuleAllOrNone, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			l.Role = "web"
			w.put(l)
		}},
		{"a lease changes its role", RuleImmutable, func(w *world) {
			l := *w.run(r, 1)
			l.Role = "web"
			w.put(&l)
		}},
		{"a lease names an avoided executor", RuleAvoid, func(w *world) {
			picky := reservation("picky", 1, 2)
			picky.Spec.Constraints.Avoid = []string{"host1"}
			picky.Failed = []model.FailedOn{{Executor: "host2"}}
			w.put(lease(picky, w.put(picky), w.revision, 1))
		}},
		{"a worker is missing", RuleAllOrNone, func(w *world) {
			l := without(lease(r, w.put(r), w.revision, 1), 1)
			l.Total = 1
			w.put(l)
		}},
		{"another worker is leased", RuleAllOrNone, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			l.Workers[1].Worker.Number++
			w.put(l)
		}},
		{"a lease has too little for each worker", RuleAllOrNone, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			l.Each = resource.Vector{"slots": 1}
			w.put(l)
		}},
		{"a lease counts a missing chunk", RuleAllOrNone, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			l.Chunks = 2
			w.put(l)
		}},
		{"a task is complete without a worker", RuleAllOrNone, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(header(l), task(without(l, 1), model.WorkerAssigned))
		}},
		{"two tasks assign one worker", RuleOneAssignment, func(w *world) {
			w.run(r, 1)
			again := reservation("again", 3, 2)
			again.Workers = r.Workers
			l := lease(again, w.put(again), w.revision, 2)
			w.put(l)
			w.put(header(l), task(l, model.WorkerAssigned))
		}},
		{"a worker index is refilled too early", RuleOnePerIndex, func(w *world) {
			w.run(r, 1)
			again := number2(r)
			again.Key = r.Key
			w.run(again, 2)
		}},
		{"a worker is assigned elsewhere", RulePlacement, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(header(l), task(lease(r, 0, 0, 2), model.WorkerAssigned))
		}},
		{"an assignment moves", RulePlacement, func(w *world) {
			w.run(r, 1)
			w.put(task(lease(r, 0, 0, 2), model.WorkerRunning))
		}},
		{"a worker is added to a lease", RulePlacement, func(w *world) {
			l := w.run(r, 1)
			more := *l
			more.Workers = append(more.Workers, model.Placement{Worker: model.WorkerID{Index: 99, Number: 1}, Ordinal: 2})
			w.put(&more)
		}},
		{"an ordinal changes", RulePlacement, func(w *world) {
			moved := host(3, 4)
			moved.ID = "host2"
			w.put(moved)
		}},
		{"two executors have one ordinal", RulePlacement, func(w *world) {
			again := host(2, 4)
			again.ID = "host3"
			w.put(again)
		}},
		{"a worker is assigned without a lease", RulePlacement, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(header(l), task(l, model.WorkerAssigned))
		}},
		{"an ended worker runs", RuleWorkerState, func(w *world) {
			l := w.run(r, 1)
			w.put(task(l, model.WorkerFailed))
			w.put(task(l, model.WorkerRunning))
		}},
		{"a worker is created as RUNNING", RuleWorkerState, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(header(l), task(l, model.WorkerRunning))
		}},
		{"a worker is started by two leases", RuleStartedTwice, func(w *world) {
			w.stop(r, w.run(r, 1))
			again := reservation("again", 3, 2)
			again.Workers = r.Workers
			w.run(again, 2)
		}},
		{"an ended reservation is active again", RuleReservationState, func(w *world) {
			w.put(r)
			w.put(in(r, model.Cancelled))
			w.put(in(r, model.Expired))
		}},
		{"a reservation expires while its workers run", RuleReservationState, func(w *world) {
			w.run(r, 1)
			w.put(in(r, model.Expired))
		}},
		{"a reservation returns to its queue", RuleReservationState, func(w *world) {
			w.run(r, 1)
			w.put(r)
		}},
		{"a derived state is stored", RuleReservationState, func(w *world) {
			w.put(r)
			w.put(in(r, model.Leasing))
		}},
		{"a reservation changes its workers", RuleImmutable, func(w *world) {
			w.put(r)
			changed := *r
			changed.Workers = other.Workers
			w.put(&changed)
		}},
		{"a reservation changes its constraints", RuleImmutable, func(w *world) {
			w.put(r)
			changed := *r
			changed.Spec.Constraints.SKU = "gpu"
			w.put(&changed)
		}},
		{"a lease grows", RuleImmutable, func(w *world) {
			l := w.run(r, 1)
			more := *l
			more.Each = resource.Vector{"cpu": 1001, "slots": 1}
			w.put(&more)
		}},
		{"a task is for another key", RuleImmutable, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			h := header(l)
			h.Key = other.Key
			w.put(h, task(l, model.WorkerAssigned))
		}},
		{"a reservation is created as ended", RuleReservationState, func(w *world) {
			w.put(in(r, model.Completed))
		}},
		{"a queued reservation is deleted", RuleNeverLost, func(w *world) {
			w.put(r)
			w.put(deletion{r.Ref()})
		}},
		{"a running worker is deleted", RuleNeverLost, func(w *world) {
			l := w.run(r, 1)
			w.put(deletion{task(l, 0).Ref()}, deletion{header(l).Ref()})
		}},
		{"a cancelled reservation is leased", RuleNoRevival, func(w *world) {
			epoch := w.put(r)
			w.put(in(r, model.Cancelled))
			w.put(lease(r, epoch, epoch, 1))
		}},
		{"a lease has no reservation", RuleNoRevival, func(w *world) {
			w.put(lease(r, w.revision, w.revision, 1))
		}},
		{"a cancelled reservation is dispatched", RuleNoRevival, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(in(r, model.Cancelled))
			w.put(header(l), task(l, model.WorkerAssigned))
		}},
		{"a second lease is granted", RuleNoRevival, func(w *world) {
			l := w.run(r, 1)
			w.put(task(l, model.WorkerCompleted))
			w.put(deletion{l.Ref()})
			w.put(l)
		}},
		{"the capacity of a running worker is released", RuleRelease, func(w *world) {
			w.put(without(w.run(r, 1), 1))
		}},
		{"the lease of a queued reservation is released", RuleRelease, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(deletion{l.Ref()})
		}},
		{"a term decreases", RuleTerm, func(w *world) {
			w.txn("", deletion{model.LeaderRef(model.ServiceRegistry)})
			w.create[space.Key(model.LeaderRef(model.ServiceRegistry))] = 1
			w.txn("", &model.Leader{Service: model.ServiceRegistry})
		}},
		{"a write has no fence", RuleFence, func(w *world) {
			w.txn("", r)
		}},
		{"a chain record without a term", RuleFence, func(w *world) {
			w.terms[model.ServiceRegistry] = 0
			w.put(r)
		}},
		{"a deposed leader writes", RuleFence, func(w *world) {
			old := w.terms[model.ServiceRegistry]
			w.lead(model.ServiceRegistry)
			w.terms[model.ServiceRegistry] = old
			w.put(r)
		}},
		{"the second is granted first", RuleOrder, func(w *world) {
			w.put(r)
			w.put(lease(other, w.put(other), w.revision, 1))
		}},
		{"a cycle is granted after a later one", RuleCycle, func(w *world) {
			first, second, cut := w.put(r), w.put(other), w.revision
			w.put(host(3, 4))
			w.put(lease(r, first, w.revision, 1))
			w.put(lease(other, second, cut, 2))
		}},
		{"a grant ignores an order", RuleOrder, func(w *world) {
			epoch := w.put(r)
			w.put(ordered(other, 1))
			w.put(lease(r, epoch, w.revision, 1))
		}},
		{"a replacement is overtaken", RuleOrder, func(w *world) {
			epoch := w.put(r)
			urgent := *other
			urgent.Spec.Priority.Class = model.ClassReplace
			w.put(&urgent)
			w.put(lease(r, epoch, w.revision, 1))
		}},
		{"a replacement that keeps its place is overtaken", RuleOrder, func(w *world) {
			epoch := w.put(r)
			successor := *other
			successor.PlaceEpoch = epoch - 1
			w.put(&successor)
			w.put(lease(r, epoch, w.revision, 1))
		}},
		{"a reservation is moved behind a grant of an earlier cycle", RuleOrder, func(w *world) {
			w.put(r)
			epoch := w.put(other)
			cut := w.revision
			w.put(ordered(r, 1_000_000))
			w.put(lease(other, epoch, cut, 1))
		}},
		{"a grant is older than its reservation", RuleOrder, func(w *world) {
			w.put(lease(r, w.put(r), w.revision-1, 1))
		}},
		{"a record is damaged", RuleRecord, func(w *world) {
			w.revision++
			w.raw(space.Key(r.Ref()), []byte("\xff"))
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

// TestOrderAllows checks that permitted grants out of the current order are no violations.
func TestOrderAllows(t *testing.T) {
	first, second := reservation("first", 1, 2), reservation("second", 2, 2)
	tests := []struct {
		name  string
		write func(w *world)
	}{
		{"two grants in one revision", func(w *world) {
			e1, e2 := w.put(first), w.put(second)
			w.put(lease(second, e2, w.revision, 1), lease(first, e1, w.revision, 2))
		}},
		{"a reservation after the start of the cycle", func(w *world) {
			epoch := w.put(second)
			cut := w.revision
			w.put(ordered(first, 1))
			w.put(lease(second, epoch, cut, 1))
		}},
		{"a reservation of another group", func(w *world) {
			gpu := *first
			gpu.Spec.Constraints.SKU = "gpu"
			w.put(&gpu)
			w.put(lease(second, w.put(second), w.revision, 1))
		}},
		{"a reservation that was moved to the front after the start of the cycle", func(w *world) {
			epoch := w.put(first)
			w.put(second)
			cut := w.revision
			w.put(ordered(second, 1))
			w.put(lease(first, epoch, cut, 1))
		}},
		{"a reservation that was leased before and ended", func(w *world) {
			l := w.run(first, 1)
			epoch := w.put(second)
			w.stop(first, l)
			w.put(lease(second, epoch, w.revision, 1))
		}},
		{"a replacement with a later place", func(w *world) {
			epoch := w.put(first)
			successor := *second
			successor.PlaceEpoch = epoch + 1
			w.put(&successor)
			w.put(lease(first, epoch, w.revision, 1))
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

// TestQuiesced checks each kind of leftover record.
func TestQuiesced(t *testing.T) {
	r := reservation("r", 1, 2)
	tests := []struct {
		name  string
		rule  Rule
		write func(w *world)
	}{
		{"a leftover lease", RuleLeaseOwner, func(w *world) {
			l := lease(r, w.put(r), w.revision, 1)
			w.put(l)
			w.put(in(r, model.Cancelled))
		}},
		{"a leased worker that has ended", RuleLeaseOwner, func(w *world) {
			w.put(task(w.run(r, 1), model.WorkerCompleted))
		}},
		{"a task without its reservation", RuleTaskOwner, func(w *world) {
			l := w.run(r, 1)
			w.put(task(l, model.WorkerCompleted))
			w.put(deletion{l.Ref()})
			w.put(in(r, model.Completed))
			w.put(deletion{r.Ref()})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.write(w)
			a := w.audit()
			wantRules(t, a)
			left := a.Quiesced()
			if len(left) == 0 {
				t.Fatal("no violation")
			}
			for _, v := range left {
				if v.Rule != tt.rule {
					t.Errorf("found %v, want %s only", v, tt.rule)
				}
			}
		})
	}
}

// TestSnapshot checks an auditor that begins in the middle of the history and misses a
// part of it. It must check the rules about states and skip the rules about steps.
func TestSnapshot(t *testing.T) {
	w := newWorld(t)
	r := reservation("r", 1, 2)
	l := w.run(r, 1)
	a := New(space)
	a.Apply(w.snapshot())
	wantRules(t, a)

	w.put(task(l, model.WorkerEvict))
	w.put(task(l, model.WorkerEvicted))
	w.put(without(l, 1))
	w.put(deletion{l.Ref()})
	w.put(in(r, model.Cancelled))
	w.put(deletion{r.Ref()}, deletion{task(l, 0).Ref()}, deletion{header(l).Ref()})
	a.Apply(w.snapshot())
	wantRules(t, a)
	if s := a.Stats(); s.Snapshots != 2 || s.LeasesGranted != 1 || s.WorkersRunning != 2 {
		t.Errorf("stats %+v", s)
	}
	if len(a.versions) != 0 || len(a.groups) != 0 {
		t.Errorf("%d versions and %d groups are kept without records", len(a.versions), len(a.groups))
	}

	s, q := reservation("s", 2, 5), reservation("q", 3, 5)
	s.Spec.Constraints.Resources = resource.Vector{"slots": 1}
	q.Spec.Constraints.Resources = resource.Vector{"slots": 1}
	q.Workers = s.Workers
	for _, each := range []*model.Reservation{s, q} {
		l := lease(each, w.put(each), w.revision, 1)
		w.put(l)
		w.put(header(l), task(l, model.WorkerAssigned))
	}
	a.Apply(w.snapshot())
	wantRules(t, a, RuleCapacity, RuleOneAssignment)
}

// TestBounded checks that violations beyond MaxViolations are counted.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	for range MaxViolations + 5 {
		w.txn("", host(1, 4))
	}
	a := w.audit()
	if len(a.Violations()) != MaxViolations || a.Count() != MaxViolations+5 {
		t.Errorf("%d kept of %d", len(a.Violations()), a.Count())
	}
}

// TestBatches checks that the result does not depend on how a history is divided into
// batches.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	r := reservation("r", 1, 3)
	w.stop(r, w.run(r, 1))
	w.txn("", r)
	one := w.audit()
	many := New(space)
	for i := 0; i < len(w.history); {
		n := i + 1
		for n < len(w.history) && w.history[n].Mod == w.history[i].Mod {
			n++
		}
		many.Apply(store.Batch{Revision: w.history[i].Mod, Changes: w.history[i:n]})
		i = n
	}
	if diff := cmp.Diff(one.Violations(), many.Violations()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(one.Stats(), many.Stats()); diff != "" {
		t.Error(diff)
	}
}
