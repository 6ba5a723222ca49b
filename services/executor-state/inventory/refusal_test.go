package inventory

import (
	"testing"

	"berth.dev/pkg/model"
)

// If an executor rejects the assigner, it gets no work until it registers again. The order
// in which the records arrive does not matter.
func TestAnExecutorThatRejectsTheAssignerGetsNoWork(t *testing.T) {
	r := lead(DefaultConfig())
	r.write(&model.Refusal{Executor: "h1", Incarnation: 99, Reason: "PERMISSION_DENIED"})
	r.ready(small("h1", 4000, 4))
	e := *r.keys[model.Ref{Kind: model.KindExecutor, ID: "h1"}].record.(*model.Executor)
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000)))) // the refusal names another incarnation
	r.write(&model.Refusal{Executor: "h1", Incarnation: e.Incarnation, Reason: "PERMISSION_DENIED"})
	r.catchUp()
	if out := r.cycle(r.queue("v", 1, cpu(1000))); len(out) != 1 || out[0].Result == model.Granted {
		t.Errorf("%+v", out)
	}
	if h := r.core.hosts["h1"]; h.shown() != model.ExecutorRegistered || h.allocation.Workers != 1 {
		t.Errorf("state %v with %d workers", h.shown(), h.allocation.Workers)
	}
	r.drop(model.RefusalRef("h1"))
	r.catchUp()
	expectGranted(t, r.cycle(r.queue("w", 1, cpu(1000))))
}
