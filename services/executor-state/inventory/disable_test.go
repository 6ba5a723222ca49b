package inventory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// must sends a request, commits all effects and returns the value of the reply.
func must[T any](t *testing.T, r *rig, request any) T {
	t.Helper()
	value, err := r.do(request)
	if err != nil {
		t.Fatal(err)
	}
	return value.(T)
}

// Another system kept "available" in two places: after disable, disconnect, reconnect and
// expiry, an executor was listed as free but was not in the free index. In this test, the
// executor also has a worker. Its return, the end of the worker and the expiry happen in
// any order.
func TestPitfallListedFreeButNotInTheFreeIndex(t *testing.T) {
	comeBack := func(r *rig) {
		again := smallAgent("h1", "n2")
		if _, err := r.do(again); err != nil {
			t.Fatal(err)
		}
		v, _ := r.core.Executor("h1")
		must[Announced](t, r, Announce{"h1", v.Incarnation, 8, 0, false, ""})
	}
	end := func(r *rig) {
		r.end("u", model.WorkerCompleted, 0)
		r.catchUp()
		r.settle()
	}
	expire := func(r *rig) { r.pause(30 * time.Second) }
	orders := map[string][]func(*rig){
		"back, ended, expired":           {comeBack, end, expire},
		"back, expired, ended":           {comeBack, expire, end},
		"ended, back, expired":           {end, comeBack, expire},
		"ended, expired, back":           {end, expire, comeBack},
		"expired, back, ended":           {expire, comeBack, end},
		"expired, ended, back":           {expire, end, comeBack},
		"back, a new leader, and expiry": {comeBack, (*rig).failOver, end, expire},
	}
	for name, order := range orders {
		r := lead(DefaultConfig())
		r.ready(smallAgent("h1", "n1"))
		expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
		r.dispatch("u")
		must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: []string{"h1"}},
			ExpireAt: r.now.Add(30 * time.Second)})
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
		for _, step := range order {
			step(r)
		}
		v, _ := r.core.Executor("h1")
		if v.State != model.ExecutorReady || len(v.Disabled) != 0 || v.Workers != 0 {
			t.Fatalf("%s: listed as %+v", name, v)
		}
		if o := r.cycle(r.queue("next", 1, cpu(1000))); o[0].Result != model.Granted {
			t.Errorf("%s: listed free, and %+v", name, o[0])
		}
	}
}

// Another system dropped a broader disable request for a narrower one, and ignored the
// later expiry. In Berth, each request counts.
func TestPitfallOverlappingDisablesCountEach(t *testing.T) {
	r := lead(DefaultConfig())
	h1, h2 := small("h1", 1, 1), small("h2", 1, 1)
	h1.Attributes, h2.Attributes = map[string]string{"zone": "a"}, map[string]string{"zone": "a"}
	r.ready(h1)
	r.ready(h2)
	in := start.Add
	for _, d := range []policy.Disable{
		{RequestID: "broad", Selector: policy.Selector{Attributes: map[string]string{"zone": "a"}},
			ExpireAt: in(2 * time.Minute)},
		{RequestID: "narrow", Selector: policy.Selector{IDs: []string{"h1"}}, ExpireAt: in(time.Minute)},
		{RequestID: "later", Selector: policy.Selector{IDs: []string{"h1"}}, ExpireAt: in(3 * time.Minute)},
	} {
		must[policy.Disabled](t, r, d)
	}
	for _, want := range []string{"h1 3, h2 1", "h1 2, h2 1", "h1 1, h2 0", "h1 0, h2 0"} {
		v1, _ := r.core.Executor("h1")
		v2, _ := r.core.Executor("h2")
		if got := fmt.Sprintf("h1 %d, h2 %d", len(v1.Disabled), len(v2.Disabled)); got != want {
			t.Errorf("after %v requests hold: %s, want %s", r.now.Sub(start), got, want)
		}
		r.pause(time.Minute)
	}
}

