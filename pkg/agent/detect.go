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

// Detect rounds memory and disk down to these steps. Hosts of one model differ by some
// pages that firmware and kernel use, and by some blocks. Without rounding, each host
// would have a shape of its own.
const (
	memoryStep = 256 << 20
	diskStep   = 1 << 30
)

// Detect returns the resources of the host: `cpu` in thousandths of a core, `memory` in
// bytes, `disk` in bytes, and one slot. Memory is in whole 256 MiB. Disk is the size of
// the file system of dir, in whole GiB. A lower limit of the control group replaces the
// amount of the host. The amounts do not depend on current use, so that each start
// detects the same.
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
	// Without these files there is no limit: the root group, or an older hierarchy.
	if text, err := os.ReadFile("/sys/fs/cgroup/cpu.max"); err == nil {
		cpu = min(cpu, cpuMax(string(text), cpu))
	}
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		memory = min(memory, memoryMax(string(text), memory))
	}
	return resource.Vector{
		"cpu": cpu, "memory": roundDown(memory, memoryStep), "disk": roundDown(int64(disk.Blocks)*disk.Frsize, diskStep),
		resource.Slots: 1,
	}, nil
}

// roundDown rounds down to whole steps. It does not change an amount below one step.
func roundDown(amount, step int64) int64 {
	if amount < step {
		return amount
	}
	return amount - amount%step
}

// memTotal returns the bytes in the line `MemTotal:  16384 kB` of /proc/meminfo.
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

// cpuMax returns the limit in the line `quota period` of a control group, in thousandths
// of a core, and none for `max`.
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

// memoryMax returns the limit of a control group in bytes, and none for `max`.
func memoryMax(text string, none int64) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return none
	}
	return limit
}
