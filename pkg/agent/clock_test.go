package agent

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/testkit/porttest"
)

// stepped returns the value that time.Now would return after a step of the host's clock.
// The time of day changes, but the monotonic reading stays the same. The time package
// cannot make such values, so stepped depends on the memory layout of time.Time.
func stepped(now time.Time, by time.Duration) time.Time {
	const nanoseconds = 30 // The time of day has this many bits for the nanoseconds.
	layout := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now))
	layout.wall += uint64(by/time.Second) << nanoseconds
	return now
}

// clock is a host's clock that tests can step.
type clock struct{ by atomic.Int64 }

func (c *clock) now() time.Time { return stepped(time.Now(), time.Duration(c.by.Load())) }

func TestStepped(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		then := stepped(now, by)
		if then.Sub(now) != 0 || then.Round(0).Sub(now.Round(0)) != by {
			t.Errorf("%v is not %v stepped by %v", then, now, by)
		}
	}
}

// The clock steps by a day in either direction. The step kills no worker, ends no grace
// period, stops no heartbeat, isolates no agent and loses no promise.
func TestPitfallClockSteps(t *testing.T) {
	dir := t.TempDir()
	c := newControl(20 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	driver, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var host clock
	a, stop := runAgent(t, Config{
		ID: "host", Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet(), now: host.now,
		StopWhenIsolatedAfter: time.Hour, TombstoneAge: 12 * time.Hour, StartTimeout: time.Hour,
	})
	c.registered(t, "host", 1)
	// Each worker needs its own gate, because two readers of one pipe would each get a part of
	// a line.
	f, gates := newFIFO(t), []*fifo{newFIFO(t), newFIFO(t)}
	script := func(gate *fifo) string {
		return `trap 'echo heard >` + f.path + `' TERM; echo up >` + f.path + `
			until read code <` + gate.path + `; do :; done; exit $code`
	}
	runs, ends := submit(0, 1, "sh", "-c", script(gates[0])), submit(1, 1, "sh", "-c", script(gates[1]))
	mustSubmit(t, a, runs)
	f.line(t)
	mustSubmit(t, a, ends)
	f.line(t)
	a.mu.Lock()
	for i := range 2 * tombstoneCount {
		promise := tombstoneOf(i)
		promise.At = a.cfg.now()
		a.ledger.bury(promise)
	}
	promises := len(a.ledger.tombstones)
	a.mu.Unlock()
	if _, err := tryStop(t.Context(), a, stopOf(ends, time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.line(t)
	for i, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		host.by.Store(int64(by))
		c.mu.Lock()
		clear(c.bare)
		c.mu.Unlock()
		c.await(t, "heartbeats", func() bool { return c.bare["host"] > 5 })
		if _, err := tryStop(t.Context(), a, stopOf(submit(int32(50+i), 1, ""), 0)); err != nil {
			t.Error(err)
		}
		if s := states(a); s[0] != berthv1.Assignment_RUNNING || s[1] != berthv1.Assignment_EVICTING {
			t.Errorf("after a step of %v: %v", by, s)
		}
		a.mu.Lock()
		if n := len(a.ledger.tombstones); n != promises+i+1 {
			t.Errorf("%d tombstones after a step of %v", n, by)
		}
		a.mu.Unlock()
	}
	for _, gate := range gates {
		gate.write(t, "7\n")
	}
	if w := c.awaitState(t, key(1), "EVICTED"); w.GetExitCode() != 7 {
		t.Error(w)
	}
	if w := c.awaitState(t, key(0), "FAILED"); w.GetExitCode() != 7 {
		t.Error(w)
	}
	stop()
}

// If the clock steps after a stored time was read, the age of that time does not change.
// The age is never negative.
func TestRebase(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ ago, age time.Duration }{
		{time.Hour, time.Hour}, {-time.Hour, 0}, {0, 0},
	} {
		at := rebase(now.Add(-c.ago).Round(0), now)
		if got := stepped(now, 24*time.Hour).Sub(at); (got - c.age).Abs() > time.Millisecond {
			t.Errorf("%v ago is of age %v", c.ago, got)
		}
	}
}
