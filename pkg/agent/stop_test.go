package agent

import (
	"context"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/testkit/porttest"
)

// slowDriver is a driver whose starts wait until the test lets them continue.
type slowDriver struct {
	Simulated
	begun, let chan struct{}
}

func (d *slowDriver) Start(spec Spec, ended func(Exit)) (Handle, error) {
	d.begun <- struct{}{}
	<-d.let
	return d.Simulated.Start(spec, ended)
}

// StopWorkers also stops a worker whose start is in progress. Afterwards no worker is
// started.
func TestStopWorkersStopsAll(t *testing.T) {
	c := newControl(50 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	driver := &slowDriver{begun: make(chan struct{}), let: make(chan struct{})}
	a, _ := runAgent(t, Config{ID: "host", Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	submitted := make(chan error, 1)
	go func() {
		_, err := trySubmit(t.Context(), a, submit(0, 1, "x"))
		submitted <- err
	}()
	<-driver.begun
	stopped := make(chan error, 1)
	go func() { stopped <- a.StopWorkers(t.Context()) }()
	for refused := false; !refused; { // an agent that stops accepts no request
		old := submit(1, 1, "x")
		old.Term = 1 // lower than the term that the agent has seen
		_, err := trySubmit(t.Context(), a, old)
		refused = fault.Is(err, fault.ReasonUnavailable)
	}
	select {
	case err := <-stopped:
		t.Fatalf("StopWorkers did not wait for a worker that was being started: %v", err)
	default:
	}
	close(driver.let)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	<-submitted
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.ledger.live(); n != 0 {
		t.Errorf("%d workers run", n)
	}
}

// StopAndReport returns once the control plane has acknowledged the ends of the workers, and without
// that when its context or Run ends.
func TestStopAndReportWaitsForTheAcknowledgment(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *control, stop, cancel func())
		left int
	}{
		{name: "acknowledged", end: func(c *control, _, _ func()) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.deaf = false
		}},
		{name: "its context ends", end: func(_ *control, _, cancel func()) { cancel() }, left: 1},
		{name: "Run ends", end: func(_ *control, stop, _ func()) { stop() }, left: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(10 * time.Millisecond)
			c.deaf = true
			address, _ := c.serve(t, porttest.Hold(t))
			a, stop := runAgent(t, Config{ID: "host", Driver: Simulated{}, Conn: dial(t, address), Log: quiet()})
			c.registered(t, "host", 1)
			mustSubmit(t, a, submit(0, 1, ""))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- a.StopAndReport(ctx) }()
			c.awaitState(t, key(0), "EVICTED")
			select {
			case err := <-returned:
				t.Fatalf("returned before the end was acknowledged: %v", err)
			default:
			}
			tt.end(c, stop, cancel)
			if err := <-returned; err != nil {
				t.Error(err)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if n := len(a.ledger.entries); n != tt.left {
				t.Errorf("%d ends are left to report, want %d", n, tt.left)
			}
		})
	}
}
