package scenario

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// The workers of the example find each other on two executors, and sum their numbers. The
// assigner and a worker are killed: the agents follow the members at the next leader, the
// others form a new ring with the replacement, and the sum is right again.
func TestAllreduce(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "allreduce")
	build := exec.Command("go", "build", "-o", program, "berth.dev/examples/allreduce")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := start(t, fleet.Config{})
	for _, id := range []string{"host-0", "host-1"} {
		w.startAgents(fleet.Agent{ID: id, Slots: 2, Allow: []string{program}})
	}
	w.awaitReady(2)
	log, err := os.Create(filepath.Join(w.dir, "allreduce.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	job := fmt.Sprintf("allreduce-%d", os.Getpid())
	launcher := exec.Command(program, "-gateway", w.fleet.Gateway(), "-job", job, "-port", strconv.Itoa(freePorts(t, 4)))
	launcher.Stderr = log
	launcher.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	defer launcher.Process.Kill() //nolint:errcheck // it has ended unless the test has failed

	first := awaitSums(t, log.Name(), [4]int{1, 1, 1, 1}, "")
	leader, _ := w.leader(model.ServiceAssigner)
	leader.Kill()
	w.restart(leader)
	for pid := range processes(job) {
		if environment(pid)["BERTH_WORKER_INDEX"] == "2" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	awaitSums(t, log.Name(), [4]int{1, 1, 2, 1}, first)

	if err := launcher.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Wait(); err != nil {
		t.Errorf("the example ended with %v", err)
	}
	w.quiesce()
	w.nothingLeased()
}

// freePorts returns the first of some successive ports that no process has.
func freePorts(t *testing.T, number int) int {
	t.Helper()
	for first := 20_000 + os.Getpid()%8000; first < 32_000; first += number {
		var all []net.Listener
		for i := range number {
			if l, err := net.Listen("tcp", fmt.Sprintf(":%d", first+i)); err == nil {
				all = append(all, l)
			}
		}
		for _, l := range all {
			l.Close()
		}
		if len(all) == number {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

var sums = regexp.MustCompile(`worker (\d)\.(\d+): sum (\d+) of 4 workers in version (\w+)`)

// awaitSums waits until each worker with these numbers has printed the sum in the same
// version of the gang, and in no other version than before. It returns the version.
func awaitSums(t *testing.T, log string, numbers [4]int, before string) (version string) {
	t.Helper()
	until(t, func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			return err.Error()
		}
		printed := map[string]map[string]bool{} // version, worker
		for _, m := range sums.FindAllStringSubmatch(string(text), -1) {
			if m[3] != "10" {
				t.Fatalf("a wrong sum: %s", m[0])
			}
			if printed[m[4]] == nil {
				printed[m[4]] = map[string]bool{}
			}
			printed[m[4]][m[1]+"."+m[2]] = true
		}
		delete(printed, before)
		for of, workers := range printed {
			all := len(workers) == len(numbers)
			for index, number := range numbers {
				all = all && workers[fmt.Sprintf("%d.%d", index, number)]
			}
			if version = of; all {
				return ""
			}
		}
		return fmt.Sprintf("the workers %v have not printed one sum:\n%s", numbers, strings.TrimSpace(string(text)))
	})
	return version
}
