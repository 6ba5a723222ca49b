package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
)

// simpleFailure returns the first check that an executor fails. It looks only at that
// executor.
func simpleFailure(c *Core, o *simpleMatcher, h *host) string {
	k := o.k
	if ok, failed := withoutAvoided(k).Match(h.Class().Host()); !ok {
		return failed.Name + " " + failed.Have
	}
	short := func(have resource.Vector) string {
		for _, name := range k.Resources.Names() {
			if k.Resources[name] > have[name] {
				return fmt.Sprintf("%s %d", name, have[name])
			}
		}
		return ""
	}
	if lack := short(h.Record.Resources); lack != "" {
		return "capacity." + lack
	}
	allowed := h.Record.Resources
	for role, share := range h.Record.Reserved {
		if !strings.EqualFold(role, k.Role) {
			allowed = allowed.Plus(-1, share)
		}
	}
	if lack := short(allowed); lack != "" {
		return "role " + lack + " not set aside for others"
	}
	_, common, own := simpleFree(c, h, k.Role)
	switch {
	case slices.Contains(k.Avoid, h.ID) || o.others > 0 && simpleFailed(c, k, h):
		return "avoid " + h.ID
	case h.shown() != model.ExecutorReady:
		return "state " + h.shown().String()
	case h.Record.Draining:
		return "draining draining"
	case h.Withheld():
		return "disabled disabled"
	case common == nil:
		return "overcommitted " + h.Excess()
	case len(o.pinned) > 0 && k.SameShape && shapeOf(h) != o.shape():
		return "sameShape another shape"
	case !o.isAllowed(h):
		return fmt.Sprintf("spread %d", int64(k.Spread.Max)-o.spreadLeft(h))
	}
	if lack := short(common.Plus(1, own)); lack != "" {
		return "free." + lack
	}
	return ""
}

// separateTakers removes the executors that take some workers of a batch from the failed checks, and returns
// how many they are. All others are in want.
func separateTakers(got, want map[string]int) (takers int) {
	for check, n := range got {
		switch name, _, _ := strings.Cut(check, " "); {
		case strings.HasPrefix(name, "full."):
		case name == "spread", name == "sameShape":
			n -= want[check]
		default:
			continue
		}
		takers += n
		if got[check] -= n; got[check] == 0 {
			delete(got, check)
		}
	}
	return takers
}

func sumOf(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// An explanation counts classes and shapes. The result equals a count of single executors.
func TestExplainEqualsSimpleExplanation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}}
		tighten(t, w.core)
		drain := func() {
			w.ask(policy.Drain{ID: anyExecutor.Draw(t, "drained"), RequestID: fmt.Sprintf("d%d", w.token)})
		}
		disable := func() {
			w.ask(policy.Disable{RequestID: fmt.Sprintf("d%d", w.token),
				Selector: policy.Selector{IDs: []string{anyExecutor.Draw(t, "disabled")}}})
		}
		actions := []func(){w.register, w.register, w.announce, w.announce, w.announce, w.silence, w.enqueue, w.enqueue,
			w.offer, w.offer, w.cancel, drain, disable, w.putPool, w.deletePool}
		for range evenly(10, 30, 60).Draw(t, "steps") {
			evenly(actions...).Draw(t, "action")()
			w.settle()
			w.catchUp()
			w.settle()
		}
		k, uid := drawConstraints(t), "g:explained"
		key := keyOf(uid)
		w.apply(&model.Reservation{Key: key, UID: uid, State: model.Queued, Spec: model.Spec{Constraints: k}})
		o := newSimpleMatcher(w.core, simpleRunning(w.core, key, uid, nil), k, 1)
		want := map[string]int{}
		for h := range w.core.byID.All() {
			if failed := simpleFailure(w.core, o, h); failed != "" {
				want[failed]++
			}
		}
		n := evenly(1, 2, 4, 8).Draw(t, "n")
		e := w.core.Explain(uid, k, n)
		got := map[string]int{}
		for _, check := range e.Checks {
			got[check.Name+" "+check.Have] += check.Executors
		}
		if takers := len(w.core.hosts) - sumOf(want); 0 < e.Fitting && e.Fitting < n {
			if listed := separateTakers(got, want); listed != takers {
				t.Fatalf("%d of %d executors that take workers are listed: %+v", listed, takers, e)
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%+v\n got %v\nwant %v\n%s", k, got, want, dump(w.core))
		}
		if ids := simpleChoice(w.core, key, k, n); e.Fitting != len(ids) || (e.Reason == "") != (len(ids) == n) {
			t.Fatalf("%d of %d fit, explained %+v", len(ids), n, e)
		}
		if _, after, found := strings.Cut(e.Message, "empty, could hold "); found {
			var holds int
			if _, err := fmt.Sscan(after, &holds); err != nil || holds < e.Fitting || holds >= n {
				t.Fatalf("%d needed, explained %+v", n, e)
			}
		}
		if !slices.IsSortedFunc(e.Checks, func(a, b match.FailedCheck) int { return b.Executors - a.Executors }) {
			t.Fatalf("not the most executors first: %+v", e.Checks)
		}
	})
}

func TestExplanationsAreBounded(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 60 {
		r.ready(Register{ID: fmt.Sprintf("h%02d", i), SKU: fmt.Sprintf("s%02d", i/2)})
	}
	r.ready(Register{ID: "tiny", Attributes: map[string]string{"zone": "a"}})
	for i := range 60 {
		r.ready(Register{ID: fmt.Sprintf("z%02d", i), Attributes: map[string]string{"zone": fmt.Sprint(i)}})
	}
	e := r.core.Explain("", constraint.Constraints{Attributes: map[string]string{"zone": "b"}}, 1)
	if len(e.Checks) != 50 || e.Checks[0].Executors != 60 || e.Checks[1].Executors != 1 {
		t.Errorf("%d checks, the first of %d executors", len(e.Checks), e.Checks[0].Executors)
	}
}
