package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/policy"
)

// If a cycle is sent again after its lease was granted, the core answers it. This holds
// even if that lease ends before the rest of the cycle is durable, and later cycles are
// answered too.
func TestACycleIsAnsweredAfterALeaseOfItEnds(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("e1", 1000, 4))
	a := r.queue("a", 1, cpu(10))
	expectGranted(t, r.cycle(a))
	b := r.queue("b", 1, cpu(20))
	again := r.ask(model.Cycle{Term: r.registryTerm(), Number: r.rev, Cut: r.rev, Candidates: []model.Candidate{b, a}})
	r.state("a", model.Cancelled)
	for _, change := range r.unseen {
		r.step(change)
	}
	r.unseen = nil
	r.step(model.Progress{Revision: r.rev}) // the lease of a is released
	r.settle()
	reply, answered := r.replies[again]
	if !answered {
		t.Fatal("the cycle is never answered")
	}
	if o := reply.Value.([]model.Outcome); o[0].Result != model.Granted || o[1].Result != model.Stale {
		t.Errorf("outcome %+v", o)
	}
	expectGranted(t, r.cycle(r.queue("c", 1, cpu(30))))
}

// The events about a disabled executor fit in a transaction, for any number of workers and
// any length of IDs.
func TestDisabledEventsFitATransaction(t *testing.T) {
	r := lead(DefaultConfig())
	name := strings.Repeat("x", 240)
	for i := range 70 {
		id := fmt.Sprintf("%s-%02d", name, i)
		r.ready(small(id, 1000, 256))
		expectGranted(t, r.cycle(r.queue(fmt.Sprintf("u%02d", i), 256, constraint.Constraints{Attributes: nil})))
	}
	largest := 0
	told := len(r.events)
	r.measure = func(e model.Effect) {
		bytes := 0
		for _, event := range e.Events {
			value, err := wire.EncodeEvent(event, 1)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(value)
		}
		largest = max(largest, bytes)
	}
	ids := make([]string, 70)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%02d", name, i)
	}
	if _, err := r.do(policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: ids},
		ExpireAt: r.now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	r.pause(time.Minute)
	if n := len(r.events) - told; n != 70 {
		t.Errorf("%d events, want one for each executor", n)
	}
	if largest > 1<<20 {
		t.Errorf("an effect has %d bytes of events", largest)
	}
}

// An executor can have more workers than one step notifies. The executors after it still
// get their events.
func TestDisabledEventsContinueAfterALargeExecutor(t *testing.T) {
	r := lead(DefaultConfig())
	for _, id := range []string{"h1", "h2", "h3"} {
		r.ready(small(id, 1000, policy.WorkersPerStep+1))
		expectGranted(t, r.cycle(r.queue("u-"+id, policy.WorkersPerStep+1, constraint.Constraints{})))
	}
	told := len(r.events)
	must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: []string{"h1", "h2", "h3"}}})
	if n := len(r.events) - told; n != 3 || !r.core.disableRecord("d").ReportedAll {
		t.Errorf("%d events", n)
	}
}

// Spread by executor ignores the case of the attribute name.
func TestSpreadByExecutorInAnyCase(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 3 {
		r.ready(small(fmt.Sprintf("e%d", i), 1000, 4))
	}
	k := cpu(1)
	k.Spread = constraint.Spread{By: "Executor", Max: 1}
	expectGranted(t, r.cycle(r.queue("a", 3, k)))
}

// A drain does not state that the host has failed, so drained executors with workers are
// part of a mass loss like any other. A drain after the executor became absent does state a
// failure, and the executor becomes LOST.
func TestDrainedExecutorsWithWorkersArePartOfAMassLoss(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 10 {
		r.ready(small(fmt.Sprintf("e%d", i), 1000, 1))
	}
	expectGranted(t, r.cycle(r.queue("a", 10, cpu(1))))
	for i := range 10 {
		if _, err := r.do(policy.Drain{ID: fmt.Sprintf("e%d", i), RequestID: fmt.Sprintf("d%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: fmt.Sprintf("e%d", i)})
	}
	r.pause(10 * time.Minute)
	if s := r.core.Stats(); s.Lost != 0 {
		t.Errorf("%d are LOST", s.Lost)
	}
	if _, err := r.do(policy.Drain{ID: "e3", RequestID: "burnt"}); err != nil {
		t.Fatal(err)
	}
	r.pause(time.Minute)
	if v, _ := r.core.Executor("e3"); v.State != model.ExecutorLost || r.core.Stats().Lost != 1 {
		t.Errorf("drained after it became absent: state %v, %d LOST", v.State, r.core.Stats().Lost)
	}
}
