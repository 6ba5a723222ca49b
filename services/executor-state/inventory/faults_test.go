package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/policy"
)

// Each test describes a fault of an earlier system.

// In an earlier system, a failed batch kept its executors marked for a while. Many groups
// that retried at the same time starved each other.
func TestFailedBatchLeavesNoMarks(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 8000, 8))
	var entries []model.Candidate
	for i := range 20 {
		entries = append(entries, r.queue(fmt.Sprintf("big%d", i), 9, cpu(int64(100+i))))
	}
	before := dump(r.core)
	for _, o := range r.cycle(entries...) {
		if o.Result != model.NoFit || o.Fitting != 8 || o.Reason != fault.ReasonInsufficientCapacity {
			t.Fatalf("%+v", o)
		}
	}
	if dump(r.core) != before {
		t.Fatal("rejected requests changed the core")
	}
	entries = append(entries, r.queue("fits", 8, cpu(1)))
	expectGranted(t, r.cycle(entries...)[20:])
}

// In an earlier system, a late success of one reservation cleared the in-flight mark of
// another. The other reservation was sent again and leased twice.
func TestOneUIDIsNeverLeasedTwice(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 8000, 8))
	e := r.queue("u", 2, cpu(1000))
	// The candidate is twice in one cycle, and is sent again before the first grant is
	// durable.
	p := model.Cycle{Term: r.registryTerm(), Number: 1, Candidates: []model.Candidate{e, e}}
	first := r.ask(p)
	second := r.ask(p)
	if len(r.effects) != 1 {
		t.Fatalf("%d effects", len(r.effects))
	}
	if len(r.replies) != 2 { // the replies to register and announce
		t.Fatal("answered before the lease was durable")
	}
	r.settle()
	for _, token := range []uint64{first, second} {
		expectGranted(t, r.replies[token].Value.([]model.Outcome))
	}
	if n := len(r.leased("u")); n != 2 {
		t.Fatalf("%d workers are leased", n)
	}
}

// In an earlier system, an empty worker list at the head of the queue blocked its group
// permanently.
func TestMalformedCandidateBlocksNoOther(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 8000, 8))
	empty, less, good := r.queue("empty", 1, cpu(1)), r.queue("less", 1, cpu(-5)), r.queue("good", 1, cpu(1))
	empty.Workers = nil
	empty.Group, less.Group, good.Group = "g", "g", "g"
	outcomes := r.cycle(empty, less, good)
	for _, o := range outcomes[:2] {
		if o.Result != model.NoFit || o.Reason != fault.ReasonInvalid {
			t.Fatalf("%+v", o)
		}
	}
	expectGranted(t, outcomes[2:])
}

// If the sum of amounts overflows an int64, the request must not fit.
func TestHugeAmountsDoNotWrap(t *testing.T) {
	const huge = 1<<63 - 1
	r := lead(DefaultConfig())
	for i := range 3 {
		r.ready(small(fmt.Sprintf("h%d", i), huge, 4))
	}
	outcomes := r.cycle(r.queue("one", 4, cpu(huge)))
	if outcomes[0].Result != model.NoFit || outcomes[0].Fitting != 3 {
		t.Fatalf("%+v", outcomes[0])
	}
	expectGranted(t, r.cycle(r.queue("three", 3, cpu(huge))))
	if free := r.core.Stats().Free["cpu"]; free != 0 {
		t.Fatalf("%d cpu is free", free)
	}
}

// An earlier system kept "available" in two places. After a disconnect and a reconnect, an
// executor was listed as free but was not in the free index.
func TestListedReadyIsAllocatable(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	for i := range 3 {
		r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
		if v, _ := r.core.Executor("h1"); v.State != model.ExecutorUnreachable {
			t.Fatalf("state without presence: %v", v.State)
		}
		r.pause(time.Duration(i) * 50 * time.Second)
		incarnation := must[Registered](t, r, smallAgent("h1", "n1")).Incarnation
		if _, err := r.do(Announce{"h1", incarnation, int64(20 + i), 0, false, ""}); err != nil {
			t.Fatal(err)
		}
		if v, _ := r.core.Executor("h1"); v.State != model.ExecutorReady {
			t.Fatalf("state after the announcement: %v", v.State)
		}
		uid := fmt.Sprintf("u%d", i)
		expectGranted(t, r.cycle(r.queue(uid, 1, cpu(1000))))
		r.state(uid, model.Cancelled)
		r.catchUp()
		r.settle()
	}
}

