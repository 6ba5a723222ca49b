package inventory

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// If two copies of an agent have the same ID, the newer incarnation wins. The older copy
// gets an error and does not take the ID back; otherwise the two copies would take turns.
func TestPitfallTwoCopiesOfOneAgent(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(smallAgent("h1", "n1"))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1))))
	old, _ := r.core.Executor("h1")
	r.ready(smallAgent("h1", "n2"))
	if _, err := r.do(Announce{"h1", old.Incarnation, 9, 0, false, ""}); !fault.Is(err, fault.ReasonOtherIncarnation) {
		t.Fatalf("the older copy got %v", err)
	}
	if _, err := r.do(smallAgent("h1", "n1")); !fault.Is(err, fault.ReasonOtherAgent) {
		t.Fatalf("registration of the older copy: %v", err)
	}
	if v, _ := r.core.Executor("h1"); v.Workers != 1 || v.State != model.ExecutorReady ||
		v.Incarnation <= old.Incarnation || v.Ordinal != old.Ordinal {
		t.Fatalf("%+v", v)
	}
	// The next leader also knows that the older copy was replaced.
	r.failOver()
	if _, err := r.do(smallAgent("h1", "n1")); !fault.Is(err, fault.ReasonOtherAgent) {
		t.Fatalf("the older copy registers with a new leader: %v", err)
	}
	// The list of former nonces is bounded.
	for i := range 2 * model.MaxFormer {
		r.ready(smallAgent("h1", "m"+string(rune('a'+i))))
	}
	if v, _ := r.core.Executor("h1"); len(v.Former) != model.MaxFormer {
		t.Fatalf("%d former registrations", len(v.Former))
	}
}

// The last request of an earlier process arrived late, and no agent belongs to it. The live
// agent gets its ID back after a while, but not earlier.
func TestAnEarlierAgentReturnsWhenTheLaterOneIsAbsent(t *testing.T) {
	r := lead(DefaultConfig())
	for _, nonce := range []string{"lives", "ghost"} {
		if _, err := r.do(smallAgent("h1", nonce)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := r.do(smallAgent("h1", "lives")); !fault.Is(err, fault.ReasonOtherIncarnation) {
			t.Fatalf("registration while the other is present: %v", err)
		}
		r.pause(desertedAfter/3 - time.Second)
	}
	r.pause(3 * time.Second)
	r.ready(smallAgent("h1", "lives"))
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorReady || len(v.Former) != 1 {
		t.Fatalf("%+v", v)
	}
	if _, err := r.do(smallAgent("h1", "ghost")); !fault.Is(err, fault.ReasonOtherAgent) {
		t.Fatalf("registration of the earlier agent: %v", err)
	}
	// An executor that has just lost its presence has not been absent for long enough.
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
	if _, err := r.do(smallAgent("h1", "ghost")); !fault.Is(err, fault.ReasonOtherIncarnation) {
		t.Fatalf("registration of the earlier agent: %v", err)
	}
}

// Workers survive a restart of their agent. None of their capacity is freed when the agent
// disconnects or returns.
func TestPitfallWorkersSurviveTheirAgentsRestart(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 3000, 3))
	expectGranted(t, r.cycle(r.queue("u", 3, cpu(1000))))
	r.dispatch("u")
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
	again := small("h1", 3000, 3)
	again.Nonce = "n2"
	r.ready(again)
	if v, _ := r.core.Executor("h1"); v.Workers != 3 || v.Used["cpu"] != 3000 || len(r.leased("u")) != 3 {
		t.Fatalf("%+v", v)
	}
}

