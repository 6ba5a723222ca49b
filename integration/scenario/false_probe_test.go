package scenario

import (
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/integration/proxy"
)

// A running leader looks dead to its standby, because connections to its address are reset
// and refused, as by a firewall. A false liveness probe therefore evicts the leader. Only
// the leader changes: callers and workers continue, and the old leader becomes a standby.
func TestFalseLivenessProbe(t *testing.T) {
	t.Parallel()
	links := proxy.New()
	t.Cleanup(links.Close) // runs after the fleet's cleanup, because the fleet uses the links to stop
	w := start(t, fleet.Config{
		TTL: longest, // so long that the lease does not expire during the test
		Via: func(from, to, address string) (string, error) {
			if from != "proof" {
				return address, nil
			}
			return links.Via(from, to, address)
		},
	})
	w.startSim("sim", 10, 4)
	w.awaitReady(10)
	r := &berthv1.Reservation{Job: "stays", Stage: "s", Count: 8}
	w.upsert(r)
	w.awaitWorkers("stays", berthv1.Event_WORKER_RUNNING, 8)
	before := w.terms()
	w.underLoad(func() {
		for _, service := range fleet.Services {
			leader, term := w.leader(service)
			refused := func(is bool) {
				links.Set(func(_, to string) bool { return to == leader.Name }, wiring.Condition{Refused: is})
			}
			pid := leader.Pid()
			refused(true)
			began := time.Now()
			w.nextLeader(service, leader, term)
			if took := time.Since(began); took > fastFailover {
				t.Errorf("%s: failover took %v with a TTL of %v", service, took, longest)
			}
			refused(false)
			w.upToDate(service, leader.Name)
			if !leader.Running() || leader.Pid() != pid {
				t.Errorf("the process of %s did not survive", leader.Name)
			}
		}
	})
	for service, now := range w.terms() {
		if now <= before[service] {
			t.Errorf("%s: term %d after term %d", service, now, before[service])
		}
	}
	w.awaitRunning(r, 8)
	w.quiesce()
}