// In an earlier system, executors with a worker that never started stayed in use forever.
func TestPitfallWorkerThatNeverStartedFreesItsCapacity(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	for i, end := range []model.WorkerState{model.WorkerFailed, model.WorkerLost, model.WorkerEvicted,
		model.WorkerCompleted} {
		uid := fmt.Sprintf("u%d", i)
		expectGranted(t, r.cycle(r.queue(uid, 1, cpu(1000))))
		r.dispatch(uid)
		r.end(uid, end, 0)
		r.catchUp()
		r.settle()
		if v, _ := r.core.Executor("h1"); v.Workers != 0 || len(v.Used) != 0 {
			t.Fatalf("after %v: %d workers, used %v", end, v.Workers, v.Used)
		}
	}
}

// In an earlier system, a new leader with a cold cache deleted every record as an orphan.
func TestColdViewDeletesNothing(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 2, cpu(1000))))
	// A standby also does not end requests and does not declare executors LOST.
	r.ready(small("h2", 4000, 4))
	must[policy.Disabled](t, r, policy.Disable{RequestID: "d", Selector: policy.Selector{IDs: []string{"h2"}},
		ExpireAt: r.now.Add(time.Minute)})
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h2"})
	// The standby sees the lease long before it sees the reservation.
	standby := New(DefaultConfig())
	reservation := refOf("u")
	for ref, k := range r.keys {
		if ref != reservation {
			if actions := standby.Step(r.now, model.Changed{Ref: ref, Record: k.record, Create: k.create,
				Mod: k.mod}); len(actions) > 0 {
				t.Fatalf("a standby acts: %+v", actions)
			}
		}
	}
	for _, event := range []model.Event{nil, model.Progress{Revision: 12}, nil} {
		if actions := standby.Step(r.now.Add(time.Hour), event); len(actions) > 0 {
			t.Fatalf("a standby acts: %+v", actions)
		}
	}
	if !standby.NextDeadline().IsZero() {
		t.Fatal("a standby waits for something")
	}
	k := r.keys[reservation]
	standby.Step(r.now, model.Changed{Ref: reservation, Record: k.record, Create: k.create, Mod: k.mod})
	if actions := standby.Step(r.now, model.Elected{Term: r.rev + 1, Revision: r.rev}); len(actions) > 0 {
		t.Fatalf("the new leader deleted a lease that is being dispatched: %+v", actions)
	}
}

// A transaction has at most 128 operations and 1.5 MiB. An earlier system used a key for
// each worker, so batches of more than about 60 workers failed.
func TestLargestBatchIsOneSmallEffect(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 50 {
		r.ready(small(fmt.Sprintf("h%02d", i), 1000, 1000))
	}
	e := r.queue("u", model.MaxWorkers, cpu(1))
	token := r.ask(model.Cycle{Term: r.registryTerm(), Number: 1, Candidates: []model.Candidate{e}})
	if len(r.effects) != 1 {
		t.Fatalf("%d effects", len(r.effects))
	}
	effect := r.effects[0]
	if ops := len(effect.Puts) + len(effect.Events); ops > 50 {
		t.Fatalf("%d operations", ops)
	}
	if event := effect.Events[0]; event.Count != model.MaxWorkers || len(event.Workers) != 0 {
		t.Fatalf("event of %d workers names %d", event.Count, len(event.Workers))
	}
	for _, record := range effect.Puts {
		chunk := record.(*model.LeaseChunk)
		if len(chunk.Workers) > model.LeaseChunkSize || chunk.Chunks != 49 || chunk.Total != model.MaxWorkers {
			t.Fatalf("chunk %d: %d workers, %d chunks, %d in total", chunk.Chunk, len(chunk.Workers), chunk.Chunks, chunk.Total)
		}
	}
	r.settle()
	expectGranted(t, r.replies[token].Value.([]model.Outcome))
	// Chunk 0 becomes empty first, but the lease stays the same.
	lease := r.replies[token].Value.([]model.Outcome)[0].Lease
	r.dispatch("u")
	first := make([]int32, 1500)
	for i := range first {
		first[i] = int32(i)
	}
	r.end("u", model.WorkerCompleted, first...)
	r.catchUp()
	r.settle()
	if got := len(r.leased("u")); got != model.MaxWorkers-1500 {
		t.Fatalf("%d workers left", got)
	}
	if again := r.cycle(e)[0]; again.Result != model.Granted || again.Lease != lease {
		t.Fatalf("repeated: %+v, want lease %d", again, lease)
	}
}

