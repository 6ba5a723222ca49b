package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/integration/proxy"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

var faults = flag.Bool("faults", false, "run the tests with etcd faults, which take a minute")

// startForFaults starts a fleet with some executors. Without -faults, it skips the test.
func startForFaults(t *testing.T, config fleet.Config) *world {
	t.Helper()
	if !*faults {
		t.Skip("make faults")
	}
	if config.TTL == 0 {
		config.TTL = 2 * time.Second
	}
	w := start(t, config)
	w.startSim("sim", 10, 4)
	w.awaitReady(10)
	return w
}

// checkUsable checks that a batch can be dispatched and cancelled.
func (w *world) checkUsable(job string) {
	w.Helper()
	r := &berthv1.Reservation{Job: job, Stage: "s", Count: 4}
	w.upsert(r)
	w.await(r, berthv1.Reservation_ACTIVE)
	w.cancel(r)
	w.await(r, berthv1.Reservation_CANCELLED)
}

// terms returns the current term of each service.
func (w *world) terms() map[string]int64 {
	w.Helper()
	terms := map[string]int64{}
	for _, service := range fleet.Services {
		_, terms[service] = w.leader(service)
	}
	return terms
}

// Without a quorum, calls wait, workers keep running and nothing is lost. When there is a
// quorum again, the calls are answered.
func TestFaultNoQuorum(t *testing.T) {
	w := startForFaults(t, fleet.Config{Etcd: 3})
	r := &berthv1.Reservation{Job: "stays", Stage: "s", Count: 8}
	w.upsert(r)
	w.awaitWorkers("stays", berthv1.Event_WORKER_RUNNING, 8)
	w.fleet.Member(1).Kill()
	w.fleet.Member(2).Kill()

	short, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	_, err := w.client.Reserve(short, &berthv1.Reservation{Job: "early", Stage: "s", Count: 1})
	cancel()
	if !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("without a quorum: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "parked", Stage: "s", Count: 1})
		answered <- err
	}()
	if out, ok := w.doctor("--etcd-endpoints", strings.Join(w.fleet.Etcd(), ",")); ok ||
		!strings.Contains(out, "FAIL  etcd quorum") {
		t.Errorf("doctor:\n%s", out)
	}
	select {
	case err := <-answered:
		t.Errorf("a call succeeded without a quorum: %v", err)
	default:
	}
	for i := 1; i < 3; i++ {
		w.restart(w.fleet.Member(i))
	}
	if err := <-answered; err != nil {
		t.Errorf("after the quorum returned: %v", err)
	}
	w.await(&berthv1.Reservation{Job: "parked", Stage: "s"}, berthv1.Reservation_ACTIVE)
	w.awaitRunning(r, 8)
	w.quiesce()
}

