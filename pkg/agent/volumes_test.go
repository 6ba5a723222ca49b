package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/testkit/porttest"
)

// onVolume makes a worker start on a volume.
func onVolume(req *controlv1.SubmitTaskRequest, id string, create bool) *controlv1.SubmitTaskRequest {
	req.Volume = &controlv1.VolumeStart{Id: id, Create: create}
	return req
}

// dropOf returns a request to destroy volumes, as the assigner sends it.
func dropOf(a *Agent, ids ...string) *controlv1.DropVolumesRequest {
	return &controlv1.DropVolumesRequest{Term: 5, Executor: "host", Incarnation: 1, Nonce: a.ledger.nonce, Ids: ids}
}

func tryDrop(t *testing.T, a *Agent, ids ...string) error {
	t.Helper()
	_, err := a.DropVolumes(t.Context(), dropOf(a, ids...))
	return err
}

func mustDrop(t *testing.T, a *Agent, ids ...string) {
	t.Helper()
	if err := tryDrop(t, a, ids...); err != nil {
		t.Fatal(err)
	}
}

// awaitVolumes waits for a list with exactly these volumes. Each text has IDs and blanks.
func (c *control) awaitVolumes(t *testing.T, ids, gone string) {
	t.Helper()
	c.await(t, fmt.Sprintf("a list of %q, gone %q", ids, gone), func() bool {
		list := c.volumes["host"]
		return list != nil && strings.Join(list.Ids, " ") == ids && strings.Join(list.Gone, " ") == gone
	})
}

// mustRefuse checks that a start request is refused definitely, so that the assigner does not
// repeat it.
func mustRefuse(t *testing.T, a *Agent, req *controlv1.SubmitTaskRequest, want fault.Reason) {
	t.Helper()
	_, err := trySubmit(t.Context(), a, req)
	if f := fault.Of(err); err == nil || f.Reason != want || f.Kind != fault.Precondition {
		t.Errorf("%v: %v, want %s", req.Volume, err, want)
	}
}

func mustMake(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
	}
}

func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// awaitGate returns a program that writes its process ID to f and waits for a line of gate.
func awaitGate(f, gate *fifo) []string {
	return []string{"-c", "echo $$ >" + f.path + "; read go <" + gate.path}
}

