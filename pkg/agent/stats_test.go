package agent

import (
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/testkit/porttest"
)

// An agent is ready while the control plane answers its heartbeats. Otherwise Ready has the
// reason.
func TestReady(t *testing.T) {
	c := newControl(20 * time.Millisecond)
	c.mute, c.cluster = true, "east"
	address := porttest.Hold(t)
	a, _ := runAgent(t, Config{ID: "host", Driver: Simulated{}, Conn: dial(t, address), Log: quiet()})
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "host is not registered yet") {
		t.Errorf("before the registration: %v", err)
	}
	_, stop := c.serve(t, address)
	c.await(t, "a stream", func() bool { return c.streams > 0 })
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "do not answer the heartbeats") {
		t.Errorf("without an answer: %v", err)
	}
	c.mu.Lock()
	c.mute = false
	c.mu.Unlock()
	if err := a.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Cluster != "east" || s.Registrations != 1 || s.Streams != 1 ||
		s.SinceAnswer < 0 || s.SinceAnswer > time.Minute {
		t.Errorf("%+v", s)
	}
	stop()
	for deadline := time.Now().Add(time.Minute); a.Ready() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("ready without a gateway")
		}
	}
	c.serve(t, address)
	if err := a.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Streams < 2 {
		t.Errorf("reconnect not counted: %+v", s)
	}
}

// Stats counts the workers, and the successful and failed starts.
func TestStats(t *testing.T) {
	c := newControl(20 * time.Millisecond)
	a, _, _ := simulatedAgent(t, c, Config{Dir: t.TempDir()})
	mustSubmit(t, a, submit(0, 1, ""))
	ends := submit(1, 1, "")
	ends.Task.Payload = []byte(`{"exitCode":3}`)
	mustSubmit(t, a, ends)
	c.awaitState(t, key(1), "FAILED")
	s := a.Stats()
	if s.Workers[model.WorkerRunning] != 1 || s.Starts != 2 || s.FailedStarts != 0 || s.Ended[model.WorkerFailed] != 1 ||
		s.FreeBytes <= 0 {
		t.Errorf("%+v", s)
	}
}
