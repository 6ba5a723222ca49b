package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/testkit/fixedseed"
)

const (
	cacheJob = "cache"
	// Three nodes have these slots for replicas, in addition to their shares for restored
	// snapshots.
	cacheSlots = 3 * 6
	// hours is the number of snapshots, one for each hour. The snapshots of the last retained
	// hours have replicas, of which some wait for slots.
	hours, retained = 30, 25
)

// The example cache fleet keeps the newest snapshots live while objects disappear, snapshots are
// restored, and its manager, a node and the leaders are killed. It loses no request, and no
// replica runs twice.
func TestCacheFleet(t *testing.T) {
	t.Parallel()
	program := buildExample(t, "cachefleet") // building may take longer than the rest of the test
	f := startCacheFleet(t, program)
	f.startManager()
	f.givesUp()
	f.recovers()

	// The newest snapshots are live. Old ones have no replicas, and very old ones are deleted.
	f.killManager()
	for _, i := range rand.New(rand.NewPCG(fixedseed.Or(*seed), 1)).Perm(hours) {
		f.write(hour(i), "a snapshot", time.Duration(i)*time.Hour)
	}
	for i := range 200 {
		f.write(fmt.Sprintf("old-%03d", i), "an old snapshot", (retained+1)*time.Hour)
	}
	f.write("ancient", "a snapshot to delete", (retained+6)*time.Hour)
	f.startManager()
	live := map[string]bool{}
	for i := range cacheSlots {
		live[hour(i)] = true
	}
	f.awaitLive(live)
	until(t, func() string {
		if _, known := f.metadata().Snapshots["ancient"]; known {
			return "the metadata of the oldest snapshot is not deleted"
		}
		return ""
	})
	if _, err := os.Stat(f.object("ancient")); err == nil {
		t.Error("the metadata of the oldest snapshot was deleted before its object")
	}
	if out, err := f.run("restore", "old-000", "old-199"); err == nil || !strings.Contains(out, "200 snapshots") {
		t.Errorf("restore of 200 snapshots: %v, %s", err, out)
	}
	f.restore()

	// If an object disappears, the newest snapshot that waits takes the slot.
	f.remove(live, hour(3), hour(cacheSlots))
	f.awaitLive(live)

	// A killed manager loses no request. The new snapshot comes before older ones that wait.
	f.killManager()
	f.write("fresh", "a new snapshot", 0)
	f.startManager()
	until(f.T, func() string {
		if r, err := f.client.Get(f.ctx, client.Key{Job: cacheJob, Stage: "fresh.0"}); err != nil {
			return err.Error()
		} else if r.GetState() != berthv1.Reservation_QUEUED {
			return "the new snapshot is " + r.GetState().String()
		}
		return ""
	})
	f.remove(live, hour(5), "fresh")
	before := f.awaitLive(live)
	f.awaitLifetimes()

	// Each replica of a node that dies is replaced once. There are no other slots, so the
	// replacements wait until the node returns.
	node := before["fresh"].node
	f.kill(node)
	until(f.T, func() string {
		for worker, on := range f.metadata().Live {
			if on == node {
				return worker + " is live on a node that died"
			}
		}
		return ""
	})
	f.restart(f.fleet.Agent(node))
	for name, w := range before {
		if w.node == node {
			w.number++
			before[name] = w
		}
	}
	f.checkWorkers(before, f.awaitLive(live))

	// A change of leader loses no request, and replaces no worker.
	for i, service := range fleet.Services {
		leader, term := f.leader(service)
		leader.Kill()
		f.remove(live, hour(7+i), hour(cacheSlots+1+i))
		f.awaitLive(live)
		f.nextLeader(service, leader, term)
		f.restart(leader)
	}
	f.checkWorkers(before, f.awaitLive(live))
	f.runningOnce()
	f.publishedOnce()
	f.killManager()
	f.shows()
}

func hour(i int) string { return fmt.Sprintf("hour-%02d", i) }

// cacheFleet is a fleet of cache nodes with the example's processes.
type cacheFleet struct {
	*world
	program, home string        // home has the objects and the metadata
	restored      time.Duration // for which restored snapshots are live
	manager       *exec.Cmd
}

