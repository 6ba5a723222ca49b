package inventory

import (
	"testing"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// A refusal because of workers that run is not confirmed once they end, are lost or move, even
// if no executor has more free capacity for the candidate since and no work is left for searches
// that only update a refusal.
func TestRefusalsFollowTheWorkersThatRun(t *testing.T) {
	host := func(id, sku, rack string) Register {
		g := small(id, 1000, 1)
		g.SKU, g.Attributes = sku, map[string]string{"rack": rack}
		return g
	}
	on := func(sku string) constraint.Constraints {
		k := cpu(1000)
		k.SKU, k.Spread = sku, constraint.Spread{By: "rack", Max: 1}
		return k
	}
	ended := func(r *rig) {
		r.changeWorkers("g", []int32{0}, func(w *model.TaskWorker) {
			w.State, w.Since = model.WorkerFailed, model.InstantOf(r.now)
		})
		r.catchUp()
		r.settle()
	}
	for name, test := range map[string]struct {
		runs, waits constraint.Constraints
		change      func(*rig)
	}{
		"the worker ends on an executor of another SKU": {on("b"), on("a"), ended},
		"the worker of another shape ends": {constraint.Constraints{SKU: "b", Resources: resource.Vector{"cpu": 1000}},
			constraint.Constraints{Resources: resource.Vector{"cpu": 1000}, SameShape: true}, ended},
		"the executor of the worker is LOST": {on("b"), on("a"), func(r *rig) {
			r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "b1"})
			r.pause(2 * time.Minute)
		}},
		"the executor of the worker moves": {on("b"), on("a"), func(r *rig) {
			moved := host("b1", "b", "2")
			moved.Nonce = "n2"
			r.ready(moved)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := lead(DefaultConfig())
			r.core.index.Limits.Work = 1
			r.ready(host("b1", "b", "1"))
			expectGranted(t, r.cycle(r.queue("g", 1, test.runs)))
			r.dispatch("g")
			r.ready(host("a1", "a", "1"))
			r.ready(host("a2", "a", "1"))
			n := 1
			if test.waits.SameShape {
				n = 2
			}
			waits := r.queue("g:2", n, test.waits)
			if o := r.cycle(waits)[0]; o.Result != model.NoFit {
				t.Fatalf("beside the worker that runs: %+v", o)
			}
			again := model.Candidate{UID: waits.UID, Mod: waits.Mod, Group: waits.Group, Unchanged: true}
			if outcomes := r.cycle(again); len(outcomes) > 0 && outcomes[0].Result != model.NoFit {
				t.Fatalf("before any change: %+v", outcomes)
			}
			test.change(r)
			expectGranted(t, r.cycle(again))
		})
	}
}