// Another system restored expired disables one by one at start, which blocked heartbeats.
func TestPitfallExpiredDisablesDoNotBlockHeartbeats(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StepLimit = 10
	r := lead(cfg)
	r.ready(small("h1", 1, 1))
	for i := range 35 {
		r.write(&model.Disable{ID: fmt.Sprintf("d%02d", i), IDs: []string{"h1"}, ExpireAt: start.Add(time.Second),
			CreatedAt: start})
	}
	r.now = start.Add(time.Minute)
	effects := r.effects
	r.core = New(cfg)
	for ref, k := range r.keys {
		r.core.Step(r.now, model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	r.unseen = nil
	r.step(model.Elected{Term: r.rev + 1, Revision: r.rev})
	if n := len(r.effects) - len(effects); n != cfg.StepLimit {
		t.Fatalf("the first step ends %d requests, want %d", n, cfg.StepLimit)
	}
	// A heartbeat is processed between the steps.
	v, _ := r.core.Executor("h1")
	r.ask(Announce{"h1", v.Incarnation, 99, 0, false, ""})
	r.settle()
	if v, _ := r.core.Executor("h1"); len(v.Disabled) != 0 || len(r.inputs) != 0 {
		t.Fatalf("still disabled: %+v", v)
	}
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1))))
}

// Another system picked idle hosts for removal and disabled them in two steps, and the
// hosts were allocated in between. In this test, a cycle and a claim arrive in one round in
// either order, and the round may be abandoned once.
func TestPitfallClaimedIsNotAllocatedInBetween(t *testing.T) {
	for _, claimFirst := range []bool{true, false} {
		for _, abandoned := range []bool{true, false} {
			r := lead(DefaultConfig())
			r.ready(small("h1", 1, 1))
			r.ready(small("h2", 1, 1))
			cycle := model.Cycle{Term: r.registryTerm(), Number: 1, Candidates: []model.Candidate{r.queue("u", 1, cpu(1))}}
			requests := []any{cycle, policy.Claim{RequestID: "c", SKU: "small", Max: 2}}
			if claimFirst {
				slices.Reverse(requests)
			}
			tokens := []uint64{r.ask(requests[0]), r.ask(requests[1])}
			if abandoned {
				r.effects = nil
				r.inputs = nil
				r.step(model.Abandoned{})
				tokens = []uint64{r.ask(requests[0]), r.ask(requests[1])}
			}
			r.settle()
			claimed, _ := r.replies[tokens[0]].Value.(policy.Claimed)
			if !claimFirst {
				claimed = r.replies[tokens[1]].Value.(policy.Claimed)
			}
			leased := map[uint32]bool{}
			for _, p := range r.leased("u") {
				leased[p.Ordinal] = true
			}
			for _, id := range claimed.Executors {
				if v, _ := r.core.Executor(id); leased[v.Ordinal] || v.Workers != 0 {
					t.Errorf("%s is claimed and leased", id)
				}
			}
			if want := 2; len(claimed.Executors)+len(leased) != want {
				t.Errorf("claimed %v, leased %d of %d", claimed.Executors, len(leased), want)
			}
		}
	}
}

// A job with very many leases on one executor gets its events in several transactions. Each
// worker is reported once, even if the leader changes in between.
func TestJobsGetEventsOnceInBoundedSteps(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1000))
	r.ready(small("h10", 1000, 1000))
	var entries []model.Candidate
	for i := range 150 {
		entries = append(entries, r.queue(fmt.Sprintf("u%03d", i), 2, cpu(1)))
	}
	expectGranted(t, r.cycle(entries...))
	r.events = nil
	r.ask(policy.Drain{ID: "h1", RequestID: "d"})
	r.commit(1)
	r.step(nil)
	if n := len(r.effects[0].Events); n != policy.EventsPerEffect {
		t.Fatalf("%d events in one effect", n)
	}
	r.commit(1)
	r.failOver()
	told := map[string]int{}
	for _, e := range r.events {
		if e.Kind != model.EventExecutorDisabled || e.Count != 2 || e.Reason != fault.ReasonExecutorDraining {
			t.Fatalf("%+v", e)
		}
		told[e.UID]++
	}
	for _, e := range entries {
		if told[e.UID] != 1 {
			t.Errorf("%s got %d events, want 1", e.UID, told[e.UID])
		}
	}
	if d := r.core.disableRecord("d"); !d.ReportedAll {
		t.Errorf("not all events were written: %+v", d)
	}
}