func startCacheFleet(t *testing.T, program string) *cacheFleet {
	t.Helper()
	f := &cacheFleet{program: program, home: filepath.Dir(program), restored: 2 * time.Second}
	if *acceptance {
		f.restored = time.Minute
	}
	if err := os.Mkdir(filepath.Join(f.home, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { noneLeft(t, program) })
	f.world = start(t, fleet.Config{})
	if _, err := f.client.PutPool(f.ctx, &berthv1.Pool{Name: "frail", LostAfter: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f.startAgents(fleet.Agent{ID: fmt.Sprintf("node-%d", i), Slots: 8, Reserved: []string{"restore:slots=2"},
			SKU: "cache", Attributes: []string{"pool=frail"}, Allow: []string{program}})
	}
	f.awaitReady(3)
	return f
}

func (f *cacheFleet) command(args ...string) *exec.Cmd {
	return exec.Command(f.program, append([]string{"-gateway", f.fleet.Gateway(), "-dir", f.home, "-retention",
		fmt.Sprintf("%dh", retained), "-restore", f.restored.String(), "-max-restarts", "1"}, args...)...)
}

// run executes a command of the example and returns its output.
func (f *cacheFleet) run(args ...string) (string, error) {
	out, err := f.command(args...).CombinedOutput()
	return string(out), err
}

func (f *cacheFleet) startManager() {
	f.Helper()
	f.manager = f.start(f.command("manage"))
	f.Cleanup(f.killManager)
}

// start starts a command with its output in a log.
func (f *cacheFleet) start(command *exec.Cmd) *exec.Cmd {
	f.Helper()
	log, err := os.OpenFile(filepath.Join(f.dir, "cachefleet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		f.Fatal(err)
	}
	defer log.Close()
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		f.Fatal(err)
	}
	return command
}

func (f *cacheFleet) killManager() {
	f.manager.Process.Kill() //nolint:errcheck // it may have ended
	f.manager.Wait()         //nolint:errcheck // it was killed
}

func (f *cacheFleet) object(name string) string { return filepath.Join(f.home, "objects", name) }

// write writes an object that is a minute older than the given age.
func (f *cacheFleet) write(name, text string, age time.Duration) {
	f.Helper()
	at := time.Now().Add(-age - time.Minute)
	if err := os.WriteFile(f.object(name), []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
	if err := os.Chtimes(f.object(name), at, at); err != nil {
		f.Fatal(err)
	}
}

// remove removes the object of a live snapshot, and waits until search does not find the snapshot.
// next is the snapshot that becomes live instead.
func (f *cacheFleet) remove(live map[string]bool, name, next string) {
	f.Helper()
	if err := os.Remove(f.object(name)); err != nil {
		f.Fatal(err)
	}
	var evicted time.Time
	f.awaitEvents(cacheJob, func(e *berthv1.Event) bool {
		evicted = e.GetTime().AsTime()
		return e.GetStage() == name+".0" && e.GetKind() == berthv1.Event_WORKER_EVICTING
	})
	until(f.T, func() string {
		for worker := range f.metadata().Live {
			if strings.HasPrefix(worker, name+".") {
				return "search finds " + worker
			}
		}
		return ""
	})
	if took := time.Since(evicted); *acceptance && took > time.Second {
		f.Errorf("search found %s for %v after EVICT", name, took)
	}
	delete(live, name)
	live[next] = true
}

// worker is a live worker of a snapshot.
type worker struct {
	number int
	node   string
}

// awaitLive waits until search finds one replica of each of the given snapshots, and no others.
func (f *cacheFleet) awaitLive(want map[string]bool) map[string]worker {
	f.Helper()
	var found map[string]worker
	until(f.T, func() string {
		found = map[string]worker{}
		for name, node := range f.metadata().Live {
			snapshot, number, replica := strings.Cut(name, ".0/0.")
			if !replica {
				continue
			}
			if other, twice := found[snapshot]; twice {
				f.Fatalf("search finds %s and %+v", name, other)
			}
			w := worker{node: node}
			if _, err := fmt.Sscan(number, &w.number); err != nil {
				f.Fatalf("%s: %v", name, err)
			}
			found[snapshot] = w
		}
		got, wanted := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want))
		if !slices.Equal(got, wanted) {
			return fmt.Sprintf("live: %v\nwant: %v", got, wanted)
		}
		return ""
	})
	return found
}

// checkWorkers checks that the snapshots that are still live have the wanted workers.
func (f *cacheFleet) checkWorkers(want, found map[string]worker) {
	f.Helper()
	for name, w := range found {
		if before, known := want[name]; known && w != before {
			f.Errorf("the worker of %s is %+v, want %+v", name, w, before)
		}
	}
}

// givesUp checks that a snapshot that cannot be loaded is tried on another node, then given up and
// reported.
func (f *cacheFleet) givesUp() {
	f.Helper()
	f.write("broken", "", time.Hour)
	tried := map[string]bool{}
	f.awaitEvents(cacheJob, func(e *berthv1.Event) bool {
		w := &berthv1.EventWorker{}
		if len(e.GetWorkers()) == 1 {
			w = e.GetWorkers()[0]
		}
		if e.GetKind() == berthv1.Event_WORKER_REQUEUED || e.GetKind() == berthv1.Event_WORKER_FAILED {
			tried[w.GetExecutor()] = true
		}
		return w.GetReason() == string(fault.ReasonRoundsExhausted)
	})
	if len(tried) != 2 {
		f.Errorf("the load was tried on %v, want two nodes", tried)
	}
	until(f.T, func() string {
		if log := tail(filepath.Join(f.dir, "cachefleet.log"), 10_000); !strings.Contains(log, "GAVE UP broken.0/0.2") {
			return "the manager does not report that it gave up: " + log
		}
		return ""
	})
	if err := os.Remove(f.object("broken")); err != nil {
		f.Fatal(err)
	}
}

// recovers checks that lines of the log become snapshots, and that a part without lines is none.
func (f *cacheFleet) recovers() {
	f.Helper()
	text := strings.Repeat("a line\n", 1500)
	if err := os.WriteFile(filepath.Join(f.home, "log"), []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
	if out, err := f.run("recover", "0", "3000"); err != nil || strings.Count(out, "CREATED") != 3 {
		f.Fatalf("recover: %v, %s", err, out)
	}
	for part, want := range map[string]int{"lines-0-1000": 1000, "lines-1000-2000": 500, "lines-2000-3000": 0} {
		f.await(&berthv1.Reservation{Job: cacheJob, Stage: part + ".recovery"}, berthv1.Reservation_COMPLETED)
		text, err := os.ReadFile(f.object(part))
		if lines := strings.Count(string(text), "\n"); lines != want || (err == nil) != (want > 0) {
			f.Errorf("%s has %d lines, want %d: %v", part, lines, want, err)
		}
		os.Remove(f.object(part))
	}
}

// restore restores five snapshots.
func (f *cacheFleet) restore() {
	f.Helper()
	if out, err := f.run("restore", hour(retained), hour(hours-1)); err != nil || strings.Count(out, "CREATED") != 5 {
		f.Fatalf("restore: %v, %s", err, out)
	}
}

// awaitLifetimes waits until the restored snapshots have ended, and checks how long they were live.
func (f *cacheFleet) awaitLifetimes() {
	f.Helper()
	since, ended := map[string]time.Time{}, 0
	f.awaitEvents(cacheJob, func(e *berthv1.Event) bool {
		if !strings.HasSuffix(e.GetStage(), ".restore") {
			return false
		}
		switch e.GetKind() {
		case berthv1.Event_WORKER_RUNNING:
			since[e.GetStage()] = e.GetTime().AsTime()
		case berthv1.Event_WORKER_EVICTING:
			lived, reason := e.GetTime().AsTime().Sub(since[e.GetStage()]), e.GetWorkers()[0].GetReason()
			// The event of a worker that runs follows the worker with a delay.
			if lived < f.restored-time.Second || reason != string(fault.ReasonLifetime) {
				f.Errorf("%s was live for %v and ended as %s", e.GetStage(), lived, reason)
			}
			if *acceptance && (ended == 0 && len(since) != 5 || lived > f.restored+2*time.Second) {
				f.Errorf("%d restored snapshots were live, %s for %v", len(since), e.GetStage(), lived)
			}
		case berthv1.Event_WORKER_EVICTED:
			ended++
		}
		return ended == 5
	})
}

// kill kills the agent of a node, and then its workers.
func (f *cacheFleet) kill(node string) {
	f.Helper()
	f.fleet.Agent(node).Kill()
	for pid, env := range f.workers() {
		if env["BERTH_EXECUTOR"] == node {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				f.Error(err)
			}
		}
	}
}

// workers returns the environments of the processes that have loaded a snapshot.
func (f *cacheFleet) workers() map[int]map[string]string {
	found := map[int]map[string]string{}
	for pid, command := range processes(f.program) {
		if strings.HasPrefix(command, f.program+" load ") {
			found[pid] = environment(pid)
		}
	}
	return found
}

// runningOnce checks that each live worker has one process, and that there are no others.
func (f *cacheFleet) runningOnce() {
	f.Helper()
	until(f.T, func() string {
		running := map[string]string{}
		for _, env := range f.workers() {
			worker := fmt.Sprintf("%s/%s.%s", env["BERTH_STAGE"], env["BERTH_WORKER_INDEX"], env["BERTH_WORKER_NUMBER"])
			if _, twice := running[worker]; twice {
				f.Fatalf("%s runs twice", worker)
			}
			running[worker] = env["BERTH_EXECUTOR"]
		}
		if live := f.metadata().Live; !maps.Equal(running, live) {
			return fmt.Sprintf("running: %v\nlive: %v", running, live)
		}
		return ""
	})
	out, err := f.run("search")
	for worker, node := range f.metadata().Live {
		if !strings.Contains(out, worker+" "+node+"\n") {
			f.Errorf("search does not find %s on %s: %v, %s", worker, node, err, out)
		}
	}
	if lines := strings.Count(out, "\n"); lines != cacheSlots {
		f.Errorf("search finds %d workers, want %d: %s", lines, cacheSlots, out)
	}
}

// metadata reads the metadata of the example. The command search shows Live.
func (f *cacheFleet) metadata() (m struct {
	Snapshots          map[string]time.Time
	Live               map[string]string
	Published, Removed int
	Cursor             string
}) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.home, "metadata.json"))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		f.Fatal(err)
	}
	return m
}

