package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// usersFor returns the configuration of an agent with user IDs for n workers. Each test has
// a range of its own.
func usersFor(t *testing.T, first, n uint32) ProcessConfig {
	t.Helper()
	cfg := ProcessConfig{Dir: agentDir(t), Allow: []string{AllowAll}, WorkerUIDs: UIDRange{first, first + n}}
	if err := checkUsers(cfg.WorkerUIDs, cfg.Dir); namesOption(err, "run as root") {
		t.Skip("this test needs root: ", err)
	}
	return cfg
}

// openFIFO returns a named pipe that all users can use.
func openFIFO(t *testing.T) *fifo {
	t.Helper()
	f := newFIFO(t)
	dir := filepath.Dir(f.path)
	if err := errors.Join(os.Chmod(f.path, 0o666), os.Chmod(dir, 0o711), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		t.Fatal(err)
	}
	return f
}

// processesOf returns the living processes of a user.
func processesOf(t *testing.T, id uint32) []int {
	t.Helper()
	pids, err := processes(func(pid int, s stat) bool { return s.state != 'Z' && userOf(pid) == id })
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// setuidID returns a copy of the program id with the set-user-ID bit of root.
func setuidID(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(programPath(t, "id"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "setuid-id")
	if err := errors.Join(os.WriteFile(path, text, 0o755), os.Chown(path, 0, 0), os.Chmod(path, os.ModeSetuid|0o755),
		os.Chmod(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A worker has its own user and group, and no privileges. It cannot read what belongs to
// the agent or to another worker, and it cannot change the files of its keeper.
func TestWorkerWithItsOwnUserIsContained(t *testing.T) {
	cfg := usersFor(t, 2_100_000, 2)
	setuid := setuidID(t, cfg.Dir)
	outside := exec.Command(setuid, "-u")
	outside.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 2_100_000}}
	if out, err := outside.Output(); err != nil || string(out) != "0\n" {
		t.Skipf("%s ignores the set-user-ID bit: %q, %v", cfg.Dir, out, err)
	}
	// The agent has inherited a file that is not close-on-exec.
	const inherited = 99
	if err := unix.Dup2(2, inherited); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	a, c, _ := runProcesses(t, cfg)
	f, gate := openFIFO(t), openFIFO(t)
	other := submit(0, 1, "sh", "-c", "echo private >file; chmod 644 file; echo $BERTH_PAYLOAD_FILE >"+f.path+"; read go <"+gate.path)
	other.Task.Payload, other.Reservation, other.Workers = []byte("secret"), "main", 1
	mustSubmit(t, a, other)
	payload := f.line(t)
	worker := filepath.Join(cfg.Dir, "workers", "job", "stage.0.1.100")
	probe := `try() { name=$1; shift; if sh -c "$*" 2>/dev/null; then echo "succeeded: $name"; fi; }
		try "read the working directory" ls ` + filepath.Join(worker, dirWork) + `
		try "read a file of the other worker" cat ` + filepath.Join(worker, dirWork, "file") + `
		try "list the directory of the other worker" ls ` + worker + `
		try "read the payload" cat ` + payload + `
		try "read the members" cat ` + worker + `/gang.json
		try "read the request" cat ` + worker + `/worker.json
		try "read the output" cat ` + worker + `/stdout
		try "read the environment" cat /proc/$1/environ
		try "stop the other worker" 'echo 0 >` + worker + `/control'
		try "stop itself" 'echo 0 >../control'
		try "read the secret" cat ` + cfg.Dir + `/secret
		try "list the directory of the agent" ls ` + cfg.Dir + `
		try "write the exit record" 'echo {} >../exit'
		try "write the next exit record" 'echo {} >../exit.new'
		try "replace the exit record" mv ../worker.json ../exit
		try "create a file" touch ../forgotten
		try "read its own request" cat ../worker.json
		try "rename its directory" mv ../work ../other
		try "kill its keeper" kill -9 $PPID
		echo ids $(id -u) $(id -g) $(id -G)
		echo setuid $(` + setuid + ` -u)
		echo privileges $(grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs):' /proc/self/status)
		echo descriptors $(ls /proc/self/fd)
		echo own $HOME $TMPDIR $USER $(stat -c '%a %u' .) $(cat $BERTH_PAYLOAD_FILE) $(grep -c '"index":1,' $BERTH_GANG_FILE)
		echo opened >/dev/stdout`
	req := submit(1, 1, "sh", "-c", probe, "probe", fmt.Sprint(os.Getpid()))
	req.Task.Payload, req.Reservation, req.Workers = []byte("mine"), "main", 1
	mustSubmit(t, a, req)
	c.awaitState(t, key(1), "COMPLETED")
	own := filepath.Join(cfg.Dir, "workers", "job", "stage.1.1.100")
	out, err := os.ReadFile(filepath.Join(own, fileStdout))
	if err != nil {
		t.Fatal(err)
	}
	var p plan
	if err := readJSON(filepath.Join(own, fileWorker), &p); err != nil {
		t.Fatal(err)
	}
	const none = "0000000000000000"
	id := p.User.ID
	if want := fmt.Sprintf("ids %d %[1]d %[1]d\nsetuid %[1]d\n"+
		"privileges CapInh: %[2]s CapPrm: %[2]s CapEff: %[2]s CapBnd: %[2]s CapAmb: %[2]s NoNewPrivs: 1\n"+
		"descriptors 0 1 2 3\nown %[3]s %[3]s 700 %[1]d mine 1\nopened\n", id, none,
		filepath.Join(own, dirWork)); string(out) != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
	gate.write(t, "go\n")
	c.awaitState(t, key(0), "COMPLETED")
	// Once the ID may be given to another worker, it gives no access to the directory.
	info, err := os.Stat(filepath.Join(own, dirWork))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
}

// A worker with its own user reports its own readiness, and not that of another worker.
func TestWorkerWithItsOwnUserReportsItsReadiness(t *testing.T) {
	a, c, _ := runProcesses(t, usersFor(t, 2_106_000, 2))
	f := openFIFO(t)
	other := loading(0, 1, 0, "sh", "-c", `echo "$BERTH_READY_PIPE" >`+f.path+`; sleep 1000`)
	mustSubmit(t, a, other)
	mustSubmit(t, a, loading(1, 1, 0, "sh", "-c", `if ! echo >"$1"; then echo >"$BERTH_READY_PIPE"; fi; sleep 1000`, "sh",
		f.line(t)))
	c.awaitState(t, key(1), "RUNNING")
	mustBe(t, a, other, berthv1.Assignment_STARTING)
}

// Without users for workers, workers gain no privileges either.
func TestWorkerCannotGainPrivileges(t *testing.T) {
	dir := agentDir(t)
	a, c, _ := processAgent(t, dir)
	mustSubmit(t, a, submit(0, 1, "grep", "-E", "^(NoNewPrivs|CapInh|CapAmb)", "/proc/self/status"))
	c.awaitState(t, key(0), "COMPLETED")
	out, err := os.ReadFile(filepath.Join(dir, "workers", "job", "stage.0.1.100", fileStdout))
	if want := "CapInh:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"; err != nil ||
		string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}

// No two living workers have the same user ID, also after a restart of the agent. If all
// IDs are in use, the agent refuses the next worker. The end of a worker frees its ID.
func TestUserIDsOfLivingWorkersAreUnique(t *testing.T) {
	cfg := usersFor(t, 2_101_000, 2)
	f, gate := openFIFO(t), openFIFO(t)
	request := func(index int32, incarnation int64) error {
		a, _, stop := runProcesses(t, cfg)
		defer stop()
		_, err := trySubmit(t.Context(), a, submit(index, incarnation, "sh", "-c", "id -u >"+f.path+"; read go <"+gate.path))
		return err
	}
	var ids []string
	for i := range int32(2) { // each by another agent
		if err := request(i, 1); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.line(t))
	}
	if slices.Sort(ids); fmt.Sprint(ids) != "[2101001 2101002]" {
		t.Errorf("the IDs are %v", ids)
	}
	a, c, _ := runProcesses(t, cfg)
	third := submit(2, 1, "sh", "-c", "id -u >"+f.path)
	_, err := trySubmit(t.Context(), a, third)
	if !fault.Is(err, fault.ReasonStartFailed) || !strings.Contains(err.Error(), "--worker-uids 2101000-2101002") {
		t.Errorf("without a free ID: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "workers", "job", "stage.2.1.100")); !os.IsNotExist(err) {
		t.Errorf("a refused worker left its directory: %v", err)
	}
	gate.write(t, "go\n") // one of the two reads it
	c.await(t, "one worker to end", func() bool {
		return c.workers[key(0)].GetState() == berthv1.Assignment_COMPLETED ||
			c.workers[key(1)].GetState() == berthv1.Assignment_COMPLETED
	})
	mustSubmit(t, a, third)
	if id := f.line(t); !slices.Contains(ids, id) {
		t.Errorf("the third worker has the ID %s", id)
	}
	c.awaitState(t, key(2), "COMPLETED")
}

// An ID with a process that is no worker of the agent is not given to a worker.
func TestUserIDOfAnotherProcessIsNotUsed(t *testing.T) {
	cfg := usersFor(t, 2_102_000, 1)
	sleep := exec.Command("sleep", "1000")
	sleep.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 2_102_001}}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	a, c, _ := runProcesses(t, cfg)
	_, err := trySubmit(t.Context(), a, submit(0, 1, "true"))
	if !fault.Is(err, fault.ReasonStartFailed) || !alive(sleep.Process.Pid) {
		t.Errorf("%v; the other process is alive: %v", err, alive(sleep.Process.Pid))
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	mustSubmit(t, a, submit(0, 1, "true"))
	c.awaitState(t, key(0), "COMPLETED")
}

// A process that left the session and the environment of its worker is killed, even if the
// keeper was killed before. Processes that fork all the time are killed too.
func TestAllProcessesOfTheWorkersUserAreKilled(t *testing.T) {
	cfg := usersFor(t, 2_103_000, 2)
	a, c, _ := runProcesses(t, cfg)
	f := openFIFO(t)
	// The process starts a copy of itself in a new session and exits, again and again.
	escape := `export F='trap "" TERM; setsid env -i F="$F" PATH="$PATH" sh -c "$F" & exit'; for i in 1 2 3; do sh -c "$F"; done
		setsid env -i sh -c 'trap "" TERM; echo started >` + f.path + `; sleep 1000' &
		wait; sleep 1000`
	var users []uint32
	for i := range int32(2) {
		order := submit(i, 1, "sh", "-c", escape)
		mustSubmit(t, a, order)
		f.line(t)
		dir := filepath.Join(cfg.Dir, "workers", "job", fmt.Sprintf("stage.%d.1.100", i))
		var p plan
		var keeper process
		if err := errors.Join(readJSON(filepath.Join(dir, fileWorker), &p),
			readJSON(filepath.Join(dir, fileClaim), &keeper)); err != nil {
			t.Fatal(err)
		}
		users = append(users, p.User.ID)
		if i == 0 {
			keeper.kill()
			c.awaitState(t, key(0), "FAILED")
		} else {
			if _, err := tryStop(t.Context(), a, stopOf(order, 0)); err != nil {
				t.Fatal(err)
			}
			c.awaitState(t, key(1), "EVICTED")
		}
	}
	for _, id := range users {
		if left := processesOf(t, id); len(left) > 0 {
			t.Errorf("user %d still has processes %v", id, left)
		}
	}
}

// The kill of a worker's user does not kill processes of other users, and not the agent.
func TestKillOfAUserIsLimitedToTheUser(t *testing.T) {
	usersFor(t, 2_104_000, 3)
	var pids []int
	for _, id := range []uint32{uint32(os.Geteuid()), 2_104_001, 2_104_002} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		pids = append(pids, cmd.Process.Pid)
	}
	for range 20 { // on many threads
		if err := (user{ID: 2_104_001, Killer: 2_104_000}).kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Waitid(unix.P_PID, pids[1], nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Error(err)
	}
	if !alive(pids[0]) || !alive(pids[2]) {
		t.Error("a process of another user was killed")
	}
	if out, err := exec.Command("id", "-u").Output(); err != nil || string(out) != fmt.Sprintln(os.Geteuid()) {
		t.Errorf("the agent's user is %q, %v", out, err)
	}
}

// A worker whose process left its process group is killed after the grace period.
func TestProcessThatLeftItsGroupIsKilled(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	order := submit(0, 1, self, leaveGroup, f.path)
	mustSubmit(t, a, order)
	if pid, group := f.pid(t), f.pid(t); pid == group {
		t.Fatal("it did not leave its group")
	}
	if _, err := tryStop(t.Context(), a, stopOf(order, 0)); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetSignal() != 9 {
		t.Error(w)
	}
}

// leaveGroup is the argument that makes the test binary move to another process group and
// write its process ID and its group to a file.
const leaveGroup = "leave-group"

func leaveGroupMain() {
	if len(os.Args) != 3 || os.Args[1] != leaveGroup {
		return
	}
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := child.Start()
	if err == nil {
		err = unix.Setpgid(0, child.Process.Pid)
	}
	if err == nil {
		err = os.WriteFile(os.Args[2], fmt.Appendf(nil, "%d\n%d\n", os.Getpid(), unix.Getpgrp()), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// NewProcess refuses a range of user IDs that is not valid, that lacks capabilities, or
// whose users cannot reach the agent's directory. The error names the option.
func TestWorkerUIDsAreChecked(t *testing.T) {
	for _, text := range []string{"x", "1", "-", "1-", "-1", "1-x", "1-2-3", " 1-2", "+1-2", "1-4294967296"} {
		if r, err := ParseUIDRange(text); !namesOption(err, "must be two user IDs") {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
	if r, err := ParseUIDRange(""); err != nil || r != (UIDRange{}) {
		t.Error(r, err)
	}
	if r, err := ParseUIDRange("200000-299999"); err != nil || r != (UIDRange{200_000, 299_999}) {
		t.Error(r, err)
	}
	for r, want := range map[UIDRange]string{
		{0, 1000}:               "must not contain 0",
		{200_000, 200_000}:      "FIRST must be less than LAST",
		{200_001, 200_000}:      "FIRST must be less than LAST",
		{200_000, 300_000}:      "at most 100000 user IDs",
		{1<<32 - 10, 1<<32 - 1}: "must be less than 4294967295",
	} {
		if _, err := NewProcess(ProcessConfig{Dir: t.TempDir(), WorkerUIDs: r}); !namesOption(err, want) {
			t.Errorf("%v: %v, want %s", r, err, want)
		}
	}
	cfg := usersFor(t, 2_105_000, 2)
	// MkdirTemp made the directory with the mode 0700.
	_, err := NewProcess(ProcessConfig{Dir: filepath.Join(cfg.Dir, "dir"), WorkerUIDs: cfg.WorkerUIDs})
	if !namesOption(err, "chmod o+x "+cfg.Dir) {
		t.Error(err)
	}
	err = onThread(func() error {
		caps, err := capabilities()
		if err != nil {
			return err
		}
		caps[0].Effective &^= 1<<unix.CAP_KILL | 1<<unix.CAP_SETUID
		if err := setCapabilities(caps); err != nil {
			return err
		}
		_, err = NewProcess(cfg)
		return err
	})
	if !namesOption(err, "with the capabilities KILL, SETUID") {
		t.Error(err)
	}
}

func namesOption(err error, want string) bool {
	f := fault.Of(err)
	return f != nil && f.Kind == fault.Invalid && len(f.Fields) == 1 && f.Fields[0].Name == optionUIDs &&
		strings.Contains(f.Message, want)
}
