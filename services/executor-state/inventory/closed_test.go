package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// zoned returns a leading core with 20 executors in zone a. Each executor has a unique
// serial number.
func zoned() *rig {
	r := lead(DefaultConfig())
	for i := range 20 {
		r.ready(zonedExecutor(fmt.Sprintf("h%02d", 2*i)))
	}
	return r
}

func zonedExecutor(id string) Register {
	g := small(id, 1000, 1)
	g.Attributes = map[string]string{"zone": "a", "serial": id}
	return g
}

var zoneA = policy.Selector{Attributes: map[string]string{"ZONE": "A"}}

// free returns the number of executors that may get work.
func (r *rig) free() (n int) {
	for h := range r.core.byID.All() {
		if isOpen(h) {
			n++
		}
	}
	return n
}

// A request by attributes applies at once to the executors that it selects. It also applies
// to executors that register later.
func TestDisableByAttributes(t *testing.T) {
	r := zoned()
	if d := must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: zoneA}); d.Executors != 20 ||
		r.free() != 0 {
		t.Errorf("%+v, %d are free", d, r.free())
	}
	r.ready(zonedExecutor("late"))
	other := zonedExecutor("other")
	other.Attributes["zone"] = "b"
	r.ready(other)
	if n := r.free(); n != 1 || !isOpen(r.core.hosts["other"]) {
		t.Errorf("%d are free", n)
	}
	if outcome := r.cycle(r.queue("u", 2, cpu(1000)))[0]; outcome.Result != model.NoFit || outcome.Fitting != 1 {
		t.Errorf("two workers in zone a and b: %+v", outcome)
	}
	if e := must[policy.Enabled](t, r, policy.Enable{RequestID: "e", DisableRequestID: "d"}); e.Undone != 1 ||
		r.free() != 22 {
		t.Errorf("%+v, %d are free", e, r.free())
	}
	expectGranted(t, r.cycle(r.entry("u")))
}

// If a request does not become durable, it is undone completely. The same holds for the end
// of a request.
func TestDisableByAttributesIsUndone(t *testing.T) {
	r := zoned()
	before := dump(r.core)
	r.ask(policy.Disable{RequestID: "d", Selector: zoneA})
	if n := r.free(); n != 0 {
		t.Errorf("%d are free", n)
	}
	r.effects, r.inputs = nil, nil
	r.step(model.Abandoned{})
	if after := dump(r.core); after != before {
		t.Errorf("undone, got:\n%s\nwant:\n%s", after, before)
	}
	must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: zoneA})
	r.ask(policy.Enable{RequestID: "e", DisableRequestID: "d"})
	if n := r.free(); n != 20 {
		t.Errorf("%d are free", n)
	}
	r.effects, r.inputs = nil, nil
	r.step(model.Abandoned{})
	if n := r.free(); n != 0 {
		t.Errorf("%d are free", n)
	}
}

// If several requests overlap, each of them alone keeps its executors out of allocation.
func TestOverlappingDisablesByAttributes(t *testing.T) {
	c := fleet(10_000, alike)
	now := start
	for i := range 100 {
		c.Step(now, model.Input{Token: 1, Request: policy.Disable{
			RequestID: fmt.Sprintf("d%d", i), ExpireAt: now.Add(time.Minute),
			Selector: policy.Selector{Attributes: map[string]string{"region": "here"}},
		}})
	}
	c.Step(now, model.Committed{Effects: len(c.journal), Revision: c.revision + 1})
	if open := c.Stats().Free; len(open) > 0 {
		t.Errorf("free: %v", open)
	}
	now = now.Add(time.Minute)
	steps := 0
	for ; !c.requests.Next().After(now); steps++ {
		c.Step(now, nil)
	}
	if s := c.Stats(); steps > 20 || s.Free["slots"] == 0 {
		t.Errorf("after %d steps: %+v", steps, s)
	}
}
