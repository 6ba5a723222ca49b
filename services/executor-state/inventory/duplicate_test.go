package inventory

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func withSecret(id, nonce, secret string) Register {
	g := smallAgent(id, nonce)
	g.SecretHash = secret
	return g
}

func wantReason(t *testing.T, r *rig, request any, want fault.Reason) {
	t.Helper()
	if _, err := r.do(request); !fault.Is(err, want) {
		t.Fatalf("%+v: want %s, got %v", request, want, err)
	}
}

func duplicates(r *rig) (objects []string) {
	for _, f := range r.core.Findings(r.now) {
		if f.Kind == FindingDuplicateAgent {
			objects = append(objects, f.Object)
		}
	}
	return objects
}

// A restarted agent has the same secret and takes over the executor at once.
func TestSameSecretSupersedesAtOnce(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(withSecret("h1", "n1", "s"))
	r.ready(withSecret("h1", "n2", "s"))
	if v, _ := r.core.Executor("h1"); v.Nonce != "n2" || v.State != model.ExecutorReady {
		t.Fatalf("%+v", v)
	}
	if d := duplicates(r); d != nil {
		t.Fatalf("findings of %v", d)
	}
}

// An agent with another secret, or without a secret, is rejected and reported in a finding.
// The executor does not change. Once the executor is LOST, the other agent may register it.
func TestAnotherSecretIsRefusedUntilLost(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(withSecret("h1", "n1", "s"))
	before, _ := r.core.Executor("h1")
	for _, secret := range []string{"other", ""} {
		wantReason(t, r, withSecret("h1", "m1", secret), fault.ReasonOtherAgent)
	}
	if after, _ := r.core.Executor("h1"); after.Incarnation != before.Incarnation || after.Nonce != "n1" ||
		after.State != model.ExecutorReady {
		t.Fatalf("%+v, was %+v", after, before)
	}
	if d := duplicates(r); len(d) != 1 || d[0] != "h1" {
		t.Fatalf("findings of %v", d)
	}
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
	r.pause(DefaultConfig().LostAfter - time.Millisecond)
	r.failOver()
	wantReason(t, r, withSecret("h1", "m1", "other"), fault.ReasonOtherAgent)
	r.pause(DefaultConfig().LostAfter)
	r.ready(withSecret("h1", "m1", "other"))
	if v, _ := r.core.Executor("h1"); v.SecretHash != "other" || v.State != model.ExecutorReady {
		t.Fatalf("%+v", v)
	}
	wantReason(t, r, withSecret("h1", "n1", "s"), fault.ReasonOtherAgent)
	r.pause(intruderFor)
	if d := duplicates(r); d != nil {
		t.Fatalf("findings after the last request of another agent: %v", d)
	}
}

// A record without a hash accepts the first secret that an agent registers.
func TestRecordWithoutASecretAcceptsTheFirst(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(smallAgent("h1", "n1"))
	r.ready(withSecret("h1", "n2", "s"))
	wantReason(t, r, withSecret("h1", "n3", "other"), fault.ReasonOtherAgent)
	wantReason(t, r, smallAgent("h1", "n4"), fault.ReasonOtherAgent)
}

// superseded registers an executor whose first agent was absent until LOST. A second,
// present agent then took over. It returns the announcement of the first agent.
func superseded(r *rig) Announce {
	r.ready(withSecret("h1", "n1", "s"))
	v, _ := r.core.Executor("h1")
	r.applyDeletion(model.Ref{Kind: model.KindLive, ID: "h1"})
	r.pause(DefaultConfig().LostAfter)
	r.ready(withSecret("h1", "m1", "other"))
	return Announce{ID: "h1", Incarnation: v.Incarnation, EtcdLease: 9, Nonce: "n1"}
}

func (r *rig) announceWith(t *testing.T, a Announce, workers int) Announced {
	t.Helper()
	a.Workers = workers
	return must[Announced](t, r, a)
}

// The first agent returns with workers and learns that it is superseded. Until the end of
// its workers is confirmed, nothing is granted on the executor, even by a new leader.
func TestWorkersOfASupersededAgentKeepTheirCapacity(t *testing.T) {
	r := lead(DefaultConfig())
	first := superseded(r)
	for _, workers := range []int{2, 1} {
		if !r.announceWith(t, first, workers).Superseded {
			t.Fatal("the first agent was not superseded")
		}
		if o := r.cycle(r.queue("u", 1, cpu(1)))[0]; o.Result != model.NoFit {
			t.Fatalf("%+v while %d workers are running", o, workers)
		}
		if d := duplicates(r); len(d) != 1 {
			t.Fatalf("findings of %v", d)
		}
		r.failOver()
	}
	if !r.announceWith(t, first, 0).Superseded {
		t.Fatal("the first agent was not superseded")
	}
	if d := duplicates(r); d != nil {
		t.Fatalf("findings of %v", d)
	}
	expectGranted(t, r.cycle(r.entry("u")))
}

// A superseded agent may become silent. When LostAfter has passed since its last report,
// its workers no longer count and the executor is usable.
func TestWorkersOfASilentSupersededAgentStopCounting(t *testing.T) {
	r := lead(DefaultConfig())
	first := superseded(r)
	r.announceWith(t, first, 2)
	r.pause(DefaultConfig().LostAfter - time.Second)
	r.announceWith(t, first, 2)
	r.pause(DefaultConfig().LostAfter - time.Second)
	if o := r.cycle(r.queue("u", 1, cpu(1)))[0]; o.Result != model.NoFit {
		t.Fatalf("%+v before its time is over", o)
	}
	r.pause(time.Second)
	expectGranted(t, r.cycle(r.entry("u")))
}

// Only a present agent supersedes another. While the later agent has no presence, the
// earlier agent waits and its workers keep running.
func TestOnlyAPresentAgentSupersedes(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(withSecret("h1", "lives", "s"))
	v, _ := r.core.Executor("h1")
	if _, err := r.do(withSecret("h1", "ghost", "s")); err != nil {
		t.Fatal(err)
	}
	wantReason(t, r, Announce{ID: "h1", Incarnation: v.Incarnation, EtcdLease: 9, Nonce: "lives", Workers: 1},
		fault.ReasonOtherIncarnation)
	wantReason(t, r, withSecret("h1", "lives", "s"), fault.ReasonOtherIncarnation)
	if e, _ := r.core.Executor("h1"); e.SupersededWorkers {
		t.Fatal("workers are counted twice")
	}
}

// The nonce identifies the agent that announces an executor. Knowing the incarnation is not
// enough.
func TestAnAnnouncementProvesTheRegistration(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(withSecret("h1", "n1", "s"))
	v, _ := r.core.Executor("h1")
	wantReason(t, r, Announce{ID: "h1", Incarnation: v.Incarnation, EtcdLease: 9, Nonce: "guess"}, fault.ReasonOtherAgent)
	wantReason(t, r, Announce{ID: "h1", Incarnation: v.Incarnation - 1, EtcdLease: 9, Nonce: "guess", Workers: 3},
		fault.ReasonOtherIncarnation)
	must[Announced](t, r, Announce{ID: "h1", Incarnation: v.Incarnation, EtcdLease: 9, Nonce: "n1"})
}
