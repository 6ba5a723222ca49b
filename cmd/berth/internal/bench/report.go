package bench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"berth.dev/pkg/process"
)

// Report is everything that was measured, and on what.
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

// Machine is what the figures came from.
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

// newReport begins a report and says what it is of.
func newReport(f *flags, status io.Writer) *Report {
	r := &Report{
		Version: process.Version, Began: time.Now(), Machine: thisMachine(),
		Window: f.window.String(), Repeats: f.repeats, Replicas: f.replicas, Scale: f.scale, Results: []*Result{},
	}
	fmt.Fprintf(status, "%s\n", r.Machine)
	return r
}

// violations counts the broken promises.
func (r *Report) violations() int {
	n := 0
	for _, result := range r.Results {
		for _, a := range result.Audits {
			n += a.Violations
		}
	}
	return n
}

// thisMachine asks the kernel. What it does not tell is left empty.
func thisMachine() Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // absent: left empty
	return Machine{
		CPUs: runtime.NumCPU(), Model: procValue("/proc/cpuinfo", "model name"), Memory: procValue("/proc/meminfo", "MemTotal"),
		Kernel: strings.TrimSpace(string(kernel)), Go: runtime.Version(),
	}
}

// procValue is what stands behind a name in a file of /proc.
func procValue(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if key, value, found := strings.Cut(string(line), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
