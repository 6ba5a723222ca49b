package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth.dev/api/fault"
)

// optionUIDs is the name of the option in errors.
const optionUIDs = "--worker-uids"

// maxUIDs is the maximum size of a range of user IDs.
const maxUIDs = 100_000

// UIDRange is a range of user IDs for workers. The zero value is no range. The driver
// never gives the ID First to a worker, because it kills the processes of workers with
// that ID (see user.kill).
type UIDRange struct{ First, Last uint32 }

// ParseUIDRange parses a range in the form FIRST-LAST. The empty text is no range.
func ParseUIDRange(text string) (UIDRange, error) {
	if text == "" {
		return UIDRange{}, nil
	}
	first, last, _ := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(first, 10, 32)
	b, err2 := strconv.ParseUint(last, 10, 32)
	if err1 != nil || err2 != nil {
		return UIDRange{}, fault.BadField(fault.ReasonInvalid, optionUIDs,
			"must be two user IDs, FIRST-LAST, such as 200000-200999, got %q", text)
	}
	r := UIDRange{uint32(a), uint32(b)}
	return r, r.check()
}

func (r UIDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// check checks the range. The ID 1<<32 - 1 means "no change" to the kernel.
func (r UIDRange) check() error {
	wrong := func(format string, args ...any) error {
		return fault.BadField(fault.ReasonInvalid, optionUIDs, format, args...)
	}
	switch size := int64(r.Last) - int64(r.First) + 1; {
	case r.First == 0:
		return wrong("must not contain 0, the user ID of root, got %v", r)
	case r.Last == 1<<32-1:
		return wrong("must be less than %d, got %v", r.Last, r)
	case size < 2:
		return wrong("FIRST must be less than LAST, got %v", r)
	case size > maxUIDs:
		return wrong("must have at most %d user IDs, got %d", maxUIDs, size)
	}
	for _, own := range []int{os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid()} {
		if int64(own) >= int64(r.First) && int64(own) <= int64(r.Last) {
			return wrong("must not contain the user or group ID of the agent, %d, got %v", own, r)
		}
	}
	return nil
}

// userCapabilities are the capabilities that an agent with UIDRange needs: to create the
// directories of workers, to start and kill workers, and to remove their files.
var userCapabilities = []struct {
	number uint
	name   string
}{
	{unix.CAP_CHOWN, "CHOWN"}, {unix.CAP_DAC_OVERRIDE, "DAC_OVERRIDE"}, {unix.CAP_FOWNER, "FOWNER"},
	{unix.CAP_KILL, "KILL"}, {unix.CAP_SETGID, "SETGID"}, {unix.CAP_SETPCAP, "SETPCAP"}, {unix.CAP_SETUID, "SETUID"},
}

// checkUsers checks that the agent can run workers as other users, and that these users
// can reach the agent's directory.
func checkUsers(r UIDRange, dir string) error {
	if err := r.check(); err != nil {
		return err
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range userCapabilities {
		if caps[0].Effective&(1<<c.number) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return fault.BadField(fault.ReasonInvalid, optionUIDs, "the agent must run as root, or with the capabilities %s",
			strings.Join(missing, ", "))
	}
	for dir != "/" {
		dir = filepath.Dir(dir)
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			return fault.BadField(fault.ReasonInvalid, optionUIDs,
				"the users of workers cannot reach --dir: run chmod o+x %s, or choose another directory", dir).Because(err)
		}
	}
	return nil
}

// capabilities returns the capabilities of the calling thread.
func capabilities() (data [2]unix.CapUserData, err error) {
	return data, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
}

// setCapabilities sets the capabilities of the calling thread.
func setCapabilities(data [2]unix.CapUserData) error {
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
}

// user is the user of a worker. The zero value is the user of the agent.
type user struct {
	// ID is the user ID and the group ID.
	ID uint32
	// Killer is an ID that no process has, see kill.
	Killer uint32
}

// takeUser returns the user of a new worker. Its ID is not the ID of another worker or of
// any process. takeUser uses the IDs of the range in turn, so that it reuses an ID late.
func (p *Process) takeUser() (user, error) {
	r := p.cfg.WorkerUIDs
	if r == (UIDRange{}) {
		return user{}, nil
	}
	busy := map[uint32]bool{}
	if _, err := processes(func(pid int, s stat) bool {
		u := userOf(pid)
		busy[u] = busy[u] || s.state != 'Z'
		return false
	}); err != nil {
		return user{}, startFailed("the user IDs of processes: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := r.Last - r.First
	for range n {
		if p.lastUser++; p.lastUser <= r.First || p.lastUser > r.Last {
			p.lastUser = r.First + 1
		}
		if !p.users[p.lastUser] && !busy[p.lastUser] {
			p.users[p.lastUser] = true
			return user{p.lastUser, r.First}, nil
		}
	}
	return user{}, startFailed("all %d user IDs of %s %v are in use: give the agent a larger range", n, optionUIDs, r)
}

// freeUser makes the user ID of an ended worker available again. No process may have the
// ID. The next worker with the ID must not read the directory and the volume of this one, so
// freeUser first takes them from the user.
func (p *Process) freeUser(dir string, v Volume, u user) {
	if u.ID == 0 {
		return
	}
	owned := []string{filepath.Join(dir, dirWork)}
	if v.ID != "" {
		owned = append(owned, v.Dir)
	}
	for _, path := range owned {
		err := os.Lchown(path, os.Geteuid(), os.Getegid())
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.log.Warn("the user ID of an ended worker stays in use", "dir", path, "user", u.ID, "error", err)
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users, u.ID)
}

// lend makes the user of a worker the owner of its volume, in which the files belong to the
// users of earlier workers. The directory itself is the last: until then only the agent can
// enter it.
func (p *Process) lend(v Volume, u user) error {
	if u.ID == 0 || v.ID == "" {
		return nil
	}
	if err := reachable(filepath.Dir(v.Dir)); err != nil {
		return err
	}
	root, err := os.OpenRoot(v.Dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	if err := ownTree(root, u, p.cfg.WorkerUIDs, maxDepth); err != nil {
		return fmt.Errorf("volume %s: %w", v.ID, err)
	}
	return u.own(v.Dir)
}

// reachable lets the users of workers enter the directories in a directory.
func reachable(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode().Perm()|0o111)
}

// own makes the user the owner of a file.
func (u user) own(path string) error {
	if u.ID == 0 {
		return nil
	}
	return os.Lchown(path, int(u.ID), int(u.ID))
}

// userOf returns the real user ID of a process, or 0 if it cannot be read.
func userOf(pid int) uint32 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nUid:\t")
	id, _, _ := strings.Cut(rest, "\t")
	n, _ := strconv.ParseUint(id, 10, 32)
	return uint32(n)
}

// contain makes the process that the calling thread starts next unable to gain
// privileges: it gets no inheritable and no ambient capabilities, and programs with
// set-user-ID or file capabilities give it none. A worker with its own user also has an
// empty bounding set. The calling goroutine must be locked to its thread.
func (u user) contain() error {
	if u.ID != 0 {
		// The kernel returns EINVAL for the first number that is not a capability.
		for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	// A kernel without ambient capabilities returns EINVAL.
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && err != unix.EINVAL {
		return err
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	if err := setCapabilities(caps); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// kill kills all processes of a worker's user at once: kill(-1) is atomic, so that no
// process escapes by forking. A thread makes the call with the effective ID of the user
// and without capabilities. Its real ID is Killer, so that it kills no other process, and
// so that the worker's processes cannot signal the thread.
func (u user) kill() error {
	if u.ID == 0 || u.Killer == 0 {
		return nil
	}
	return onThread(func() error {
		// The functions of the package syscall would change all threads.
		id, killer := uintptr(u.ID), uintptr(u.Killer)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, killer, id, killer); e != 0 {
			return fmt.Errorf("become user %d: %w", id, e)
		}
		// With the capability KILL, the call would kill the processes of all users.
		if err := setCapabilities([2]unix.CapUserData{}); err != nil {
			return err
		}
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill the processes of user %d: %w", id, err)
		}
		return nil
	})
}

// onThread calls f on a thread of its own, which ends afterwards. It does not use the main
// thread, because the main thread never ends.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f()
	}()
	return <-result
}
