package scenario

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/process/child"
)

const (
	// longest is the longest TTL that Berth accepts.
	longest = time.Minute
	// fastFailover is the time limit of a failover and of a stop that do not wait for the TTL,
	// even on a slow machine. bench-failover measures their real speed.
	fastFailover = longest / 2
)

// All replicas of all services are restarted one after another while callers send requests.
// No caller sees an error.
func TestRollingRestart(t *testing.T) {
	w := start(t, fleet.Config{
		TTL:   longest,
		Flags: map[string][]string{"": {"--stop-timeout", longest.String()}},
	})
	w.startSim("sim", 20, 4)
	w.awaitReady(20)

	ctx, stop := context.WithCancel(w.ctx)
	var callers sync.WaitGroup
	callers.Go(func() { w.callSteadily(ctx, "grpc", w.overGRPC) })
	callers.Go(func() { w.callSteadily(ctx, "rest", w.overREST()) })

	for _, service := range fleet.Services {
		w.leader(service) // waits for a leader that can give up its leadership
		for i := range 2 {
			p, other := w.fleet.Replica(service, i), w.fleet.Replica(service, 1-i)
			leads := w.leading(p)
			stopped := time.Now()
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if leads {
				until(t, func() string {
					if !w.leading(other) {
						return other.Name + " does not lead"
					}
					return ""
				})
				if took := time.Since(stopped); took > fastFailover {
					t.Errorf("%s leads %v after %s got SIGTERM", other.Name, took, p.Name)
				} else {
					t.Logf("%s leads %v after %s got SIGTERM", other.Name, took.Round(time.Millisecond), p.Name)
				}
			}
			select {
			case <-p.Ended():
			case <-time.After(patience):
				t.Fatalf("%s did not exit", p.Name)
			}
			if took := time.Since(stopped); took > fastFailover {
				t.Errorf("%s took %v to exit", p.Name, took)
			}
			w.restart(p)
			until(t, func() string {
				if status, body := w.web(p.Addresses().HTTP).call("GET", "/readyz", ""); status != http.StatusOK {
					return p.Name + ": " + body
				}
				return ""
			})
		}
	}
	for _, service := range fleet.Services {
		w.resign(service)
	}
	stop()
	callers.Wait()
	w.quiesce()
}

// resign makes the leader of a service resign, as an operator does.
func (w *world) resign(service string) {
	w.Helper()
	leader, term := w.leader(service)
	answer, err := w.client.Resign(w.ctx, service, term)
	if err != nil || answer.GetReplica() != leader.Name || answer.GetTerm() != term {
		w.Fatalf("%s: %v, %v", service, answer, err)
	}
	w.nextLeader(service, leader, term)
	if !leader.Running() {
		w.Errorf("%s ended", leader.Name)
	}
}

func (w *world) leading(p *child.Process) bool {
	w.Helper()
	status, _ := w.web(p.Addresses().HTTP).call("GET", "/leaderz", "")
	return status == http.StatusOK
}

// callSteadily runs round repeatedly until ctx ends.
func (w *world) callSteadily(ctx context.Context, job string,
	round func(ctx context.Context, job, stage string) error) {
	slowest, rounds := time.Duration(0), 0
	for ; ctx.Err() == nil; rounds++ {
		began := time.Now()
		calls, cancel := context.WithTimeout(w.ctx, fastFailover)
		err := round(calls, job, fmt.Sprintf("s%d", rounds%4))
		cancel()
		if err != nil {
			w.Errorf("%s, round %d, after %v: %v", job, rounds, time.Since(began), err)
		}
		slowest = max(slowest, time.Since(began))
	}
	w.Logf("%s: %d rounds of calls, the slowest took %v", job, rounds, slowest.Round(time.Millisecond))
}

func (w *world) overGRPC(ctx context.Context, job, stage string) error {
	r := &berthv1.Reservation{Job: job, Stage: stage, Count: 3, Constraints: &berthv1.Constraints{Sku: "sim"}}
	key := client.KeyOf(r)
	if _, err := w.client.Reserve(ctx, r); err != nil {
		return err
	}
	if _, err := w.client.WaitFor(ctx, key, berthv1.Reservation_ACTIVE); err != nil {
		return err
	}
	if n, err := w.client.Cancel(ctx, key); err != nil || n != 1 {
		return fmt.Errorf("cancelled %d: %w", n, err)
	}
	_, err := w.client.WaitFor(ctx, key, berthv1.Reservation_CANCELLED)
	return err
}

// overREST returns a round of calls that are made as with curl, without retries.
func (w *world) overREST() func(ctx context.Context, job, stage string) error {
	web := w.web(w.fleet.Gateway())
	return func(_ context.Context, job, stage string) error {
		path := "/v1/jobs/" + job + "/stages/" + stage + "/reservation"
		for _, call := range [][3]string{{"PUT", path, `{"count": 2, "constraints": {"sku": "sim"}}`}, {"GET", path, ""},
			{"GET", "/v1/assignments", ""},
			{"GET", "/v1/executors", ""}, {"DELETE", path, ""}} {
			if status, body := web.call(call[0], call[1], call[2]); status != http.StatusOK {
				return fmt.Errorf("%s %s: %d %s", call[0], call[1], status, body)
			}
		}
		return nil
	}
}
