package agent

import (
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
