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

// If the disk is full, the agent refuses to start a worker. The error is definite and has
// the reason, so the control plane tries another executor. Running workers keep running.
// Their ends are reported, because space for them is reserved. A stop that cannot be made
// durable is not confirmed. Once the disk has space again, the agent recovers, and its
// promises bind the next agent.
func TestDiskFull(t *testing.T) {
	dir := tinyDisk(t, 2<<20)
	a, c, stop := processAgent(t, dir)
	// Each worker needs its own gate, because two readers of one pipe would each get a part of
	// a line.
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
	for ; refused == nil; never.Worker.Index++ { // the current block of the file may still have space
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

// If an end cannot be made durable, it stays pending and is reported once it is durable.
// Until then, every answer and report has the last state of the worker before its end.
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

// An agent that starts on a full disk adopts the running workers. Their ends stay pending
// until the disk has space.
func TestDiskFullAtStart(t *testing.T) {
	dir := tinyDisk(t, 2<<20)
	a, _, stop := processAgent(t, dir)
	f, gate := newFIFO(t), newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", "echo $$ >"+f.path+"; read code <"+gate.path+"; exit $code"))
	f.line(t)
	stop()
	// As after a crash, the file then has no reserved space.
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

// ending is a driver of one worker, which ends when the test calls ended.
type ending struct {
	Simulated
	ended func(Exit)
}

func (e *ending) Start(_ Spec, ended func(Exit)) (Handle, error) {
	e.ended = ended
	return e, nil
}

func (e *ending) end(x Exit)                     { e.ended(x) }
func (e *ending) Stop(time.Duration, bool) error { return nil }
func (e *ending) Forget()                        {}

// breakJournal makes every write of the agent's tombstones fail until the test calls mend.
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