// Undoing many requests takes many effects. Each effect fits in a transaction.
func TestEnableOfManyIsManyEffects(t *testing.T) {
	r := lead(DefaultConfig())
	var ids []string
	for i := range 200 {
		id := fmt.Sprintf("h%03d", i)
		ids = append(ids, id)
		r.ready(small(id, 1, 1))
		must[ExecutorView](t, r, policy.Drain{ID: id, RequestID: "d-" + id})
	}
	r.ask(policy.Enable{RequestID: "e", Selector: policy.Selector{IDs: ids}})
	for _, effect := range r.effects {
		if len(effect.Puts) > 2 {
			t.Fatalf("%d puts in one effect", len(effect.Puts))
		}
	}
	r.settle()
	if undone := must[policy.Enabled](t, r, policy.Enable{RequestID: "e",
		Selector: policy.Selector{IDs: ids}}); undone.Undone != 200 {
		t.Errorf("undone %d", undone.Undone)
	}
	for _, id := range ids {
		if v, _ := r.core.Executor(id); v.Draining || len(v.Disabled) != 0 {
			t.Fatalf("%+v", v)
		}
	}
}

func TestSelectorsAreBounded(t *testing.T) {
	r := lead(DefaultConfig())
	ids := make([]string, policy.MaxSelected+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("h%d", i)
	}
	for name, test := range map[string]struct {
		request any
		field   string
	}{
		"ids": {policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: ids}}, "selector.ids"},
		"reason": {policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: ids[:1]},
			Reason: string(make([]byte, policy.MaxReason+1))}, "reason"},
		"attribute": {policy.Disable{RequestID: "d", Selector: policy.Selector{Attributes: map[string]string{"_": "x"}}},
			"selector.attributes._"},
		"enable ids": {policy.Enable{RequestID: "d", Selector: policy.Selector{IDs: ids}}, "selector.ids"},
		"drain":      {policy.Drain{RequestID: "d"}, "id"},
		"claim":      {policy.Claim{RequestID: "d", SKU: "s", Max: policy.MaxSelected + 1}, "max"},
		"in past":    {policy.Claim{RequestID: "d", SKU: "s", Max: 1, ExpireAt: start}, "expireTime"},
	} {
		_, err := r.do(test.request)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || f.Fields[0].Name != test.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: ids[:policy.MaxSelected]}})
}

// An autoscaler may undo only claims, by their IDs.
func TestOnlyClaimsAreUndone(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1, 1))
	r.ready(small("h2", 1, 1))
	must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: []string{"h1"}}})
	must[ExecutorView](t, r, policy.Drain{ID: "h1", RequestID: "drain"})
	must[policy.Claimed](t, r, policy.Claim{RequestID: "c", SKU: "small", Max: 1})
	for name, request := range map[string]policy.Enable{
		"a disable":  {RequestID: "e", DisableRequestID: "d", ClaimOnly: true},
		"a drain":    {RequestID: "e", DisableRequestID: "drain", ClaimOnly: true},
		"a selector": {RequestID: "e", Selector: policy.Selector{IDs: []string{"h2"}}, ClaimOnly: true},
	} {
		if _, err := r.do(request); fault.Of(err) == nil || fault.Of(err).Kind != fault.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e := must[policy.Enabled](t, r, policy.Enable{RequestID: "e", DisableRequestID: "c",
		ClaimOnly: true}); e.Undone != 1 {
		t.Errorf("%d claims are undone", e.Undone)
	}
	if e := must[policy.Enabled](t, r, policy.Enable{RequestID: "e2", DisableRequestID: "unknown",
		ClaimOnly: true}); e.Undone != 0 {
		t.Errorf("%d requests are undone", e.Undone)
	}
}

