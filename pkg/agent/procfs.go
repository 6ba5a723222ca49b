package agent

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process identifies a process even if the kernel reuses its ID. In addition to the ID it
// contains the start time, in clock ticks since boot, and the ID of the boot.
type process struct {
	PID   int
	Start uint64
	Boot  string
}

// stat has the fields of /proc/PID/stat that this package uses.
type stat struct {
	state           byte
	parent, session int
	start           uint64
}

// processOf returns the identity of a running process.
func processOf(pid int) (process, error) {
	s, err := readStat(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	return process{PID: pid, Start: s.start, Boot: boot}, err
}

// bootID returns the ID of the host's current boot. After a reboot another process can
// have the same ID and start time.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text)), err
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(text))
}

// parseStat parses /proc/PID/stat. The name of the program is in parentheses and may
// contain any character, including parentheses.
func parseStat(text string) (s stat, err error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("unexpected /proc stat %q", text)
	}
	s.state = fields[0][0]
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	if s.session, err = strconv.Atoi(fields[3]); err != nil {
		return stat{}, err
	}
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// stat returns the state of the process, and reports whether it still exists.
func (p process) stat() (stat, bool) {
	s, err := readStat(p.PID)
	if err != nil || s.start != p.Start {
		return stat{}, false
	}
	boot, err := bootID()
	return s, err == nil && boot == p.Boot
}

// kill kills the process. It does not kill another process that has the same ID now.
func (p process) kill() {
	if _, same := p.stat(); same {
		_ = unix.Kill(p.PID, unix.SIGKILL) // It may have exited in the meantime.
	}
}

// killSession kills the processes of a keeper's session except the keeper, every process
// whose environment contains all the variables, and every process of the worker's user.
// It returns nil once these processes have exited, or an error if stop is closed first. A
// process that is executing another program shows no environment, so killSession looks again
// until the program runs, for five seconds at most.
// The kernel does not reuse a session ID while the session has a process. So if another
// process has the keeper's ID, the session has ended. A keeper with a PID of 1 or less is
// unknown and has no session.
func killSession(keeper process, variables []string, u user, stop <-chan struct{}) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	known := keeper.PID > 1
	if known && keeper.Boot != boot {
		return nil
	}
	s, err := readStat(keeper.PID)
	reused := err == nil && s.start != keeper.Start
	for looks := 1; ; looks++ {
		if err := u.kill(); err != nil {
			return err
		}
		executing := false
		left, err := processes(func(pid int, s stat) bool {
			if pid == keeper.PID || s.start < keeper.Start || s.state == 'Z' || s.state == 'X' {
				return false
			}
			if known && !reused && s.session == keeper.PID || hasEnviron(pid, variables) || u.ID != 0 && userOf(pid) == u.ID {
				return true
			}
			executing = executing || len(variables) > 0 && s.session != 0 && isExecuting(pid)
			return false
		})
		if err != nil || len(left) == 0 && (!executing || looks == maxLooks) {
			return err
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // It may have exited in the meantime.
		}
		select {
		case <-time.After(lookEvery):
		case <-stop:
			return fmt.Errorf("%d processes of session %d still run", len(left), keeper.PID)
		}
	}
}

const (
	// lookEvery is the interval in which killSession looks for processes. maxLooks bounds how
	// often it looks again only because a process executes another program: five seconds.
	lookEvery = 5 * time.Millisecond
	maxLooks  = 1000
)

// isExecuting reports whether a process is in the middle of executing another program, so
// that it has neither an environment nor arguments. A kernel thread never has any; its
// session is 0.
func isExecuting(pid int) bool {
	for _, name := range []string{"environ", "cmdline"} {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)); err != nil || len(text) > 0 {
			return false
		}
	}
	return true
}

// hasEnviron reports whether a process was started with all the variables in its
// environment. Each variable has the form NAME=value.
func hasEnviron(pid int, variables []string) bool {
	if len(variables) == 0 {
		return false
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false // the process belongs to another user or has exited
	}
	entries := strings.Split(string(environ), "\x00")
	return !slices.ContainsFunc(variables, func(v string) bool { return !slices.Contains(entries, v) })
}

// processes returns the IDs of the processes for which match returns true.
func processes(match func(pid int, s stat) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// If the file of a process cannot be read, the process has exited.
		if s, err := readStat(pid); err == nil && match(pid, s) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// reap waits for the process and reaps it, if it is a child of the current process.
func (p process) reap() {
	if _, same := p.stat(); same {
		waitChild(p.PID)
	}
}

// waitChild waits for a child to exit and reaps it.
func waitChild(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
