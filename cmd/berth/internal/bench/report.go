package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/pkg/process"
)

// Report has the results of all workloads and describes the machine on which they were
// measured.
type Report struct {
	Version  string    `json:"version"`
	Began    time.Time `json:"began"`
	Machine  Machine   `json:"machine"`
	Window   string    `json:"window"`
	Repeats  int       `json:"repeats"`
	Replicas int       `json:"replicas"`
	Scale    float64   `json:"scale"`
	Results  []*Result `json:"results"`
}

// Machine describes the machine of a report.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d × %s, %s, Linux %s, %s", m.CPUs, m.Model, m.Memory, m.Kernel, m.Go)
}

// newReport returns an empty report and prints the machine.
func newReport(o Options) *Report {
	version := process.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		version += " (commit " + process.Commit(info) + ")"
	}
	r := &Report{
		Version: version, Began: time.Now(), Machine: thisMachine(),
		Window: o.Window.String(), Repeats: o.Repeats, Replicas: o.Replicas, Scale: o.Scale, Results: []*Result{},
	}
	fmt.Fprintf(o.Status, "%s\n", r.Machine)
	return r
}

// violations returns an error if an audit found violations.
func (r *Report) violations() error {
	n := 0
	for _, result := range r.Results {
		for _, a := range result.Audits {
			n += a.Violations
		}
	}
	return replay.Broken(n)
}

// proc is /proc of this machine. If the machine has no /proc, every read fails.
var proc, _ = procfs.NewDefaultFS()

// thisMachine describes this machine. Fields that the kernel does not report are empty.
func thisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
		m.Model = cpus[0].ModelName
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotal != nil {
		m.Memory = fmt.Sprintf("%d kB", *memory.MemTotal)
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(kernel))
	return m
}