// A host that returns under a new ID is another executor without the leases of the old ID.
// The workers on the host belong to the old ID and use capacity that no lease of the new
// executor counts. Until these workers are stopped, nothing is granted on the new executor.
func TestPitfallHostBackUnderANewID(t *testing.T) {
	r := lead(DefaultConfig())
	g := small("old", 1000, 1)
	g.Host = "rack-1"
	r.ready(g)
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "old"})
	g.ID, g.Address, g.Nonce = "new", "new:7200", "n1"
	incarnation := must[Registered](t, r, g).Incarnation
	must[Announced](t, r, Announce{"new", incarnation, 9, 1, true, ""})
	if o := r.cycle(r.queue("v", 1, cpu(1000)))[0]; o.Result != model.NoFit {
		t.Fatalf("%+v while a worker of the old executor is running", o)
	}
	if v, _ := r.core.Executor("new"); v.State != model.ExecutorRegistered || v.Workers != 0 {
		t.Fatalf("%+v", v)
	}
	must[Announced](t, r, Announce{"new", incarnation, 9, 0, false, ""})
	was, _ := r.core.Executor("old")
	is, _ := r.core.Executor("new")
	if is.Ordinal == was.Ordinal || is.Workers != 0 || was.Workers != 1 {
		t.Fatalf("old %+v, new %+v", was, is)
	}
	expectGranted(t, r.cycle(r.entry("v")))
}

// If capacity shrinks while workers use it, the workers keep what they use. Nothing is
// granted on the executor, and no free amount is negative. The state is a finding until
// there is free capacity again.
func TestCapacityShrinksUnderWorkers(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	expectGranted(t, r.cycle(r.queue("u", 4, cpu(1000))))
	r.dispatch("u")
	less := small("h1", 2000, 4)
	less.Nonce = "n2"
	r.ready(less)
	if free := r.core.Stats().Free; len(free) != 0 {
		t.Errorf("free is %v", free)
	}
	f := r.core.Findings(r.now)
	if len(f) != 1 || f[0].Kind != FindingOvercommitted || f[0].Action == "" {
		t.Fatalf("%+v", f)
	}
	for _, check := range r.core.Explain("", cpu(1), 1).Checks {
		if check.Have < "0" {
			t.Errorf("%+v", check)
		}
	}
	r.end("u", model.WorkerCompleted, 0, 1, 2)
	r.catchUp()
	r.settle()
	if f := r.core.Findings(r.now); len(f) != 0 {
		t.Errorf("findings after enough workers ended: %+v", f)
	}
	expectGranted(t, r.cycle(r.queue("v", 1, cpu(1000))))
}

// The same holds if the executor no longer has one resource and has a new one.
func TestResourceIsRemovedUnderWorkers(t *testing.T) {
	r := lead(DefaultConfig())
	g := small("h1", 4000, 4)
	g.Resources["gpu"] = 2
	r.ready(g)
	k := cpu(1000)
	k.Resources["gpu"] = 1
	expectGranted(t, r.cycle(r.queue("u", 1, k)))
	bare := small("h1", 4000, 4)
	bare.Nonce, bare.Resources["fpga"] = "n2", 1
	r.ready(bare)
	if f := r.core.Findings(r.now); len(f) != 1 || f[0].Message != "uses more than its capacity: gpu 1 of 0" {
		t.Fatalf("%+v", f)
	}
	if o := r.cycle(r.queue("v", 1, cpu(1)))[0]; o.Result != model.NoFit {
		t.Fatalf("%+v", o)
	}
}

// If an executor returns with other attributes or another SKU, it keeps its workers.
// Searches match its new attributes and SKU.
func TestExecutorChangesKind(t *testing.T) {
	r := lead(DefaultConfig())
	g := small("h1", 4000, 4)
	g.Attributes = map[string]string{"zone": "a", "pool": "day"}
	r.ready(g)
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	g.Nonce, g.SKU, g.Attributes = "n2", "large", map[string]string{"zone": "b", "pool": "night"}
	r.ready(g)
	v, _ := r.core.Executor("h1")
	if v.Workers != 1 || v.SKU != "large" || len(v.Pools) != 1 || v.Pools[0] != "night" {
		t.Fatalf("%+v", v)
	}
	for _, test := range []struct {
		uid    string
		k      constraint.Constraints
		reason fault.Reason
	}{
		{"sku", constraint.Constraints{SKU: "small"}, fault.ReasonNoMatchingSKU},
		{"zone", constraint.Constraints{Attributes: map[string]string{"zone": "a"}}, fault.ReasonNoMatchingExecutor},
		{"now", constraint.Constraints{SKU: "large", Attributes: map[string]string{"zone": "b"}, Pools: []string{"night"}},
			""},
	} {
		if o := r.cycle(r.queue(test.uid, 1, test.k))[0]; o.Reason != test.reason {
			t.Errorf("%s: %+v", test.uid, o)
		}
	}
}