// If any lease names an ordinal, the core never assigns that ordinal to another executor.
func TestOrdinalsAreNeverReused(t *testing.T) {
	r := newRig(DefaultConfig())
	r.write(leaderKey{model.ServiceRegistry})
	r.write(&model.TaskHeader{UID: "old"})
	r.write(&model.LeaseChunk{UID: "old", Chunks: 1, Each: resource.Vector{"cpu": 1},
		Workers: []model.Placement{{Ordinal: 41}}})
	r.catchUp()
	r.elect()
	r.ready(small("h1", 1, 1))
	r.ready(small("h2", 1, 1))
	for id, want := range map[string]uint32{"h1": 42, "h2": 43} {
		if v, _ := r.core.Executor(id); v.Ordinal != want {
			t.Fatalf("%s has ordinal %d, want %d", id, v.Ordinal, want)
		}
	}
}

// A view that is behind delivers records that have been overwritten in the meantime.
func TestOlderRecordsChangeNothing(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	live := model.Ref{Kind: model.KindLive, ID: "h1"}
	before := dump(r.core)
	r.step(model.Changed{Ref: live, Mod: r.keys[live].mod - 1})
	if dump(r.core) != before {
		t.Fatal("the deletion of an earlier presence removed the current one")
	}
	// The old presence is deleted while a new presence is not durable yet. The core applies
	// the deletion below the new presence.
	view, _ := r.core.Executor("h1")
	r.ask(Announce{"h1", view.Incarnation, 99, 0, false, ""})
	r.drop(live)
	r.unseen, r.effects = nil, nil
	r.step(model.Changed{Ref: live, Mod: r.rev})
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorReady {
		t.Fatalf("state with a presence in flight: %v", v.State)
	}
	r.step(model.Abandoned{})
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorUnreachable {
		t.Fatalf("state after the failed transaction: %v", v.State)
	}
}

// Even thousands of orphaned leases do not delay an announcement.
func TestWorkOfAStepIsBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StepLimit = 10
	r := newRig(cfg)
	for i := range 25 {
		r.write(&model.LeaseChunk{UID: fmt.Sprintf("u%02d", i), Chunks: 1, Workers: []model.Placement{{Ordinal: 1}}})
	}
	r.catchUp()
	r.step(model.Elected{Term: 100, Revision: 99})
	for _, want := range []int{10, 20, 25} {
		if len(r.effects) != want {
			t.Fatalf("%d effects, want %d", len(r.effects), want)
		}
		if due := r.core.NextDeadline(); want < 25 && !due.Equal(r.now) {
			t.Fatalf("more is to be done, and the deadline is %v", due)
		}
		r.step(nil)
	}
	if due := r.core.NextDeadline(); !due.IsZero() {
		t.Fatalf("all is done, and the deadline is %v", due)
	}
}

