package inventory

import (
	"slices"
	"testing"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// without makes a core that is fed from the store, is told to leave records
// alone in place of them, and is elected.
func (r *rig) without(missed func(model.Ref) bool) {
	r.core, r.unseen, r.effects = New(r.core.cfg), nil, nil
	refs := make([]model.Ref, 0, len(r.keys))
	for ref := range r.keys {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b model.Ref) int { return int(r.keys[a].mod - r.keys[b].mod) })
	for _, ref := range refs {
		if missed(ref) {
			r.step(model.Held{Ref: ref})
			continue
		}
		k := r.keys[ref]
		r.step(model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	r.step(model.Progress{Revision: r.rev})
	r.elect()
}

// What a uid holds is not swept because the record that wants it cannot be told,
// and nothing more is granted for it; others are.
func TestHeldReservationKeepsItsLease(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.pass(r.queue("u", 1, cpu(1000))))
	r.catchUp()
	waits := r.queue("w", 1, cpu(1000))
	missed := func(ref model.Ref) bool { return ref == refOf("u") || ref == refOf("w") }
	r.without(missed)
	if len(r.leased("u")) != 1 {
		t.Error("its lease is swept")
	}
	behind := r.queue("v", 1, cpu(1000))
	behind.Group = waits.Group
	outcomes := r.pass(waits, behind)
	if outcomes[0].Result != NoFit || outcomes[0].Reason != fault.ReasonPoison || outcomes[1].Result != Granted {
		t.Errorf("outcomes %+v", outcomes)
	}
	r.without(func(model.Ref) bool { return false })
	if r.drop(refOf("u")); len(r.leased("u")) != 1 {
		t.Error("its lease is gone")
	}
	r.catchUp()
	if r.settle(); len(r.leased("u")) != 0 {
		t.Error("a lease that nobody wants is kept, too")
	}
}

// Of a task that cannot be told whole, no worker's capacity is freed.
func TestHeldTaskFreesNothing(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.pass(r.queue("u", 2, cpu(1000))))
	r.handOver("u")
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
		t.Error("it is not freed when all is told, too")
	}
}

// What says what is in use cannot be missed; what others decide can.
func TestWhatTheInventoryCanMiss(t *testing.T) {
	can := map[model.Kind]bool{
		model.KindReservation: true, model.KindTaskHeader: true, model.KindTaskChunk: true, model.KindSKU: true,
		model.KindLeaseChunk: false, model.KindExecutor: false, model.KindLive: false,
		model.KindDisable: false, model.KindPool: false, model.KindForgotten: false,
	}
	for kind, want := range can {
		if got := New(DefaultConfig()).CanMiss(model.Ref{Kind: kind, ID: "x"}); got != want {
			t.Errorf("kind %d: %v", kind, got)
		}
	}
}

// A decision about a lease is the lease's fault.
func TestSubjectOfARelease(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.pass(r.queue("u", 1, cpu(1000))))
	r.handOver("u")
	defer func() {
		if recover() == nil {
			t.Fatal("the test is about a panic")
		}
		if want := leaseRef("u"); r.core.Subject() != want {
			t.Errorf("to blame is %+v, want %+v", r.core.Subject(), want)
		}
	}()
	// No lease has an empty chunk: this core was told of one that is corrupt.
	ref := leaseRef("u")
	r.rev++
	r.core.Step(r.now, model.Changed{Ref: ref, Record: &model.LeaseChunk{UID: "u"}, Create: r.keys[ref].create, Mod: r.rev})
	r.end("u", model.WorkerCompleted, 0)
	r.catchUp()
}
