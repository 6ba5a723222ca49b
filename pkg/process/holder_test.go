//go:build linux && (amd64 || arm64)

package process_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth.dev/pkg/process"
)

// owner makes the test's binary a process whose memory is held, which listens.
const owner = "BERTH_TEST_MEMORY_OWNER"

func init() {
	if os.Getenv(owner) == "" {
		return
	}
	if _, err := process.HoldMemory(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	for {
		if _, err := l.Accept(); err != nil {
			os.Exit(1)
		}
	}
}

// holders are the processes that hold a process's memory.
func holders(t *testing.T, owner int) (found []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if strings.HasPrefix(string(text), "Name:\tberth-memory\n") && strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", owner)) &&
			!strings.Contains(string(text), "\nState:\tZ") {
			var pid int
			if _, err := fmt.Sscanf(file, "/proc/%d/status", &pid); err != nil {
				t.Fatal(err)
			}
			found = append(found, pid)
		}
	}
	return found
}

// until looks again and again for a while.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestMemoryIsHeldUntilItIsLetGo(t *testing.T) {
	before := holders(t, os.Getpid())
	letGo, err := process.HoldMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer letGo()
	var now []int
	until(t, "nobody holds the memory", func() bool { // it takes its name by itself
		now = holders(t, os.Getpid())
		return len(now) == len(before)+1
	})
	one := now[slices.IndexFunc(now, func(pid int) bool { return !slices.Contains(before, pid) })]
	until(t, "it has more files than the end of its pipe", func() bool {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", one))
		return err == nil && len(files) == 1
	})
	if err := syscall.Kill(one, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := holders(t, os.Getpid()); !slices.Contains(got, one) {
		t.Error("a signal has reached it")
	}
	if err := syscall.Kill(one, syscall.SIGSTOP); err != nil { // which does not keep it
		t.Fatal(err)
	}
	letGo()
	if left := holders(t, os.Getpid()); len(left) != len(before) {
		t.Errorf("%v are left of %v", left, now)
	}
}

// Who is connected to a process that is killed knows before its memory is given back:
// here that cannot be, for its holder is frozen.
func TestSocketsAreClosedBeforeMemoryIsGivenBack(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), owner+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	defer func() {
		if !killed {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var found []int
	until(t, "nobody holds its memory", func() bool {
		found = holders(t, cmd.Process.Pid)
		return len(found) == 1
	})
	holder := found[0]
	until(t, "it has more files than the end of its pipe", func() bool {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", holder))
		return err == nil && len(files) == 1
	})
	if err := syscall.Kill(holder, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(holder, syscall.SIGKILL)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	killed = true
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("its connection: %d bytes, %v", n, err)
	} else if err != io.EOF {
		t.Logf("its connection has ended with %v", err)
	}
	if resident(t, holder) == 0 {
		t.Error("its memory is given back")
	}
	if err := syscall.Kill(holder, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "its memory is still held", func() bool { return resident(t, holder) == 0 })
}

// resident is how many pages a process has in memory: 0 once it has ended.
func resident(t *testing.T, pid int) (pages int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages
}