func TestRegisterNamesEveryWrongField(t *testing.T) {
	r := lead(DefaultConfig())
	_, err := r.do(Register{
		ID: "-x", SKU: "a b", Generation: -1,
		Resources:  resource.Vector{"cpu": -1, "": 3},
		Attributes: map[string]string{"Zone": "a", "zone": "b", "_": "c"},
	})
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Kind != fault.Invalid {
		t.Fatalf("%v", err)
	}
	want := []string{"id", "address", "sku", "nonce", "generation", "attributes._", "attributes.zone", "resources.",
		"resources.cpu"}
	var got []string
	for _, f := range refused.Fields {
		got = append(got, f.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("fields %q, want %q", got, want)
	}
	if len(r.keys) != 1 {
		t.Fatal("a refused registration was stored")
	}
}

func TestSlotsDefaultToOne(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(Register{ID: "h1", Resources: resource.Vector{"cpu": 4000}})
	r.ready(Register{ID: "h2", Resources: resource.Vector{"cpu": 4000, "slots": 2}})
	outcome := r.cycle(r.queue("u", 4, cpu(1)))[0]
	if outcome.Fitting != 3 || outcome.Message != "4 needed, 3 fit now; the fleet, if it were empty, could hold 3 of 4 workers" {
		t.Fatalf("%+v", outcome)
	}
}

func TestExecutorsArePagedAndFiltered(t *testing.T) {
	r := lead(DefaultConfig())
	for i := range 5 {
		g := small(fmt.Sprintf("h%d", i), 1, 1)
		if i%2 == 1 {
			g.SKU, g.Attributes = "large", map[string]string{"Pool": "Blue"}
		}
		r.ready(g)
	}
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h2"})
	for _, test := range []struct {
		f     Filter
		after string
		limit int
		want  string
	}{
		{Filter{}, "", 3, "[h0 h1 h2] true"},
		{Filter{}, "h2", 3, "[h3 h4] false"},
		{Filter{}, "h11", 1, "[h2] true"},
		{Filter{SKU: "LARGE"}, "", 2, "[h1 h3] false"},
		{Filter{Pool: "blue"}, "h1", 9, "[h3] false"},
		{Filter{State: model.ExecutorReady}, "h1", 9, "[h3 h4] false"},
		{Filter{State: model.ExecutorUnreachable}, "", 9, "[h2] false"},
	} {
		list, more := r.core.Executors(test.f, test.after, test.limit)
		var ids []string
		for _, v := range list {
			ids = append(ids, v.ID)
		}
		if got := fmt.Sprint(ids, more); got != test.want {
			t.Errorf("%+v after %q: %s, want %s", test.f, test.after, got, test.want)
		}
	}
	s := r.core.Stats()
	if s.Ready != 4 || s.Unreachable != 1 || s.Classes != 2 || s.Shapes != 2 || s.Blocks != 1 || s.Free["slots"] != 4 {
		t.Errorf("%+v", s)
	}
	if id, address, _, ok := r.core.Address(2); !ok || id != "h1" || address != "h1:7200" {
		t.Errorf("ordinal 2 is %s at %s", id, address)
	}
	if _, _, _, ok := r.core.Address(77); ok {
		t.Error("ordinal 77 belongs to an executor")
	}
}

func TestExplainNamesTheReasonForEach(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("busy", 1000, 1))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.ready(small("away", 1000, 1))
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "away"})
	r.ready(small("tiny", 10, 1))
	r.ready(small("shunned", 1000, 1))
	r.ready(small("fine", 1000, 1))
	for _, id := range []string{"shut", "leaving"} {
		r.ready(small(id, 1000, 1))
		must[policy.Disabled](t, r, policy.Disable{RequestID: id, Selector: policy.Selector{IDs: []string{id}}})
	}
	must[ExecutorView](t, r, policy.Drain{RequestID: "d", ID: "leaving"})
	r.ready(Register{ID: "other", SKU: "large"})
	k := constraint.Constraints{SKU: "small", Resources: resource.Vector{"cpu": 500, "slots": 1},
		Avoid: []string{"shunned"}}
	e := r.core.Explain("", k, 3)
	got := fmt.Sprintf("%d %d %s", e.Needed, e.Fitting, e.Reason)
	for _, c := range e.Checks {
		got += fmt.Sprintf("; %s %s/%s", c.Name, c.Have, c.Want)
	}
	want := "3 1 INSUFFICIENT_CAPACITY; avoid shunned/another executor; capacity.cpu 10/500; disabled disabled/not disabled; draining draining/not draining; free.cpu 0/500; full.slots 0/1; sku large/small; state UNREACHABLE/READY"
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// The core never places a worker on an executor that the caller avoids. It uses an executor
// that Berth avoids after a failure only if no other executor matches.
func TestRequestedAvoidIsStrict(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("a", 1000, 4))
	r.ready(small("b", 1000, 4))
	for _, test := range []struct {
		avoid, failed []string
		want          string
	}{
		{[]string{"a", "b"}, nil, "NO_FIT"},
		{nil, []string{"a", "b"}, "GRANTED a"},
		{[]string{"a"}, []string{"b"}, "GRANTED b"},
		{[]string{"a", "b"}, []string{"b"}, "NO_FIT"},
		{nil, []string{"a"}, "GRANTED b"},
	} {
		k := cpu(1)
		k.Avoid, k.AvoidFailed = test.avoid, test.failed
		picks, _ := choose(r.core, model.Key{}, k, 1)
		fitting := r.core.Explain("", k, 1).Fitting
		uid := fmt.Sprint(test.avoid, test.failed)
		got := strings.ToUpper(r.cycle(r.queue(uid, 1, k))[0].Result.String())
		if len(picks) > 0 {
			got += " " + picks[0].Executor.ID
		}
		if got != test.want || fitting != len(picks) {
			t.Errorf("avoid %v, failed %v: %s, %d fit, want %s", test.avoid, test.failed, got, fitting, test.want)
		}
	}
}