// A volume is made once. The next workers find the files of the earlier ones, also after a
// restart of the agent, and whether or not the request has create.
func TestVolumeOutlivesItsWorkers(t *testing.T) {
	dir := agentDir(t)
	a, c, stop := processAgent(t, dir)
	script := `echo $BERTH_WORKER_INDEX >>$BERTH_VOLUME/file; echo $BERTH_VOLUME_ID $BERTH_VOLUME; cat $BERTH_VOLUME/file`
	c.awaitVolumes(t, "", "")
	for i, create := range []bool{true, true, false, false} {
		if i == 3 {
			stop()
			a, c, _ = processAgent(t, dir)
			c.awaitVolumes(t, "v1", "")
		}
		req := onVolume(submit(int32(i), 1, "sh", "-c", script), "v1", create)
		req.Task.Env = map[string]string{"BERTH_VOLUME": "forged"}
		mustSubmit(t, a, req)
		c.awaitState(t, key(i), "COMPLETED")
		c.awaitVolumes(t, "v1", "")
	}
	out, err := os.ReadFile(filepath.Join(dir, "workers", "job", "stage.3.1.100", fileStdout))
	if want := "v1 " + filepath.Join(dir, "volumes", "v1") + "\n0\n1\n2\n3\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// A worker never starts on an empty directory by mistake, nor on anything except a directory
// in the agent's directory.
func TestWorkerIsRefusedWithoutItsVolume(t *testing.T) {
	dir := agentDir(t)
	outside := t.TempDir()
	volumes := filepath.Join(dir, "volumes")
	mustMake(t, volumes)
	if err := errors.Join(os.Symlink(outside, filepath.Join(volumes, "link")),
		os.WriteFile(filepath.Join(volumes, "file"), nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	a, c, _ := processAgent(t, dir)
	c.awaitVolumes(t, "", "")
	for _, id := range []string{"none", "link", "file"} {
		mustRefuse(t, a, onVolume(submit(0, 1, "true"), id, false), fault.ReasonVolumeMissing)
	}
	for _, id := range []string{"link", "file"} {
		mustRefuse(t, a, onVolume(submit(0, 1, "true"), id, true), fault.ReasonVolumeMissing)
	}
	for _, id := range []string{"", ".", "..", "../x", "a/b", "/tmp", "-x", "x\x00", "é", strings.Repeat("x", 65)} {
		_, err := trySubmit(t.Context(), a, onVolume(submit(0, 1, "true"), id, true))
		if f := fault.Of(err); err == nil || f.Reason != fault.ReasonBadName {
			t.Errorf("%q: %v", id, err)
		}
		if err := tryDrop(t, a, "none", id); !fault.Is(err, fault.ReasonBadName) {
			t.Errorf("destroy %q: %v", id, err)
		}
	}
	if got := namesIn(t, volumes); got != "file link" {
		t.Error(got)
	}
	// The volume disappears while the agent runs.
	longest := strings.Repeat("x", 64)
	mustSubmit(t, a, onVolume(submit(1, 1, "true"), longest, true))
	c.awaitState(t, key(1), "COMPLETED")
	c.awaitVolumes(t, longest, "")
	if err := os.Remove(filepath.Join(volumes, longest)); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, a, onVolume(submit(2, 1, "true"), longest, false), fault.ReasonVolumeMissing)
	c.awaitVolumes(t, "", "")
	if got := namesIn(t, filepath.Join(dir, "workers", "job")); got != "stage.1.1.100" {
		t.Errorf("refused workers left %s", got)
	}
}

// No two living workers are on one volume, and no volume is destroyed below a living worker,
// also not by an agent that adopted the worker. If one volume of a request is in use, all of
// them stay.
func TestVolumeInUse(t *testing.T) {
	dir := agentDir(t)
	a, c, stop := processAgent(t, dir)
	f, gate := newFIFO(t), newFIFO(t)
	mustSubmit(t, a, onVolume(submit(0, 1, "sh", awaitGate(f, gate)...), "used", true))
	f.line(t)
	mustSubmit(t, a, onVolume(submit(1, 1, "true"), "free", true))
	c.awaitState(t, key(1), "COMPLETED")
	for _, agent := range []string{"first", "second"} {
		mustRefuse(t, a, onVolume(submit(2, 1, "true"), "used", true), fault.ReasonVolumeInUse)
		if err := tryDrop(t, a, "free", "used"); !fault.Is(err, fault.ReasonVolumeInUse) ||
			fault.Of(err).Kind != fault.Precondition {
			t.Errorf("%s agent: %v", agent, err)
		}
		c.awaitVolumes(t, "free used", "")
		if agent == "first" {
			stop()
			a, c, stop = processAgent(t, dir)
		}
	}
	stop() // No removal is in progress any more.
	_, kept := reopen(t, dir)
	destroyed := slices.ContainsFunc(kept, func(t tombstone) bool { return t.Volume != "" })
	if got := namesIn(t, filepath.Join(dir, "volumes")); destroyed || got != "free used" {
		t.Errorf("destroyed in spite of the refusal: %v, left: %s", kept, got)
	}
	a, c, _ = processAgent(t, dir)
	gate.write(t, "go\n")
	c.awaitState(t, key(0), "COMPLETED")
	mustSubmit(t, a, onVolume(submit(2, 1, "true"), "used", false))
	c.awaitState(t, key(2), "COMPLETED")
	mustDrop(t, a, "free", "used")
}

// Destroyed volumes are listed as gone until the control plane has received it, and never
// come back. Links are removed and not followed.
func TestDropVolumes(t *testing.T) {
	dir := agentDir(t)
	outside := t.TempDir()
	volumes := filepath.Join(dir, "volumes")
	mustMake(t, filepath.Join(outside, "kept"), filepath.Join(volumes, "foreign", "kept"))
	if err := os.Symlink(outside, filepath.Join(volumes, "link")); err != nil {
		t.Fatal(err)
	}
	c := newControl(50 * time.Millisecond)
	c.forgetful = true
	cfg := ProcessConfig{Dir: dir, Allow: []string{AllowAll}}
	a, _, stop := runProcessesIn(t, c, cfg, Config{})
	mustSubmit(t, a, onVolume(submit(0, 1, "sh", "-c", `mkdir -p $BERTH_VOLUME/a/b; ln -s `+outside+` $BERTH_VOLUME/a/link;
		ln -s / $BERTH_VOLUME/root; touch $BERTH_VOLUME/a/b/file`), "v", true))
	c.awaitState(t, key(0), "COMPLETED")
	mustDrop(t, a, "v", "link", "none", "v")
	mustRefuse(t, a, onVolume(submit(1, 1, "true"), "v", true), fault.ReasonVolumeDestroyed)
	mustRefuse(t, a, onVolume(submit(1, 1, "true"), "none", true), fault.ReasonVolumeDestroyed)
	c.awaitVolumes(t, "foreign", "link none v")
	if got := namesIn(t, volumes) + " " + namesIn(t, outside); got != "foreign kept" {
		t.Error(got)
	}
	mustDrop(t, a, "v") // a repeat

	stop()
	c = newControl(50 * time.Millisecond)
	a, _, _ = runProcessesIn(t, c, cfg, Config{})
	c.await(t, "the destroyed volumes of the earlier agent", func() bool {
		return slices.Equal(c.volumes["host"].GetGone(), []string{"link", "none", "v"})
	})
	mustRefuse(t, a, onVolume(submit(1, 1, "true"), "v", true), fault.ReasonVolumeDestroyed)
	if err := a.AwaitReady(t.Context()); err != nil { // The first list is answered.
		t.Fatal(err)
	}
	// The control plane has received the list. So the next one does not have them.
	mustSubmit(t, a, onVolume(submit(2, 1, "true"), "w", true))
	c.awaitVolumes(t, "foreign w", "")
	// A control plane that has lost the confirmation gets it again.
	c.mu.Lock()
	c.forgetful = true
	c.mu.Unlock()
	mustDrop(t, a, "v")
	c.awaitVolumes(t, "foreign w", "v")
	if got := namesIn(t, filepath.Join(volumes, "foreign")); got != "kept" {
		t.Error(got)
	}
}

// If an agent exits between the tombstones and the removal, the next agent removes the
// directories, and no worker starts on them.
func TestRemovalContinuesAfterARestart(t *testing.T) {
	dir := agentDir(t)
	a, c, stop := processAgent(t, dir)
	for i := range 2 {
		mustSubmit(t, a, onVolume(submit(int32(i), 1, "touch", filepath.Join(dir, "volumes", fmt.Sprint("v", i), "file")),
			fmt.Sprint("v", i), true))
		c.awaitState(t, key(i), "COMPLETED")
	}
	a.mu.Lock()
	err := a.destroyVolumes([]string{"v0"})
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if got := namesIn(t, filepath.Join(dir, "volumes")); got != "v0 v1" {
		t.Fatal(got)
	}
	a, c, _ = processAgent(t, dir)
	mustRefuse(t, a, onVolume(submit(2, 1, "true"), "v0", true), fault.ReasonVolumeDestroyed)
	c.awaitVolumes(t, "v1", "v0")
	if got := namesIn(t, filepath.Join(dir, "volumes")); got != "v1" {
		t.Error(got)
	}
}

// An agent whose volumes were wiped while it was stopped lists none, so that the control plane
// learns that they are lost.
func TestWipedDiskGivesAnEmptyList(t *testing.T) {
	dir := agentDir(t)
	a, c, stop := processAgent(t, dir)
	mustSubmit(t, a, onVolume(submit(0, 1, "true"), "v", true))
	c.awaitVolumes(t, "v", "")
	c.awaitState(t, key(0), "COMPLETED")
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "volumes")); err != nil {
		t.Fatal(err)
	}
	a, c, _ = processAgent(t, dir)
	c.awaitVolumes(t, "", "")
	mustRefuse(t, a, onVolume(submit(1, 1, "true"), "v", false), fault.ReasonVolumeMissing)
	if _, err := os.Stat(filepath.Join(dir, "volumes")); !os.IsNotExist(err) {
		t.Errorf("a refused worker made the directory: %v", err)
	}
}

