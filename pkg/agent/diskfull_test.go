package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/testkit/porttest"
)

// If the disk is full, the agent refuses to start a worker, with a definite error that
// has the reason, so that the control plane tries another executor. Running workers
// keep running, and their ends, for which space is reserved, are reported. A stop that
// cannot be made durable is not confirmed. Once there is space again, the agent
// recovers, and its promises bind the next agent.
func TestDiskFull(t *testing.T) {
	dir := tinyDisk(t, 2<<20)
	a, c, stop := processAgent(t, dir)
	// Each worker has its own gate: two readers of one pipe would share the bytes of a
	// line.
	f, gates := newFIFO(t), []*fifo{newFIFO(t), newFIFO(t)}
	for i, gate := range gates {
		mustSubmit(t, a, submit(int32(i), 1, "sh", "-c",
			"echo $$ >"+f.path+"; read code <"+gate.path+"; head -c 100000 /dev/zero; exit $code"))
	}
	pids := []int{f.pid(t), f.pid(t)}
	empty := fill(t, dir)

	if _, err := trySubmit(t.Context(), a, submit(7, 1, "true")); !fault.Is(err, fault.ReasonStartFailed) ||
		fault.Of(err).Kind != fault.Precondition {
		t.Error(err)
	} else {
		t.Log(err)
	}
	never := stopOf(submit(8, 1, "true"), 0)
	var refused error
	for ; refused == nil; never.Worker.Index++ { // the block it is in may not be full
		if never.Worker.Index > 200 {
			t.Fatal("stops are confirmed on a full disk")
		}
		if _, refused = tryStop(t.Context(), a, never); refused == nil {
			if _, kept := reopen(t, dir); !holds(kept, never.Worker.Index) {
				t.Fatal("a promise that is not on disk")
			}
		} else if !fault.Is(refused, fault.ReasonUnavailable) {
			t.Error(refused)
		}
	}
	never.Worker.Index = 1000
	if _, err := tryStop(t.Context(), a, never); !fault.Is(err, fault.ReasonUnavailable) {
		t.Error(err)
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("%d is dead", pid)
		}
	}
	for i, gate := range gates {
		gate.write(t, fmt.Sprintln(3+i))
		if code := c.awaitState(t, key(i), "FAILED").GetExitCode(); code != int32(3+i) {
			t.Error(i, code)
		}
	}

	empty()
	if answer, err := tryStop(t.Context(), a, never); err != nil || answer.Worker.State != berthv1.Assignment_EVICTED {
		t.Error(answer, err)
	}
	mustSubmit(t, a, submit(7, 1, "true"))
	c.awaitState(t, key(7), "COMPLETED")
	stop()
	_, kept := reopen(t, dir)
	for _, index := range []int32{0, 1, 7, 1000} {
		if !holds(kept, index) {
			t.Errorf("no tombstone of %d", index)
		}
	}
}

func holds(kept []tombstone, index int32) bool {
	for _, t := range kept {
		if t.ID.Index == index {
			return true
		}
	}
	return false
}

// An end that cannot be made durable stays pending and is reported once it is durable.
// Until then every answer and report has the worker in its last state.
func TestEndThatIsNotDurableStaysPending(t *testing.T) {
	c := newControl(20 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	dir := agentDir(t)
	driver := &ending{}
	a, _ := runAgent(t, Config{ID: "host", Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	order := submit(0, 1, "")
	mustSubmit(t, a, order)
	c.awaitState(t, key(0), "RUNNING")
	mend := breakJournal(t, a)
	driver.end(exitOf(0, false))
	answer, err := tryStop(t.Context(), a, stopOf(order, 0))
	if err != nil || answer.Worker.State != berthv1.Assignment_EVICTING {
		t.Error(answer, err)
	}
	c.awaitState(t, key(0), "EVICTING")
	mend()
	c.awaitState(t, key(0), "COMPLETED")
	if _, kept := reopen(t, dir); len(kept) != 1 {
		t.Error(kept)
	}
}

// An agent that starts on a full disk adopts the running workers and keeps their ends
// pending.
func TestDiskFullAtStart(t *testing.T) {
	dir := tinyDisk(t, 2<<20)
	a, _, stop := processAgent(t, dir)
	f, gate := newFIFO(t), newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", "echo $$ >"+f.path+"; read code <"+gate.path+"; exit $code"))
	f.line(t)
	stop()
	// The file has no reserved space then, as after a crash.
	if err := os.Truncate(filepath.Join(dir, "tombstones"), 0); err != nil {
		t.Fatal(err)
	}
	empty := fill(t, dir)
	a, c, _ := processAgent(t, dir)
	c.awaitState(t, key(0), "RUNNING")
	gate.write(t, "5\n")
	awaitFile(t, filepath.Join(dir, "workers", "job", "stage.0.1.100", fileExit))
	if _, err := trySubmit(t.Context(), a, submit(1, 2, "true")); err == nil {
		t.Error("a worker is started on a full disk")
	}
	c.mu.Lock()
	if state := c.workers[key(0)].State; state != berthv1.Assignment_RUNNING {
		t.Errorf("reported as %v", state)
	}
	c.mu.Unlock()
	empty()
	if w := c.awaitState(t, key(0), "FAILED"); w.GetExitCode() != 5 {
		t.Error(w)
	}
}

// ending is a driver of one worker, which the test ends with an Exit.
type ending struct {
	Simulated
	ended func(Exit)
}

func (e *ending) Start(_ Spec, ended func(Exit)) (Handle, error) {
	e.ended = ended
	return e, nil
}

func (e *ending) end(x Exit)               { e.ended(x) }
func (e *ending) Stop(time.Duration) error { return nil }
func (e *ending) Forget()                  {}

// breakJournal makes every write of an agent's tombstones fail until mend is called.
func breakJournal(t *testing.T, a *Agent) (mend func()) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	whole, path := a.journal.file, a.journal.path
	broken, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a.journal.file = broken
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.journal.file = whole
		if err := broken.Close(); err != nil {
			t.Error(err)
		}
	}
}