// An executor whose allow-lists refused a task stands for all executors with equal lists: the core does
// not wait for one of them, and uses none while an executor with other lists matches.
func TestEqualAllowListsAreAvoidedTogether(t *testing.T) {
	r := lead(DefaultConfig())
	for id, lists := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2", "e": "", "f": ""} {
		e := small(id, 1000, 1)
		e.AllowLists, e.Attributes = lists, map[string]string{"of": id}
		if id == "a" || id == "b" {
			e.Attributes["same"] = "yes"
		}
		r.ready(e)
	}
	r.cycle(r.queue("full", 1, func() constraint.Constraints {
		k := cpu(1000)
		k.Attributes = map[string]string{"of": "b"}
		return k
	}()))
	for _, test := range []struct {
		avoid, failed, refused []string
		same                   string
		want                   string
	}{
		// The executor with the same lists has no capacity; the one that refused is used at once.
		{nil, []string{"a"}, []string{"a"}, "yes", "a"},
		{nil, []string{"a"}, nil, "yes", "NO_FIT"},
		{nil, []string{"a"}, []string{"a"}, "", "c"},
		{nil, []string{"c"}, []string{"c"}, "", "a"},
		{[]string{"a"}, []string{"c"}, []string{"c"}, "", "e"},
		{[]string{"e", "f"}, []string{"c", "a"}, []string{"a", "c"}, "", "a"},
		// Unknown lists are not equal.
		{[]string{"a", "c", "d"}, []string{"e"}, []string{"e"}, "", "f"},
		{[]string{"a", "c", "d", "f"}, []string{"gone"}, []string{"gone"}, "", "e"},
	} {
		k := cpu(1000)
		k.Avoid, k.AvoidFailed, k.RefusedBy = test.avoid, test.failed, test.refused
		if test.same != "" {
			k.Attributes = map[string]string{"same": test.same}
		}
		got := "NO_FIT"
		if picks, _ := choose(r.core, model.Key{}, k, 1); len(picks) > 0 {
			got = picks[0].Executor.ID
		}
		if got != test.want {
			t.Errorf("avoid %v, failed %v, refused by %v: %s, want %s", test.avoid, test.failed, test.refused, got, test.want)
		}
	}
	// With other lists, the executor that is not idle is waited for, after its agent has registered again.
	k := cpu(1000)
	k.Attributes, k.AvoidFailed, k.RefusedBy = map[string]string{"same": "yes"}, []string{"a"}, []string{"a"}
	changed := small("b", 1000, 1)
	changed.AllowLists, changed.Nonce = "3", "again"
	changed.Attributes = map[string]string{"of": "b", "same": "yes"}
	r.ready(changed)
	if picks, _ := choose(r.core, model.Key{}, k, 1); len(picks) > 0 {
		t.Errorf("started on %s, which refuses the task", picks[0].Executor.ID)
	}
}

