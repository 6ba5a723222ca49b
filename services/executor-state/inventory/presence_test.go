package inventory

import (
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// Presences counts every change of the results of Presence and AssignerTerm, so that
// callers can cache these results. It does not count grants.
func TestPresencesAreCounted(t *testing.T) {
	r := lead(DefaultConfig())
	counted := func(what string, changes bool, do func()) {
		t.Helper()
		before := r.core.Presences()
		do()
		r.catchUp()
		if moved := r.core.Presences() != before; moved != changes {
			t.Errorf("%s: counted is %v", what, moved)
		}
	}
	live := model.Ref{Kind: model.KindLive, ID: "h1"}
	counted("an executor registers", true, func() { r.ready(small("h1", 4000, 4)) })
	counted("a lease", false, func() { expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000)))) })
	counted("an assigner that leads", true, func() { r.write(leaderKey{model.ServiceAssigner}) })
	counted("presence that ends", true, func() { r.drop(live) })
	if p, ok := r.core.Presence("h1"); !ok || p.Executor.ID != "h1" || p.Live != nil {
		t.Errorf("of an executor that is away: %+v, %v", p, ok)
	}
	counted("a record that changes", true, func() {
		back := *r.keys[model.Ref{Kind: model.KindExecutor, ID: "h1"}].record.(*model.Executor)
		back.Orphans = true
		r.write(&back)
	})
	if _, ok := r.core.Presence("h2"); ok {
		t.Error("an unknown executor has a presence")
	}
}

// The store may be slow. An absence begins when the registration, or the end of the
// presence, is durable.
func TestAnAbsenceBeginsWhenItIsDurable(t *testing.T) {
	for name, begin := range map[string]func(*rig){
		"registered": func(r *rig) { r.ask(smallAgent("h1", "n1")) },
		"departed": func(r *rig) {
			r.ready(smallAgent("h1", "n1"))
			v, _ := r.core.Executor("h1")
			r.ask(Depart{ID: "h1", Incarnation: v.Incarnation, EtcdLease: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := lead(DefaultConfig())
			begin(r)
			r.now = r.now.Add(3 * time.Second)
			r.commit(len(r.effects))
			r.pause(DefaultConfig().LostAfter - time.Millisecond)
			if v, _ := r.core.Executor("h1"); v.State == model.ExecutorLost {
				t.Fatalf("LOST before its time: %+v", v)
			}
			r.pause(time.Millisecond)
			if v, _ := r.core.Executor("h1"); v.State != model.ExecutorLost {
				t.Fatalf("not LOST in time: %+v", v)
			}
		})
	}
}
