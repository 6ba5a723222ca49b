package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// However many executors are deleted, each effect fits in a transaction. No data of the
// deleted executors stays in memory.
func TestManyExecutorsAreDeletedInBoundedEffects(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HoldBackShare = 1
	r := lead(cfg)
	const executors = 250
	for i := range executors {
		id := fmt.Sprintf("h%03d", i)
		r.ready(small(id, 1, 1))
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: id})
	}
	r.pause(time.Minute)
	if s := r.core.Stats(); s.Lost != executors {
		t.Fatalf("%+v", s)
	}
	deleted := 0
	r.measure = func(e model.Effect) {
		deleted += len(e.Deletes)
		if len(e.Deletes) > deletesPerEffect || len(e.Puts) != 1 {
			t.Errorf("%d deletes and %d puts in one effect", len(e.Deletes), len(e.Puts))
		}
	}
	r.pause(cfg.LostRetention)
	if len(r.core.hosts) != 0 || deleted != executors {
		t.Errorf("%d executors left, %d deleted", len(r.core.hosts), deleted)
	}
	// Only the leader records, and the greatest ordinal and incarnation, remain.
	if len(r.core.records) != 1 || len(r.core.allocations) != 0 || r.core.index.Size().Classes != 0 ||
		r.core.absent.Len() != 0 {
		t.Errorf("left:\n%s", dump(r.core))
	}
	if f := r.core.forgotten; f.Ordinal != executors {
		t.Errorf("%+v", f)
	}
}

// In an elastic fleet, hosts have new names and are drained before they are removed. The
// number of records of such a fleet does not grow.
func TestAnElasticFleetDoesNotGrow(t *testing.T) {
	cfg := DefaultConfig()
	r := lead(cfg)
	sizes := map[int]int{}
	for day := range 10 {
		for i := range 5 {
			id := fmt.Sprintf("h-%d-%d", day, i)
			r.ready(small(id, 1, 1))
			must[ExecutorView](t, r, policy.Drain{ID: id, RequestID: "d-" + id})
			r.applyDeletion(model.Ref{Kind: model.KindLive, ID: id})
		}
		r.pause(24 * time.Hour)
		sizes[day] = len(r.keys)
	}
	if sizes[9] > sizes[2] {
		t.Errorf("keys by day: %v", sizes)
	}
}

// The next leader does not know the deleted executors. It still reuses no ordinal and no
// incarnation, even in the same term.
func TestDeletedNumbersAreNotReused(t *testing.T) {
	for _, failOver := range []bool{false, true} {
		r := lead(DefaultConfig())
		for _, nonce := range []string{"n1", "n2", "n3"} {
			r.ready(smallAgent("h1", nonce))
		}
		before, _ := r.core.Executor("h1")
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
		r.pause(48 * time.Hour)
		if _, there := r.core.Executor("h1"); there {
			t.Fatal("the executor was not deleted")
		}
		if failOver {
			r.failOver()
		}
		r.ready(smallAgent("h1", "n4"))
		after, _ := r.core.Executor("h1")
		if after.Ordinal <= before.Ordinal || after.Incarnation <= before.Incarnation {
			t.Errorf("was #%d with incarnation %d, is #%d with %d", before.Ordinal, before.Incarnation, after.Ordinal,
				after.Incarnation)
		}
		if mod := r.keys[after.Ref()].mod; after.Incarnation > mod {
			t.Errorf("incarnation %d at revision %d", after.Incarnation, mod)
		}
	}
}

// If many executors become silent at the same time, they lose their presence only as fast
// as etcd expires leases. For a share of 100,000 executors, that takes longer than a TTL.
// All of them are part of the mass loss, including the first.
func TestMassLossOfAFleetThatTakesLongToExpire(t *testing.T) {
	c := New(DefaultConfig())
	gone := make([]*host, 60_000)
	for i := range gone {
		gone[i] = hostAt(fmt.Sprint(i))
		gone[i].AbsentSince = start.Add(time.Duration(i) * time.Second / expiriesPerSecond)
	}
	crowd := 100_000/5 + 1
	if held := lostTogether(gone, crowd, c.window(len(gone))); len(held) != len(gone) || held[0] != gone[0] {
		t.Errorf("%d of %d are in the mass loss", len(held), len(gone))
	}
	// The losses form groups of three, and no executor is counted twice.
	few := []*host{gone[0], gone[5_000], gone[10_000], gone[20_000], gone[30_000], gone[31_000], gone[32_000]}
	if held := lostTogether(few, 3, 10*time.Second); len(held) != 6 || held[3] != gone[30_000] {
		t.Errorf("%d are in the mass loss", len(held))
	}
}