// The scarcest requested resource decides which executor fits best, whatever other
// resources the executors have. For example, executors have 4, 8 and 16 cores and equal
// memory. A worker with 4 cores leaves the larger executors free.
func TestTheScarcestRequestedResourceDecidesBestFit(t *testing.T) {
	r := lead(DefaultConfig())
	for id, cores := range map[string]int64{"a16": 16, "b8": 8, "c4": 4} {
		r.ready(Register{ID: id, Resources: resource.Vector{"cpu": cores * 1000, "memory": 64 << 30, "slots": 8}})
	}
	for _, test := range []struct {
		name     string
		request  resource.Vector
		n        int
		scarcest string
		want     string
	}{
		{"cpu alone", resource.Vector{"cpu": 4000, "slots": 1}, 1, "cpu", "[c4]"},
		{"cpu with some memory", resource.Vector{"cpu": 4000, "memory": 1 << 30, "slots": 1}, 1, "cpu", "[c4]"},
		{"three workers, one executor after the other", resource.Vector{"cpu": 4000, "memory": 1 << 30, "slots": 1}, 4,
			"cpu", "[c4 b8 b8 a16]"},
		// 64 GiB fit three times and 1 core 28 times. Memory is therefore scarcest, but equal on
		// all executors, so the cores decide.
		{"memory is scarcer and ties", resource.Vector{"cpu": 1000, "memory": 64 << 30, "slots": 1}, 2, "memory", "[c4 b8]"},
		// No worker fits on the executor with 4 cores, so its cores do not count. The other 24
		// cores are enough for 4 workers, and the 16 slots for 2.
		{"an executor without free capacity does not count", resource.Vector{"cpu": 6000, "slots": 8}, 1, "slots", "[b8]"},
	} {
		k := constraint.Constraints{Resources: test.request}
		picks, _ := choose(r.core, model.Key{}, k, test.n)
		if got := fmt.Sprint(chosen(picks)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if e := r.core.Explain("", k, test.n); e.Scarcest != test.scarcest {
			t.Errorf("%s: %s is the scarcest, want %s", test.name, e.Scarcest, test.scarcest)
		}
	}
	if e := r.core.Explain("", constraint.Constraints{Resources: resource.Vector{"cpu": 17000}}, 1); e.Scarcest != "" {
		t.Errorf("nothing fits, and %s is the scarcest", e.Scarcest)
	}
}

// An earlier system subtracted pending demand twice: from the idle executors and in the
// scaler. In Berth, idle counts all idle executors, effectively idle is what remains after
// demand, and the advice subtracts demand once.
func TestPitfallPendingIsSubtractedOnce(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: r.now})
	for _, id := range []string{"h1", "h2", "h3"} {
		r.ready(small(id, 1, 1))
	}
	must[model.SKU](t, r, PutSKU{model.SKU{Name: "small", Resources: resource.Vector{"cpu": 1, "slots": 1},
		Scale: &model.ScaleRule{MinIdle: 2}}})
	r.queue("u", 2, cpu(1))
	usage, err := r.core.Usage(r.now, "small")
	if err != nil {
		t.Fatal(err)
	}
	row := usage.SKUs[0]
	if row.Idle != 3 || row.PendingExecutors != 2 || row.EffectiveIdle != 1 || row.WantedSize != 3+2+2-3 {
		t.Errorf("%+v", row)
	}
}
