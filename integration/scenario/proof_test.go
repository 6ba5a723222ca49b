package scenario

import (
	"fmt"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
)

// A leader that lives looks dead to its standby: connections to its address are
// reset and refused, as by a firewall. So it is evicted by a proof that is wrong. That
// costs a change of leader, and nothing else: callers and workers go on, and the
// leader that was stands by.
func TestAFalseProofOfDeathLosesNothing(t *testing.T) {
	t.Parallel()
	links := wiring.NewLinks()
	t.Cleanup(links.Close) // after the fleet, which stops over them
	w := start(t, fleet.Config{
		TTL: time.Minute, // so that nobody leads next because that has run out
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
			leader, term, err := w.fleet.Leader(w.ctx, service)
			if err != nil || leader == nil {
				t.Fatalf("%s is led by %v, %v", service, leader, err)
			}
			refused := func(is bool) {
				links.Set(func(_, to string) bool { return to == leader.Name }, wiring.Condition{Refused: is})
			}
			pid := leader.Pid()
			refused(true)
			until(t, func() string {
				if next, now, err := w.fleet.Leader(w.ctx, service); err != nil || next == nil || next == leader || now <= term {
					return fmt.Sprintf("%s is led by %v in term %d, %v", service, next, now, err)
				}
				return ""
			})
			refused(false)
			w.upToDate(service, leader.Name)
			if !leader.Running() || leader.Pid() != pid {
				t.Errorf("%s did not live on", leader.Name)
			}
		}
	})
	for service, now := range w.terms() {
		if now <= before[service] {
			t.Errorf("%s: term %d after %d", service, now, before[service])
		}
	}
	if got := w.await(r, berthv1.Reservation_ACTIVE); got.GetWorkerCounts()["RUNNING"] != 8 {
		t.Errorf("of 8 workers: %v", got.GetWorkerCounts())
	}
	w.quiesce()
}