// The leases of a LOST executor keep their capacity until the assigner has recorded the
// workers as LOST. If the assigner does not do that, the core reports a finding.
func TestLostWithWorkersIsAFinding(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	expectGranted(t, r.cycle(r.queue("u", 1, cpu(1000))))
	r.dispatch("u")
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
	r.pause(time.Minute)
	if v, _ := r.core.Executor("h1"); v.State != model.ExecutorLost || v.Workers != 1 {
		t.Fatalf("%+v", v)
	}
	if f := r.core.Findings(r.now); len(f) != 0 {
		t.Errorf("the assigner has had no time: %+v", f)
	}
	r.pause(lostWithWorkersAfter)
	if f := r.core.Findings(r.now); len(f) != 1 || f[0].Kind != FindingLostWithWorkers || f[0].Object != "h1" {
		t.Errorf("%+v", f)
	}
	r.end("u", model.WorkerLost, 0)
	r.catchUp()
	r.settle()
	if f := r.core.Findings(r.now); len(f) != 0 {
		t.Errorf("its worker is LOST, and %+v", f)
	}
}

// The metrics count a change once, when it is durable.
func TestMetricsCountDurableChanges(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 3000, 3))
	r.ready(small("h2", 1000, 1))
	entry := r.queue("u", 2, cpu(1000))
	r.ask(model.Cycle{Term: r.registryTerm(), Number: 1, Candidates: []model.Candidate{entry}})
	if f := r.core.Metrics(r.now); len(f.Attempts) != 0 {
		t.Errorf("counted before the change is durable: %+v", f.Attempts)
	}
	r.abandon()
	r.settle()
	r.cycle(r.queue("big", 9, cpu(1000)))
	r.dispatch("u")
	r.now = r.now.Add(time.Minute)
	r.end("u", model.WorkerCompleted, 0)
	r.catchUp()
	r.settle()
	r.end("u", model.WorkerCompleted, 1)
	r.catchUp()
	r.settle()
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h2"})
	r.pause(time.Minute)
	f := r.core.Metrics(r.now)
	if f.Attempts[Attempt{model.Granted, ""}] != 1 || f.Attempts[Attempt{model.NoFit,
		fault.ReasonInsufficientCapacity}] != 1 || len(f.Attempts) != 2 {
		t.Errorf("attempts %+v", f.Attempts)
	}
	if f.LeaseDurations.Count() != 1 || f.LeaseDurations.Sum != time.Minute {
		t.Errorf("leases lasted %+v", f.LeaseDurations)
	}
	if f.Losses != 1 || f.Executors[SKUState{"small", model.ExecutorLost}] != 1 ||
		f.Executors[SKUState{"small", model.ExecutorReady}] != 1 {
		t.Errorf("%+v", f)
	}
	if f.Capacity["cpu"] != 3000 || f.Used["cpu"] != 0 || f.Leases != 0 {
		t.Errorf("%+v", f)
	}
}

// A lease of several chunks ends with its last chunk. The metrics count its end once.
func TestLeaseOfManyChunksCountsOnce(t *testing.T) {
	const workers = model.LeaseChunkSize + 1
	r := lead(DefaultConfig())
	r.ready(small("h1", workers, workers))
	expectGranted(t, r.cycle(r.queue("u", workers, cpu(1))))
	r.dispatch("u")
	all := make([]int32, workers)
	for i := range all {
		all[i] = int32(i)
	}
	for want, ended := range [][]int32{all[:model.LeaseChunkSize], all} {
		r.end("u", model.WorkerCompleted, ended...)
		r.catchUp()
		r.settle()
		if f := r.core.Metrics(r.now); f.LeaseDurations.Count() != uint64(want) || f.Leases != 1-want {
			t.Errorf("%d ended, %d counted, %d left", len(ended), f.LeaseDurations.Count(), f.Leases)
		}
	}
}
