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

// process names a process beyond the reuse of its id: by the ticks since boot at
// which it started, and by the boot.
type process struct {
	PID   int
	Start uint64
	Boot  string
}

// stat is what is used of /proc/PID/stat.
type stat struct {
	state          byte
	parent         int
	group, session int
	start          uint64
}

// processOf names a living process.
func processOf(pid int) (process, error) {
	s, err := readStat(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	return process{PID: pid, Start: s.start, Boot: boot}, err
}

// bootID names the host's present boot: ids and starts of processes recur after
// another.
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

// parseStat reads the line. The name of the program stands in parentheses and
// may hold anything, more of them included.
func parseStat(text string) (s stat, err error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("unexpected /proc stat %q", text)
	}
	s.state = fields[0][0]
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	if s.group, err = strconv.Atoi(fields[2]); err != nil {
		return stat{}, err
	}
	if s.session, err = strconv.Atoi(fields[3]); err != nil {
		return stat{}, err
	}
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// seen looks at the process, and says whether it is still the same one.
func (p process) seen() (stat, bool) {
	s, err := readStat(p.PID)
	if err != nil || s.start != p.Start {
		return stat{}, false
	}
	boot, err := bootID()
	return s, err == nil && boot == p.Boot
}

// kill kills the process, and no other that has its id now.
func (p process) kill() {
	if _, same := p.seen(); same {
		_ = unix.Kill(p.PID, unix.SIGKILL) // Its end in the meantime is what is wanted.
	}
}

// killSession kills what lives of a keeper's session, itself aside, and what has
// all the marks in its environment. It returns once that is gone, or with an error
// when enough ends first. A session id is not reused while a process is in the
// session: a process of the keeper's id and another start means that nothing is
// left of it.
func killSession(keeper process, marks []string, enough <-chan struct{}) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	if keeper.PID <= 1 || keeper.Boot != boot {
		return nil
	}
	s, err := readStat(keeper.PID)
	reused := err == nil && s.start != keeper.Start
	for {
		left, err := processes(func(pid int, s stat) bool {
			if pid == keeper.PID || s.start < keeper.Start || s.state == 'Z' || s.state == 'X' {
				return false
			}
			return s.session == keeper.PID && !reused || carries(pid, marks)
		})
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			// Its end in the meantime is what is wanted.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-enough:
			return fmt.Errorf("%d processes of session %d still live", len(left), keeper.PID)
		}
	}
}

// carries says whether a process was started with all the marks in its environment.
func carries(pid int, marks []string) bool {
	if len(marks) == 0 {
		return false
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false // another user's, or it has ended
	}
	entries := strings.Split(string(environ), "\x00")
	return !slices.ContainsFunc(marks, func(mark string) bool { return !slices.Contains(entries, mark) })
}

// processes lists those that fit.
func processes(fits func(pid int, s stat) bool) ([]int, error) {
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
		// One that cannot be read has ended.
		if s, err := readStat(pid); err == nil && fits(pid, s) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// reap takes in the end of a child. What is no child of this process, or no
// longer the same, is left alone.
func (p process) reap() {
	if _, same := p.seen(); same {
		for {
			if _, err := unix.Wait4(p.PID, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}
}