// While etcd has the NOSPACE alarm, reads succeed, and the errors of writes name the
// reason. The documented steps free space.
func TestFaultNoSpace(t *testing.T) {
	const quota = 16 << 20
	w := startForFaults(t, fleet.Config{Etcd: 1, Flags: map[string][]string{"etcd": {"--quota", fmt.Sprint(quota)}}})
	w.checkUsable("before")
	terms := w.terms()
	// Another client fills etcd.
	ballast := []byte(strings.Repeat("x", 1<<20))
	until(t, func() string {
		full, cancel := context.WithTimeout(w.ctx, time.Second)
		_, _ = w.store.Txn(full, store.Txn{Then: []store.Op{store.Put("/ballast", ballast)}}) // some of these writes time out
		cancel()
		// The write that raises the alarm may be answered before the alarm is visible.
		if alarms, err := w.store.Alarms(w.ctx); err != nil || len(alarms) == 0 {
			return fmt.Sprintf("alarms %v, %v", alarms, err)
		}
		return ""
	})
	// If a write were blocked, it would delay the reads after it.
	for _, key := range []client.Key{{Job: "full", Stage: "s", Name: "main"}, {Job: "before", Stage: "s", Name: "main"}} {
		short, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		if _, err := w.client.Reserve(short, &berthv1.Reservation{Job: key.Job, Stage: key.Stage, Count: 1}); !fault.Is(err,
			fault.ReasonStoreFull) {
			t.Errorf("write to %s: %v", key, err)
		}
		cancel()
		_, err := w.client.Get(w.ctx, key)
		if key.Job == "full" && !fault.Is(err, fault.ReasonNotFound) || key.Job == "before" && err != nil {
			t.Errorf("read from %s: %v", key, err)
		}
	}
	w.awaitReady(10)
	w.nothingLeased()
	if out, ok := w.doctor("--etcd-endpoints", w.fleet.Etcd()[0]); ok || !strings.Contains(out, "FAIL  etcd alarms") {
		t.Errorf("doctor:\n%s", out)
	}

	// The documented steps are compact, defragment and disarm. The audit continues from the
	// compacted revision.
	w.restored = w.revision()
	for _, step := range []func() error{
		func() error { _, err := w.store.Client().Compact(w.ctx, w.restored); return err },
		func() error { _, err := w.store.Client().Defragment(w.ctx, w.fleet.Etcd()[0]); return err },
		func() error {
			up, err := w.store.Client().AlarmList(w.ctx)
			for _, alarm := range up.Alarms {
				if err == nil {
					_, err = w.store.Client().AlarmDisarm(w.ctx, (*clientv3.AlarmMember)(alarm))
				}
			}
			return err
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	w.checkUsable("after")
	if now := w.terms(); fmt.Sprint(now) != fmt.Sprint(terms) {
		t.Errorf("the terms changed from %v to %v", terms, now)
	}
	w.quiesce()
}

// A standby is frozen while the revisions that it needs are compacted. Afterwards it reads
// everything again and can become the leader.
func TestFaultCompactionDuringFreeze(t *testing.T) {
	w := startForFaults(t, fleet.Config{Etcd: 1})
	for _, service := range fleet.Services {
		leader, _ := w.leader(service)
		sleeper := w.other(service, leader)
		w.signal(sleeper, syscall.SIGSTOP)
		for i := range 20 {
			w.checkUsable(fmt.Sprintf("%s-%d", service, i))
		}
		w.restored = w.revision()
		if _, err := w.store.Client().Compact(w.ctx, w.restored); err != nil {
			t.Fatal(err)
		}
		w.signal(sleeper, syscall.SIGCONT)
		w.upToDate(service, sleeper.Name)
		leader.Kill()
		w.checkUsable(service + "-after")
		if next, _ := w.leader(service); next != sleeper {
			t.Errorf("the leader of %s is %s", service, next.Name)
		}
		w.restart(leader)
	}
	w.quiesce()
}

// A defragmentation blocks a member for a while. Callers only see a pause.
func TestFaultDefragmentation(t *testing.T) {
	w := startForFaults(t, fleet.Config{Etcd: 3, TTL: 5 * time.Second})
	w.underLoad(func() {
		for _, endpoint := range w.fleet.Etcd() {
			if _, err := w.store.Client().Defragment(w.ctx, endpoint); err != nil {
				t.Errorf("defragmentation of %s: %v", endpoint, err)
			}
		}
	})
	w.quiesce()
}

// Under load, etcd members are added and removed one at a time.
func TestFaultMemberChanges(t *testing.T) {
	w := startForFaults(t, fleet.Config{Etcd: 3, TTL: 5 * time.Second})
	w.underLoad(func() {
		err := w.fleet.AddMember(w.ctx, func(peerURL string) error {
			return w.changeMembers(func() error {
				_, err := w.store.Client().MemberAdd(w.ctx, []string{peerURL})
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		leader, err := w.fleet.EtcdLeader(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if leader == 0 {
			leader = 1 // the first endpoint that the test itself uses
		}
		status, err := w.store.Client().Status(w.ctx, w.fleet.Etcd()[leader])
		if err != nil {
			t.Fatal(err)
		}
		if err := w.changeMembers(func() error {
			_, err := w.store.Client().MemberRemove(w.ctx, status.Header.MemberId)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		w.fleet.Member(leader).Kill()
	})
	w.quiesce()
}

// changeMembers retries a change of etcd's members until etcd accepts the change. etcd
// rejects changes until its members have been connected for five seconds.
func (w *world) changeMembers(change func() error) error {
	for {
		err := change()
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrUnhealthy) || store.Sleep(w.ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// If etcd takes 300 ms for every answer, calls are slower, but no leadership is lost.
func TestFaultSlow(t *testing.T) {
	links := proxy.New()
	t.Cleanup(links.Close) // runs after the fleet's cleanup, because the fleet uses the links to stop
	w := startForFaults(t, fleet.Config{Etcd: 1, TTL: 5 * time.Second, Via: links.Via})
	terms := w.terms()
	links.Set(func(_, to string) bool { return strings.HasPrefix(to, "etcd-") },
		wiring.Condition{Delay: 150 * time.Millisecond})
	for i := range 2 {
		w.checkUsable(fmt.Sprintf("slow-%d", i))
	}
	if now := w.terms(); fmt.Sprint(now) != fmt.Sprint(terms) {
		t.Errorf("the terms changed from %v to %v", terms, now)
	}
	links.Set(func(_, _ string) bool { return true }, wiring.Condition{})
	w.quiesce()
}

// etcd's leader is repeatedly frozen for 200 ms, two thirds of the time, as on a busy disk.
// Calls are slower, but callers are answered and no leadership is lost. The other members
// do not elect another leader for such short pauses.
func TestFaultSlowLeader(t *testing.T) {
	const (
		slowFor = 10 * time.Second
		// Freezes alternate with pauses. etcd's members start an election only after at least a
		// second.
		stopped, running = 200 * time.Millisecond, 100 * time.Millisecond
	)
	w := startForFaults(t, fleet.Config{Etcd: 3, TTL: 5 * time.Second})
	w.checkUsable("before")
	terms := w.terms()
	leads, err := w.fleet.EtcdLeader(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	leader := w.fleet.Member(leads)
	slow, rounds := 0, 0
	w.underLoad(func() {
		for over := time.Now().Add(slowFor); time.Now().Before(over); rounds++ {
			w.signal(leader, syscall.SIGSTOP)
			took := make(chan time.Duration, 1)
			go func() {
				asked := time.Now()
				_, _, _ = w.store.Get(w.ctx, "/slow") // the read takes a round of etcd's members, whatever its result is
				took <- time.Since(asked)
			}()
			<-time.After(stopped)
			w.signal(leader, syscall.SIGCONT)
			if <-took > stopped/2 {
				slow++
			}
			<-time.After(running)
		}
	})
	t.Logf("of %d reads, %d were slow", rounds, slow)
	switch now, err := w.fleet.EtcdLeader(w.ctx); {
	case err != nil:
		t.Error(err)
	case now != leads:
		// The machine was too slow for this test. Still, nothing may be lost.
		t.Logf("etcd's leader changed from %s to %s", leader.Name, w.fleet.Member(now).Name)
	case slow < rounds*9/10:
		t.Errorf("%s led etcd, but of %d reads only %d were slow", leader.Name, rounds, slow)
	case fmt.Sprint(w.terms()) != fmt.Sprint(terms):
		t.Errorf("the terms changed from %v to %v", terms, w.terms())
	}
	w.checkUsable("after")
	w.quiesce()
}

// An etcd member cannot send messages to the others. It accepts calls and watches and knows
// the leader, but it answers nothing. Berth keeps working through the other members.
func TestFaultUnresponsiveMember(t *testing.T) {
	links := proxy.New()
	t.Cleanup(links.Close) // runs after the fleet's cleanup, because the fleet uses the links to stop
	w := startForFaults(t, fleet.Config{Etcd: 3, TTL: 5 * time.Second, Via: links.Via})
	leads, err := w.fleet.EtcdLeader(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	member := w.fleet.Member((leads + 1) % 3)
	links.Set(func(from, to string) bool { return from == "peers" && to == member.Name }, wiring.Condition{Back: true})
	for i := range 20 {
		w.checkUsable(fmt.Sprintf("meanwhile-%d", i))
	}
	links.Set(func(_, _ string) bool { return true }, wiring.Condition{})
	w.checkUsable("after")
	w.quiesce()
}

// underLoad runs a function while callers send requests. No request may fail.
func (w *world) underLoad(do func()) {
	w.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() { w.callSteadily(ctx, fmt.Sprintf("load-%d", i), w.overGRPC) })
	}
	defer callers.Wait()
	defer stop()
	do()
}

// doctor returns the output of berth doctor. ok reports whether all checks passed.
func (w *world) doctor(args ...string) (out string, ok bool) {
	w.Helper()
	return w.try(append([]string{"doctor", "--gateway", w.fleet.Gateway()}, args...)...)
}

func (w *world) revision() int64 {
	w.Helper()
	page, err := w.store.Page(w.ctx, store.PageRequest{From: "/", To: "0", Limit: 1})
	if err != nil {
		w.Fatal(err)
	}
	return page.Revision
}

// other returns a replica of a service that is not the leader.
func (w *world) other(service string, leader *child.Process) *child.Process {
	if p := w.fleet.Replica(service, 0); p != leader {
		return p
	}
	return w.fleet.Replica(service, 1)
}

func (w *world) signal(p *child.Process, s syscall.Signal) {
	w.Helper()
	if err := p.Signal(s); err != nil {
		w.Fatal(err)
	}
}

// upToDate waits until the view of a replica is current.
func (w *world) upToDate(service, replica string) {
	w.Helper()
	now := w.revision()
	until(w.T, func() string {
		answer, err := w.client.Leaders(w.ctx)
		if err != nil {
			return err.Error()
		}
		for _, s := range answer.GetServices() {
			for _, r := range s.GetReplicas() {
				if s.GetService() == service && r.GetId() == replica && r.GetRevision() >= now {
					return ""
				}
			}
		}
		return replica + " has not caught up"
	})
}