// Two limits apply to the requests in force: one to the requests by attributes, and one to
// the names in all other requests together. A request that has ended no longer counts.
func TestRequestsInForceAreBounded(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h", 1, 1))
	refused := func(request any, field string) {
		t.Helper()
		_, err := r.do(request)
		if f := fault.Of(err); f == nil || f.Kind != fault.Exhausted || f.Reason != fault.ReasonTooLarge ||
			f.Fields[0].Name != field {
			t.Errorf("%T: %v", request, err)
		}
	}
	byKind := func(i int) policy.Disable {
		return policy.Disable{RequestID: fmt.Sprintf("k%d", i),
			Selector: policy.Selector{Attributes: map[string]string{"zone": fmt.Sprint(i)}}}
	}
	for i := range policy.MaxByAttributes {
		must[policy.Disabled](t, r, byKind(i))
	}
	refused(byKind(policy.MaxByAttributes), "selector.attributes")
	must[policy.Disabled](t, r, byKind(0)) // a repeat
	must[policy.Enabled](t, r, policy.Enable{RequestID: "e", DisableRequestID: "k7"})
	must[policy.Disabled](t, r, byKind(policy.MaxByAttributes))

	ids := make([]string, policy.MaxSelected)
	for i := range ids {
		ids[i] = fmt.Sprintf("h%d", i)
		r.ready(small(ids[i], 1, 1))
	}
	for i := range (policy.MaxNames - policy.ReservedNames) / policy.MaxSelected {
		must[policy.Disabled](t, r, policy.Disable{RequestID: fmt.Sprintf("d%d", i), Selector: policy.Selector{IDs: ids},
			ExpireAt: start.Add(time.Duration(1+i) * time.Hour)})
	}
	refused(policy.Disable{RequestID: "more", Selector: policy.Selector{IDs: ids[:1]}}, "selector.ids")
	refused(policy.Claim{RequestID: "more", SKU: "small", Max: 1}, "max")
	// The remaining names are reserved for drains. The test writes most of these drains to the
	// store directly, as earlier leaders would have.
	must[ExecutorView](t, r, policy.Drain{ID: "h", RequestID: "drain-0"})
	for i := range policy.ReservedNames / policy.MaxSelected {
		named := ids
		if i == 0 {
			named = ids[1:]
		}
		r.apply(&model.Disable{ID: fmt.Sprintf("drains-%d", i), IDs: named, Drain: true, ReportedAll: true, CreatedAt: start})
	}
	refused(policy.Drain{ID: "h", RequestID: "more"}, "id")
	must[policy.Enabled](t, r, policy.Enable{RequestID: "undo", DisableRequestID: "drain-0"})
	must[ExecutorView](t, r, policy.Drain{ID: "h", RequestID: "more"})
	r.pause(time.Hour)
	must[ExecutorView](t, r, policy.Drain{ID: "h", RequestID: "another"})
}

// The core accepts IDs without an executor, returns them in the answer and limits them
// separately. Made-up IDs therefore never keep an operator from disabling and draining.
func TestUnknownIDsAreReturnedAndBounded(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1, 1))
	r.ready(small("h2", 1, 1))
	got := must[policy.Disabled](t, r, policy.Disable{RequestID: "d",
		Selector: policy.Selector{IDs: []string{"x2", "h1", "x1"}}})
	if got.Executors != 1 || fmt.Sprint(got.Unknown) != "[x1 x2]" {
		t.Errorf("%+v", got)
	}
	again := must[policy.Disabled](t, r, policy.Disable{RequestID: "d",
		Selector: policy.Selector{IDs: []string{"x2", "h1", "x1"}}})
	if fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("repeated: %+v", again)
	}
	flood := func(n, ids int) error {
		made := make([]string, ids)
		for i := range made {
			made[i] = fmt.Sprintf("made-up-%d-%d", n, i)
		}
		_, err := r.do(policy.Disable{RequestID: fmt.Sprintf("flood-%d", n), Selector: policy.Selector{IDs: made}})
		return err
	}
	for n := range policy.MaxUnknown/policy.MaxSelected - 1 {
		if err := flood(n, policy.MaxSelected); err != nil {
			t.Fatal(err)
		}
	}
	err := flood(100, policy.MaxSelected)
	if f := fault.Of(err); err == nil || f.Kind != fault.Exhausted || f.Fields[0].Name != "selector.ids" {
		t.Errorf("one flood too many: %v", err)
	}
	if err := flood(101, policy.MaxSelected-2); err != nil { // x1 and x2 use two places
		t.Error(err)
	}
	// If an executor with one of these IDs registers or is enabled, the ID no longer uses a
	// place.
	r.ready(small("x1", 1, 1))
	if view, _ := r.core.Executor("x1"); len(view.Disabled) != 1 {
		t.Errorf("not disabled after its registration: %+v", view)
	}
	if err := flood(102, 2); err == nil {
		t.Error("a request beyond the limit was accepted")
	}
	must[policy.Enabled](t, r, policy.Enable{RequestID: "undo", Selector: policy.Selector{IDs: []string{"x2"}}})
	if err := flood(103, 2); err != nil {
		t.Error(err)
	}
	if got := must[policy.Disabled](t, r, policy.Disable{RequestID: "known",
		Selector: policy.Selector{IDs: []string{"h2"}}}); got.Executors != 1 {
		t.Errorf("%+v", got)
	}
	must[ExecutorView](t, r, policy.Drain{ID: "h2", RequestID: "drain"})
	if err := flood(104, 1); err == nil {
		t.Error("an unknown ID more than the maximum was accepted")
	}
}