// An agent whose volumes cannot be read does not start: an empty list would give them up.
func TestUnreadableVolumesGiveNoList(t *testing.T) {
	dir := agentDir(t)
	if err := os.WriteFile(filepath.Join(dir, "volumes"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{ID: "host", Dir: dir, Driver: Simulated{}, Conn: dial(t, porttest.Hold(t)), Log: quiet()})
	if err == nil || !strings.Contains(err.Error(), "volumes") {
		t.Error(err)
	}
}

// Foreign directories with the name of a volume are listed. The agent ignores all others. It
// keeps both.
func TestForeignDirectories(t *testing.T) {
	dir := agentDir(t)
	volumes := filepath.Join(dir, "volumes")
	mustMake(t, filepath.Join(volumes, "foreign"), filepath.Join(volumes, ".hidden"), filepath.Join(volumes, "lost+found"),
		filepath.Join(volumes, "v"))
	for _, ids := range []string{"foreign v", "foreign"} {
		a, c, stop := processAgent(t, dir)
		c.await(t, "a list of "+ids, func() bool { return strings.Join(c.volumes["host"].GetIds(), " ") == ids })
		mustDrop(t, a, "v")
		c.await(t, "the removal", func() bool { return slices.Equal(c.volumes["host"].Gone, []string{"v"}) })
		stop()
		if got := namesIn(t, volumes); got != ".hidden foreign lost+found" {
			t.Error(got)
		}
	}
}

// A list has at most MaxListedVolumes volumes, and confirms as many destroyed ones. The next
// list confirms the rest. The executor gets no more volumes.
func TestVolumeListIsLimited(t *testing.T) {
	const most = model.MaxListedVolumes
	l := newLedger("host", "", time.Hour)
	l.begin(1, 5)
	for i := range most + 1 {
		l.observe(fmt.Sprintf("v%05d", i), true)
		l.bury(tombstone{Volume: fmt.Sprintf("gone%05d", i)})
	}
	list := l.listVolumes()
	if len(list.Ids) != most || list.Ids[most-1] != "v09999" || len(list.Gone) != most {
		t.Error(len(list.Ids), len(list.Gone))
	}
	l.listReceived(list.Sequence)
	if list = l.listVolumes(); !slices.Equal(list.GetGone(), []string{"gone10000"}) {
		t.Error(list.GetGone())
	}
	id := identity{Epoch: 1}
	if _, _, _, err := l.submit(5, 1, id, "1-1", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := l.occupy(id, "another", true); !fault.Is(err, fault.ReasonStartFailed) {
		t.Error(err)
	}
	if err := l.occupy(id, "v10000", true); err != nil { // It exists, although it is not listed.
		t.Error(err)
	}
}

// An agent adopts each worker whose end was not acknowledged, and learns only then from its keeper
// that it has ended. If the earlier agent made that end durable, the volume is free from the start.
// The end of a later epoch proves nothing about the worker.
func TestAnAdoptedWorkerThatHasEndedFreesItsVolume(t *testing.T) {
	worker := func(index int32, epoch int64) identity {
		return identity{model.Worker{Job: "job", Stage: "stage", ID: model.WorkerID{Index: index, Number: 1}}, epoch}
	}
	for _, c := range []struct {
		name  string
		ended identity
		free  bool
	}{
		{"its own end", worker(0, 100), true},
		{"the end of a later epoch", worker(0, 101), false},
		{"the end of another worker", worker(1, 100), false},
	} {
		l := newLedger("host", "", time.Hour)
		l.bury(tombstone{identity: c.ended})
		l.begin(1, 5)
		l.observe("v1", true)
		l.adopt(worker(0, 100), "1-1", model.WorkerRunning, time.Time{})
		l.entries[worker(0, 100)].volume = "v1"
		next := worker(2, 100)
		if _, _, _, err := l.submit(5, 1, next, "1-2", time.Time{}); err != nil {
			t.Fatal(err)
		}
		err := l.occupy(next, "v1", false)
		if c.free && err != nil || !c.free && !fault.Is(err, fault.ReasonVolumeInUse) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A new volume is listed before its worker runs, so that a worker that the control plane
// knows never has an unlisted volume.
func TestVolumeIsListedBeforeItsWorkerRuns(t *testing.T) {
	c := newControl(time.Hour)
	address, _ := c.serve(t, porttest.Hold(t))
	driver := newGated()
	a, _ := runAgent(t, Config{ID: "host", Dir: agentDir(t), Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	done := make(chan error)
	go func() {
		_, err := trySubmit(t.Context(), a, onVolume(submit(0, 1, ""), "v", true))
		done <- err
	}()
	c.awaitVolumes(t, "v", "")
	driver.word(0) <- nil
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A worker whose start was acknowledged and then failed before the driver was called, or was
// withdrawn, has never used its volume. The agent says so, also after a restart.
func TestWorkerThatNeverUsedItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := agentDir(t)
		driver := newGated()
		a := unregistered(t, Config{Dir: dir, Driver: driver, Starts: 1, StartTimeout: time.Hour})
		mustSubmit(t, a, submit(0, 1, "")) // it keeps the next ones in the queue
		for i := range int32(2) {
			answer := mustSubmit(t, a, onVolume(submit(1+i, 1, ""), fmt.Sprint("v", i), true))
			if answer.Worker.State != berthv1.Assignment_STARTING {
				t.Fatal(answer)
			}
		}
		withdrawn := stopOf(submit(2, 1, ""), time.Minute)
		if answer, err := tryStop(t.Context(), a, withdrawn); err != nil || !answer.Worker.NeverStarted {
			t.Error(answer, err)
		}
		// No directory can be made.
		if err := os.WriteFile(filepath.Join(dir, "volumes"), nil, 0o640); err != nil {
			t.Fatal(err)
		}
		driver.word(0) <- nil
		synctest.Wait()
		a.mu.Lock()
		for _, w := range a.ledger.report(complete).Workers {
			if want := w.Index > 0; w.NeverStarted != want || want != model.WorkerState(w.State).Terminal() {
				t.Error(w)
			}
		}
		a.mu.Unlock()
		if err := errors.Join(a.Close(), os.Remove(filepath.Join(dir, "volumes"))); err != nil {
			t.Fatal(err)
		}
		a = unregistered(t, Config{Dir: dir, Driver: driver})
		for i := range int32(2) {
			answer, err := tryStop(t.Context(), a, stopOf(submit(1+i, 1, ""), time.Minute))
			if err != nil || !answer.Worker.NeverStarted {
				t.Error(answer, err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A removal that does not finish holds up no start, no heartbeat and no other removal. The
// volume stays listed, because it uses the disk.
func TestSlowRemovalHoldsUpNothing(t *testing.T) {
	dir := agentDir(t)
	mount := filepath.Join(dir, "volumes", "stuck", "mount")
	mustMake(t, mount, filepath.Join(dir, "volumes", "v"))
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("only root may mount: %v", err)
	}
	unmount := func() error { return unix.Unmount(mount, unix.MNT_DETACH) }
	defer unmount()
	if err := removeTree(filepath.Join(dir, "volumes"), "stuck", t.Context().Done()); err == nil {
		t.Error("a mount point was removed")
	}
	c := newControl(50 * time.Millisecond)
	c.forgetful = true
	a, _, _ := runProcessesIn(t, c, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, Config{})
	mustDrop(t, a, "stuck")
	mustDrop(t, a, "v", "stuck")
	c.awaitVolumes(t, "stuck", "v")
	mustSubmit(t, a, onVolume(submit(0, 1, "true"), "w", true))
	c.awaitState(t, key(0), "COMPLETED")
	c.awaitVolumes(t, "stuck w", "v")
	mustRefuse(t, a, onVolume(submit(1, 1, "true"), "stuck", false), fault.ReasonVolumeDestroyed)
	if err := unmount(); err != nil {
		t.Fatal(err)
	}
	c.awaitVolumes(t, "w", "stuck v")
}

// A request to destroy volumes is checked like a request to stop a worker. If its tombstones
// cannot be made durable, nothing is removed.
func TestDropVolumesIsRefused(t *testing.T) {
	dir := agentDir(t)
	mustMake(t, filepath.Join(dir, "volumes", "v"))
	a, c, _ := processAgent(t, dir)
	for name, one := range map[string]struct {
		change func(*controlv1.DropVolumesRequest)
		want   fault.Reason
	}{
		"nonce":       {func(r *controlv1.DropVolumesRequest) { r.Nonce = "another" }, fault.ReasonPermissionDenied},
		"incarnation": {func(r *controlv1.DropVolumesRequest) { r.Incarnation = 2 }, fault.ReasonOtherIncarnation},
		"term":        {func(r *controlv1.DropVolumesRequest) { r.Term = 4 }, fault.ReasonLowerTerm},
		"number": {func(r *controlv1.DropVolumesRequest) { r.Ids = slices.Repeat(r.Ids, model.MaxDroppedVolumes+1) },
			fault.ReasonTooLarge},
	} {
		req := dropOf(a, "v")
		one.change(req)
		if _, err := NewServer(a).DropVolumes(t.Context(), req); !fault.Is(err, one.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mend := breakJournal(t, a)
	if err := tryDrop(t, a, "v"); !fault.Is(err, fault.ReasonUnavailable) || fault.Of(err).Kind != fault.Unavailable {
		t.Error(err)
	}
	mend()
	mustSubmit(t, a, onVolume(submit(0, 1, "ls", filepath.Join(dir, "volumes", "v")), "v", false))
	c.awaitState(t, key(0), "COMPLETED")
	if _, err := NewServer(a).DropVolumes(t.Context(), dropOf(a, "v")); err != nil {
		t.Error(err)
	}
	c.awaitVolumes(t, "", "v")
}

// Tombstones of volumes and workers are in one file. The agent reads no ID that must not be
// part of a path.
func TestTombstonesOfVolumes(t *testing.T) {
	dir := t.TempDir()
	j, _ := reopen(t, dir)
	want := []tombstone{tombstoneOf(0), {Volume: "a"}, {Volume: strings.Repeat("b", model.MaxVolumeID)}, tombstoneOf(1)}
	if err := errors.Join(j.appendAll(want[:3], nil), j.append(want[3], want[:3])); err != nil {
		t.Fatal(err)
	}
	_, kept := reopen(t, dir)
	if !slices.Equal(kept, want) {
		t.Error(kept)
	}
	if j.lines != len(want) {
		t.Errorf("%d lines, want %d", j.lines, len(want))
	}
	for _, bad := range []string{"..", ".", "a/b"} {
		if err := j.append(tombstone{Volume: bad}, kept); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept = reopen(t, dir); !slices.Equal(kept, want) {
		t.Error(kept)
	}
}

// Each worker has another user. It owns the whole volume while it runs, except files outside to
// which an earlier worker has linked. Afterwards the next worker with its ID cannot enter
// the volume.
func TestVolumeBelongsToTheUserOfItsWorker(t *testing.T) {
	cfg := usersFor(t, 2_107_000, 3)
	outside := filepath.Join(cfg.Dir, "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, c, _ := runProcesses(t, cfg)
	mustSubmit(t, a, onVolume(submit(0, 1, "sh", "-c", `umask 077; mkdir -p $BERTH_VOLUME/a/b
		echo data >$BERTH_VOLUME/a/b/file; ln $BERTH_VOLUME/a/b/file $BERTH_VOLUME/second; ln -s `+outside+` $BERTH_VOLUME/link`),
		"v", true))
	c.awaitState(t, key(0), "COMPLETED")
	volume := filepath.Join(cfg.Dir, "volumes", "v")
	if err := os.Link(outside, filepath.Join(volume, "hard")); err != nil {
		t.Fatal(err)
	}
	other := submit(1, 1, "ls", volume)
	mustSubmit(t, a, other)
	c.awaitState(t, key(1), "FAILED")
	mustSubmit(t, a, onVolume(submit(2, 1, "sh", "-c", `cat $BERTH_VOLUME/second $BERTH_VOLUME/a/b/file
		echo more >>$BERTH_VOLUME/second; stat -c %u:%g $BERTH_VOLUME $BERTH_VOLUME/a $BERTH_VOLUME/hard $BERTH_VOLUME/link`),
		"v", false))
	c.awaitState(t, key(2), "COMPLETED")
	out, err := os.ReadFile(filepath.Join(cfg.Dir, "workers", "job", "stage.2.1.100", fileStdout))
	if want := "data\ndata\n2107003:2107003\n2107003:2107003\n0:0\n2107003:2107003\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
	for _, path := range []string{volume, outside} {
		info, err := os.Stat(path)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o077 != 0 {
			t.Error(path, info, err)
		}
	}
	mustMake(t, filepath.Join(volume, strings.Repeat("d/", maxDepth+1)))
	mustRefuse(t, a, onVolume(submit(3, 1, "true"), "v", false), fault.ReasonStartFailed)
}

// A function gets the directory of its volume. Without a directory, the agent has no volumes,
// unless its workers are simulated.
func TestVolumeOfAFunction(t *testing.T) {
	c := newControl(50 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	volumes := make(chan Volume, 1)
	driver := NewFunctions(map[string]Function{"run": func(_ context.Context, spec Spec) error {
		volumes <- spec.Volume
		return os.WriteFile(filepath.Join(spec.Volume.Dir, "file"), nil, 0o640)
	}})
	dir := agentDir(t)
	t.Chdir(filepath.Dir(dir))
	cfg := Config{ID: "host", Dir: filepath.Base(dir), Driver: driver, Conn: dial(t, address), Log: quiet()}
	a, stop := runAgent(t, cfg)
	c.registered(t, "host", 1)
	mustSubmit(t, a, onVolume(submit(0, 1, "run"), "v", true))
	if v := <-volumes; v.ID != "v" || v.Dir != filepath.Join(dir, "volumes", "v") {
		t.Error(v)
	}
	c.awaitState(t, key(0), "COMPLETED")
	stop()
	cfg.Dir, cfg.ID = "", "other"
	a, _ = runAgent(t, cfg)
	c.registered(t, "other", 1)
	mustRefuse(t, a, onVolume(submit(0, 1, "run"), "v", true), fault.ReasonStartFailed)
}

// A simulated executor has volumes in memory, with the same rules.
func TestVolumesOfASimulatedExecutor(t *testing.T) {
	c := newControl(50 * time.Millisecond)
	a, _, _ := simulatedAgent(t, c, Config{})
	mustRefuse(t, a, onVolume(submit(0, 1, ""), "v", false), fault.ReasonVolumeMissing)
	first := onVolume(submit(0, 1, ""), "v", true)
	mustSubmit(t, a, first)
	c.awaitVolumes(t, "v", "")
	mustRefuse(t, a, onVolume(submit(1, 1, ""), "v", false), fault.ReasonVolumeInUse)
	if err := tryDrop(t, a, "v"); !fault.Is(err, fault.ReasonVolumeInUse) {
		t.Error(err)
	}
	if _, err := tryStop(t.Context(), a, stopOf(first, 0)); err != nil {
		t.Fatal(err)
	}
	second := submit(1, 1, "")
	answer, err := NewServer(a).SubmitTasks(t.Context(), &controlv1.SubmitTasksRequest{Term: 5, Job: "job", Stage: "stage",
		Epoch: 100, Uid: "1-1", Orders: []*controlv1.SubmitOrder{
			{Executor: "host", Incarnation: 1, Nonce: a.ledger.nonce, Index: 1, Number: 1, Volume: &controlv1.VolumeStart{Id: "v"}},
			{Executor: "host", Incarnation: 1, Nonce: a.ledger.nonce, Index: 2, Number: 1, Volume: &controlv1.VolumeStart{Id: "w"}},
		}})
	if err != nil || answer.Outcomes[0].Failure != nil || answer.Outcomes[1].Failure == nil {
		t.Error(answer, err)
	}
	if err := tryDrop(t, a, "v"); !fault.Is(err, fault.ReasonVolumeInUse) {
		t.Error(err)
	}
	if _, err := tryStop(t.Context(), a, stopOf(second, 0)); err != nil {
		t.Fatal(err)
	}
	mustDrop(t, a, "v")
	c.awaitVolumes(t, "", "v")
	mustRefuse(t, a, onVolume(submit(2, 1, ""), "v", true), fault.ReasonVolumeDestroyed)
}
