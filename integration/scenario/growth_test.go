package scenario

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
)

// growthFor is how long the first run of TestGrowth lasts.
var growthFor = flag.Duration("growth", 0, "how long to run short workers before their memory is measured")

// memory is what a process uses, in bytes: what it keeps, and what it has of the host.
type memory struct{ kept, resident int64 }

// Short workers do not make any process grow: after a run that is longer than the history of ten
// minutes, a run twice as long needs no more memory. etcd is compacted every five minutes.
func TestGrowth(t *testing.T) {
	if *growthFor == 0 {
		t.Skip("make growth runs short workers for more than half an hour")
	}
	if *growthFor <= model.KeepTerminal {
		t.Fatalf("-growth must be more than %v", model.KeepTerminal)
	}
	profiled := []string{"--pprof", "--http-listen", "127.0.0.1:0"}
	leader := []string{"--pprof", "--event-retention", model.KeepTerminal.String()} // as long as the other history
	w := start(t, fleet.Config{Gateways: 2, Etcd: 1, LogLevel: "warn", Flags: map[string][]string{
		"registry": leader, "executor-state": leader, "assigner": leader, "gateway": profiled, "agent": profiled,
	}})
	processes := w.fleet.Processes()
	for i := range 8 {
		id := fmt.Sprintf("host-%d", i)
		if err := w.fleet.StartAgent(w.ctx, fleet.Agent{ID: id, Slots: 10, WorkDir: w.dir}); err != nil {
			t.Fatal(err)
		}
		processes["agent"] = append(processes["agent"], w.fleet.Agent(id))
	}
	pace := time.NewTicker(50 * time.Millisecond) // a steady load that the hosts can take
	defer pace.Stop()
	number, compacted := 0, time.Now()
	run := func(d time.Duration) map[string]memory {
		for end := time.Now().Add(d); time.Now().Before(end); number++ {
			if time.Since(compacted) >= model.KeepTerminal/2 {
				w.compact()
				compacted = time.Now()
			}
			if _, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: fmt.Sprintf("job-%d", number/100),
				Stage: fmt.Sprintf("stage-%d", number), Count: 1, Task: &berthv1.Task{Command: "/bin/true"},
				Constraints: &berthv1.Constraints{Resources: map[string]int64{"slots": 1}}}); err != nil {
				t.Fatal(err)
			}
			<-pace.C
		}
		return w.measure(processes)
	}
	start := w.measure(processes)
	first := run(*growthFor)
	workers := number
	second := run(2 * *growthFor)
	t.Logf("%d workers, then %d more", workers, number-workers)
	var atFirst, atSecond int64
	for _, name := range slices.Sorted(maps.Keys(second)) {
		a, b := first[name], second[name]
		t.Logf("%-18s keeps %5.1f, %5.1f, %5.1f MB, resident %4d, %4d, %4d MB", name, megabytes(start[name].kept),
			megabytes(a.kept), megabytes(b.kept), start[name].resident>>20, a.resident>>20, b.resident>>20)
		if limit := a.kept + a.kept/5 + 4<<20; b.kept > limit {
			t.Errorf("%s keeps %d bytes after the second run, want at most %d", name, b.kept, limit)
		}
		atFirst, atSecond = atFirst+a.resident, atSecond+b.resident
	}
	if atSecond > atFirst+atFirst/10 {
		t.Errorf("all processes use %d MB after the second run, and %d MB after the first", atSecond>>20, atFirst>>20)
	}
}

// compact audits the history of etcd, which takes memory until the next compaction, and compacts it.
func (w *world) compact() {
	w.Helper()
	next := w.revision()
	checkHistory(w.T, w.store, w.restored, w.tampered)
	if _, err := w.store.Client().Compact(w.ctx, next); err != nil {
		w.Fatal(err)
	}
	w.restored = next
}

func megabytes(n int64) float64 { return float64(n) / (1 << 20) }

// measure returns the memory of processes after a collection of garbage, by their names. The memory
// that etcd keeps is not measured.
func (w *world) measure(processes map[string][]*child.Process) map[string]memory {
	w.Helper()
	all := map[string]memory{}
	for service, list := range processes {
		for _, p := range list {
			m := memory{resident: w.number(fmt.Sprintf("/proc/%d/status", p.Pid()), "VmRSS:") << 10}
			if service != "etcd" {
				m.kept = w.kept(p)
			}
			all[p.Name] = m
		}
	}
	return all
}

// kept returns the bytes of the live objects of a process, and of the floor of its heap.
func (w *world) kept(p *child.Process) int64 {
	w.Helper()
	answer, err := http.Get("http://" + p.Addresses().HTTP + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	return w.find(bufio.NewScanner(answer.Body), "# HeapAlloc =")
}

// number returns the number after a prefix in a file.
func (w *world) number(file, prefix string) int64 {
	w.Helper()
	f, err := os.Open(file)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	return w.find(bufio.NewScanner(f), prefix)
}

func (w *world) find(lines *bufio.Scanner, prefix string) (n int64) {
	w.Helper()
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if rest, has := strings.CutPrefix(lines.Text(), prefix); has {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				w.Fatal(err)
			}
			return n
		}
	}
	w.Fatalf("there is no line %q: %v", prefix, lines.Err())
	return 0
}