// publishedOnce cancels the job, and checks that each worker that was live was published and
// removed once.
func (f *cacheFleet) publishedOnce() {
	f.Helper()
	if _, err := f.client.CancelJob(f.ctx, cacheJob); err != nil {
		f.Fatal(err)
	}
	until(f.T, func() string {
		if live := f.metadata().Live; len(live) > 0 {
			return fmt.Sprintf("live after the cancel of the job: %v", live)
		}
		return ""
	})
	m, ran := f.metadata(), 0
	f.awaitEvents(cacheJob, func(e *berthv1.Event) bool {
		if e.GetKind() == berthv1.Event_WORKER_RUNNING && !strings.HasSuffix(e.GetStage(), ".recovery") {
			ran += len(e.GetWorkers())
		}
		return e.GetCursor() == m.Cursor
	})
	if m.Published != ran || m.Removed != ran {
		f.Errorf("%d workers were live, %d published and %d removed", ran, m.Published, m.Removed)
	}
}

// shows runs the example without a command: it writes snapshots, and runs nodes and a manager.
func (f *cacheFleet) shows() {
	f.Helper()
	if err := os.RemoveAll(filepath.Join(f.home, "objects")); err != nil {
		f.Fatal(err)
	}
	show := f.command()
	show.Env = append(os.Environ(), "PATH="+f.dir, "BERTH_GATEWAYS="+f.fleet.AgentsGateways()[0])
	f.start(show)
	f.awaitReady(6)
	entries, err := os.ReadDir(filepath.Join(f.home, "objects"))
	if err != nil || len(entries) != 30 {
		f.Fatalf("%d objects, want 30: %v", len(entries), err)
	}
	live := map[string]bool{}
	for _, entry := range entries[30-retained:] {
		live[entry.Name()] = true
	}
	f.awaitLive(live)
	if _, err := f.client.CancelJob(f.ctx, cacheJob); err != nil {
		f.Fatal(err)
	}
	f.quiesce()
	if err := show.Process.Signal(syscall.SIGTERM); err != nil {
		f.Fatal(err)
	}
	if err := show.Wait(); err != nil {
		f.Errorf("the example ended with %v", err)
	}
}
