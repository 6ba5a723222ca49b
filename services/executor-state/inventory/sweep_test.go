package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// zoned leads a core whose steps take but a few executors out of allocation, with
// 20 executors, each with a serial of its own, of zone a.
func zoned() *rig {
	r := lead(DefaultConfig())
	r.core.limits.sweep = 2 * workOfMove
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

var zoneA = Selector{Attributes: map[string]string{"ZONE": "A"}}

// free counts the executors that may be given work.
func (r *rig) free() (n int) {
	for h := range r.core.byID.all() {
		if isOpen(h) {
			n++
		}
	}
	return n
}

// arrive registers and announces an executor, and gives the core no time besides.
func (r *rig) arrive(g Register) {
	g.Address, g.Nonce = g.ID+":7200", "n1"
	token := r.ask(g)
	r.commit(len(r.effects))
	r.ask(Announce{g.ID, r.replies[token].Value.(Registered).Incarnation, 7, 0, false, ""})
	r.commit(len(r.effects))
}

// until gives the core time, without committing anything, until the input with the
// token is answered; it answers how many steps that took.
func (r *rig) until(t *testing.T, token uint64) (steps int) {
	t.Helper()
	for ; steps < 1000; steps++ {
		if _, answered := r.replies[token]; answered {
			return steps
		}
		r.step(nil)
	}
	t.Fatal("no answer")
	return 0
}

// A request by attributes takes several steps where it holds for many, and is
// decided and answered when nothing that it selects can be granted: not what was
// there, and not what registers before, in between or after.
func TestDisableByAttributesInSteps(t *testing.T) {
	r := zoned()
	token := r.ask(Disable{RequestID: "d", Selector: zoneA})
	for len(r.effects) == 0 && r.free() > 10 {
		if _, answered := r.replies[token]; answered {
			t.Fatal("answered before it was decided")
		}
		r.step(nil)
	}
	// Before what was looked at, behind it, and of a kind that was.
	for _, g := range []Register{zonedExecutor("g"), zonedExecutor("z"), zonedExecutor("h01")} {
		g.Attributes["serial"] = "h00"
		r.arrive(g)
	}
	if steps := r.until(t, token); steps < 3 {
		t.Errorf("%d steps", steps)
	}
	r.settle()
	r.ready(zonedExecutor("late"))
	if n := r.free(); n != 0 || r.replies[token].Value.(Disabled).Executors == 0 {
		t.Errorf("%d are free, answered %+v", n, r.replies[token])
	}
	usage, err := r.core.Usage("")
	if err == nil && (usage.SKUs[0].Idle != 0 || usage.SKUs[0].Disabled != 24) {
		t.Errorf("usage %+v", usage.SKUs)
	}

	token = r.ask(Enable{RequestID: "e", DisableRequestID: "d"})
	if r.free() == 24 {
		t.Error("all came back in one step")
	}
	r.settle()
	if n := r.free(); n != 24 || r.replies[token].Value.(Enabled).Undone != 1 {
		t.Errorf("%d are free, answered %+v", n, r.replies[token])
	}
}

// While executors are taken out, passes go on with the others; the request does not
// hold yet, is not shown, and cannot be undone. A repeat is answered with it, and
// another call under its id is refused.
func TestDisableUnderWay(t *testing.T) {
	r := zoned()
	first := r.ask(Disable{RequestID: "d", Selector: zoneA})
	again := r.ask(Disable{RequestID: "d", Selector: zoneA})
	drained := r.ask(Drain{RequestID: "d", ID: "h00"})
	if f := fault.Of(r.replies[drained].Err); f == nil || f.Reason != fault.ReasonDuplicate {
		t.Errorf("another call: %+v", r.replies[drained])
	}
	none := r.ask(Enable{RequestID: "e", Selector: zoneA})
	if undone := r.replies[none].Value.(Enabled).Undone; undone != 0 {
		t.Errorf("undone %d", undone)
	}
	if r.free() == 0 {
		t.Fatal("all is out in one step")
	}
	h := r.core.hosts["h00"]
	if v := r.core.view(h); isOpen(h) || len(v.Disabled) != 0 {
		t.Errorf("free %v, disabled by %v", isOpen(h), v.Disabled)
	}
	r.until(t, first)
	if _, answered := r.replies[again]; !answered {
		t.Error("the repeat is not answered")
	}
	r.settle()
	if r.free() != 0 || len(r.core.disables.shutting) != 0 {
		t.Errorf("%d are free, under way %v", r.free(), r.core.disables.shutting)
	}
}

// What was decided steps after it was asked for, and is taken back, is decided
// again; nobody gives that input again. Until then nothing comes back.
func TestDisableInStepsIsTakenBack(t *testing.T) {
	r := zoned()
	token := r.ask(Disable{RequestID: "d", Selector: zoneA})
	r.until(t, token)
	delete(r.replies, token)
	r.effects = nil
	r.step(model.Abandoned{})
	if n := r.free(); n != 0 {
		t.Errorf("%d are free", n)
	}
	r.settle()
	if d := r.core.known("d"); d == nil || !d.Holds() || r.free() != 0 || r.replies[token].Err != nil {
		t.Errorf("%+v, %d are free", d, r.free())
	}
	// The end of it is taken back when some are back: it holds for all at once.
	r.ask(Enable{RequestID: "e", DisableRequestID: "d"})
	r.step(nil)
	if n := r.free(); n == 0 || n == 20 {
		t.Errorf("%d are free", n)
	}
	r.effects, r.inputs = nil, nil
	r.step(model.Abandoned{})
	if n := r.free(); n != 0 {
		t.Errorf("%d are free", n)
	}
	r.settle()
	if n := r.free(); n != 0 {
		t.Errorf("%d are free", n)
	}
}

// A leader that goes in the middle leaves nothing behind that is not durable, and
// its successor puts back what an end left out.
func TestSuccessorOfADisableInSteps(t *testing.T) {
	r := zoned()
	r.ask(Disable{RequestID: "d", Selector: zoneA, ExpireAt: start.Add(time.Minute)})
	r.failOver()
	if n := r.free(); n != 20 {
		t.Errorf("%d are free, and nothing was decided", n)
	}
	must[Disabled](t, r, Disable{RequestID: "d", Selector: zoneA, ExpireAt: start.Add(time.Minute)})
	r.core.limits.sweep = workOfMove
	r.now = start.Add(time.Minute)
	r.step(nil)
	r.commit(len(r.effects))
	if n := r.free(); n == 20 {
		t.Error("all came back in one step")
	}
	r.failOver()
	if n := r.free(); n != 20 {
		t.Errorf("%d are free", n)
	}
}

// A request that ends while the executors of another are put back is not forgotten.
func TestEnableWhileExecutorsComeBack(t *testing.T) {
	r := zoned()
	must[Disabled](t, r, Disable{RequestID: "zone", Selector: zoneA})
	must[Disabled](t, r, Disable{RequestID: "one", Selector: Selector{Attributes: map[string]string{"serial": "h00"}}})
	r.ask(Enable{RequestID: "e1", DisableRequestID: "zone"})
	for r.free() < 3 {
		r.step(nil)
	}
	r.ask(Enable{RequestID: "e2", DisableRequestID: "one"})
	r.settle()
	if n := r.free(); n != 20 {
		t.Errorf("%d are free", n)
	}
}

// An executor with workers that comes under a request while others are taken out
// for it has its jobs told like those of the others.
func TestDisableInStepsTellsOfWhatComesMeanwhile(t *testing.T) {
	r := zoned()
	away := zonedExecutor("x")
	away.Attributes["zone"] = "b"
	r.ready(away)
	k := cpu(1)
	k.Attributes = map[string]string{"zone": "b"}
	expectGranted(t, r.pass(r.queue("u", 1, k)))
	told := len(r.events)
	r.ask(Disable{RequestID: "d", Selector: zoneA})
	for r.free() > 17 {
		r.step(nil)
	}
	moved := zonedExecutor("x")
	moved.Attributes["serial"], moved.Address, moved.Nonce = "h00", "x:7200", "n2"
	r.ask(moved)
	r.settle()
	if n := len(r.events) - told; n != 1 || r.events[told].Kind != model.EventExecutorDisabled || r.events[told].UID != "u" {
		t.Errorf("%+v", r.events[told:])
	}
}

// A repeat completes a request that was cut, and its round is taken back: whoever
// asked first is answered, too.
func TestARepeatOfALateDisableIsTakenBack(t *testing.T) {
	r := zoned()
	first := r.ask(Disable{RequestID: "d", Selector: zoneA})
	r.inputs = nil // of a round that is over
	r.core.limits.sweep = 1 << 14
	r.ask(Disable{RequestID: "d", Selector: zoneA})
	delete(r.replies, first) // as it is not durable
	r.abandon()
	r.settle()
	if _, ok := r.replies[first]; !ok {
		t.Error("the first call is never answered")
	}
}
