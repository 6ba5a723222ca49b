package agent

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth.dev/pkg/resource"
)

// What is detected of memory and disk is rounded down to whole steps. Hosts of one
// make differ by some pages that firmware and kernel keep, and by some blocks: to
// the byte each would be a shape of its own, and none of them the same as another.
const (
	memoryStep = 256 << 20
	diskStep   = 1 << 30
)

// Detect answers what the host offers: `cpu` in thousandths of a core, `memory`
// in bytes, whole 256 MiB, `disk` as the size in bytes of the file system that dir
// is on, whole GiB, and one slot. A limit of the control group counts where it is
// lower. The figures do not depend on what is in use, so that they are the same at
// each start.
func Detect(dir string) (resource.Vector, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("detect memory: %w", err)
	}
	memory, err := memTotal(string(info))
	if err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return nil, fmt.Errorf("detect disk of %s: %w", dir, err)
	}
	cpu := int64(runtime.NumCPU()) * 1000
	// Absent files mean no limit: the root group, or an older hierarchy.
	if text, err := os.ReadFile("/sys/fs/cgroup/cpu.max"); err == nil {
		cpu = min(cpu, cpuMax(string(text), cpu))
	}
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		memory = min(memory, memoryMax(string(text), memory))
	}
	return resource.Vector{
		"cpu": cpu, "memory": whole(memory, memoryStep), "disk": whole(int64(disk.Blocks)*disk.Frsize, diskStep), resource.Slots: 1,
	}, nil
}

// whole rounds down to whole steps; less than one is left as it is.
func whole(amount, step int64) int64 {
	if amount < step {
		return amount
	}
	return amount - amount%step
}

// memTotal reads the line `MemTotal:  16384 kB` of /proc/meminfo, in bytes.
func memTotal(text string) (int64, error) {
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("detect memory: no MemTotal in /proc/meminfo")
}

// cpuMax reads `quota period` of a control group, in thousandths of a core;
// `max` is no limit.
func cpuMax(text string, none int64) int64 {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return none
	}
	quota, err1 := strconv.ParseInt(fields[0], 10, 64)
	period, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err1 != nil || err2 != nil || period <= 0 {
		return none
	}
	return quota * 1000 / period
}

// memoryMax reads the limit of a control group, in bytes; `max` is none.
func memoryMax(text string, none int64) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return none
	}
	return limit
}
