package scenario

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/transport"
)

// A cluster in plain text is changed to TLS under load: all processes are restarted one by
// one in the modes allow, prefer and require, and the caller changes to TLS in the mode
// prefer. No call fails, no executor becomes LOST, and the workers keep running.
func TestPlainTextToTLS(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{Gateways: 2, TTL: longest})
	w.startSim("sim", 4, 4)
	w.startAgents(fleet.Agent{ID: "host", SKU: "host", Slots: 4})
	w.awaitReady(5)
	stays := shell("stays", "s", 4, "exec sleep 3600")
	stays.Constraints = &berthv1.Constraints{Sku: "host"}
	w.upsert(stays)
	w.awaitRunning(stays, 4)

	var current atomic.Pointer[client.Client]
	current.Store(w.client)
	ctx, stop := context.WithCancel(w.ctx)
	var callers sync.WaitGroup
	for i := range 2 {
		callers.Go(func() {
			w.callSteadily(ctx, fmt.Sprintf("load-%d", i), func(ctx context.Context, job, stage string) error {
				return reserveAndCancel(ctx, current.Load(), job, stage)
			})
		})
	}
	for _, mode := range []transport.Mode{transport.Allow, transport.Prefer, transport.Require} {
		if err := w.fleet.SetTLS(mode); err != nil {
			t.Fatal(err)
		}
		w.client = w.fleet.Client()
		current.Store(w.client)
		w.rollAll()
	}
	stop()
	callers.Wait()
	for _, p := range w.ports() {
		if _, answered := w.send(p, nil); answered {
			t.Errorf("%v answers in plain text", p)
		}
	}
	w.awaitRunning(stays, 4)
	w.quiesce()
	w.neverLost()
}

// reserveAndCancel requests a batch on simulated executors, waits for its lease and cancels
// it. The batch may end before: simulated workers do not outlive the process that simulates
// them.
func reserveAndCancel(ctx context.Context, c *client.Client, job, stage string) error {
	r := &berthv1.Reservation{Job: job, Stage: stage, Count: 3, Constraints: &berthv1.Constraints{Sku: "sim"}}
	key := client.KeyOf(r)
	if _, err := c.Reserve(ctx, r); err != nil {
		return err
	}
	if _, err := c.WaitFor(ctx, key, berthv1.Reservation_ACTIVE, berthv1.Reservation_COMPLETED,
		berthv1.Reservation_FAILED); err != nil {
		return err
	}
	if _, err := c.Cancel(ctx, key); err != nil {
		return err
	}
	_, err := c.Get(ctx, key)
	return err
}

// rollAll restarts all processes of the fleet one by one. The agents are killed, because
// their workers must survive.
func (w *world) rollAll() {
	w.Helper()
	for i := range 2 {
		for _, service := range fleet.Services {
			w.leader(service) // waits for a leader that can give up its leadership
			w.roll(w.fleet.Replica(service, i))
		}
	}
	for i := range 2 {
		w.roll(w.fleet.GatewayProcess(i))
	}
	for _, id := range []string{"host", "sim"} {
		w.fleet.Agent(id).Kill()
		w.restart(w.fleet.Agent(id))
	}
}

// roll stops a process, restarts it with its new flags and waits until it is ready.
func (w *world) roll(p *child.Process) {
	w.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		w.Fatal(err)
	}
	<-p.Ended()
	w.restart(p)
	until(w.T, func() string {
		if status, body := w.web(p.Addresses().HTTP).call("GET", "/readyz", ""); status != http.StatusOK {
			return p.Name + ": " + body
		}
		return ""
	})
}
