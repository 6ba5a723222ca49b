package agent

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth.dev/pkg/resource"
)

// Detect rounds memory and disk down to these steps. Hosts of one model differ by a few
// pages of memory, which firmware and kernel use, and by a few disk blocks. Without
// rounding, each host would have a different shape.
const (
	memoryStep = 256 << 20
	diskStep   = 1 << 30
)

// Detect returns the resources of the host: `cpu` in thousandths of a core, `memory` in
// bytes, `disk` in bytes, and one slot. Memory is rounded down to a multiple of 256 MiB.
// Disk is the size of the file system of dir, rounded down to whole GiB. If the limit of
// the control group is lower than the amount of the host, Detect returns the limit. The
// amounts do not depend on current use, so that each start of the agent detects the same
// amounts.
func Detect(dir string) (resource.Vector, error) {
	has, err := measure(dir)
	if err != nil {
		return nil, err
	}
	has["memory"], has["disk"] = roundDown(has["memory"], memoryStep), roundDown(has["disk"], diskStep)
	has[resource.Slots] = 1
	return has, nil
}

// Beyond returns the amounts of the host that are lower than the configured ones. If it cannot measure
// the host, it returns none.
func Beyond(dir string, configured resource.Vector) resource.Vector {
	has, _ := measure(dir) // configured resources do not need a host that can be measured
	maps.DeleteFunc(has, func(name string, amount int64) bool { return configured[name] <= amount })
	return has
}

// measure returns the resources of the host, without slots.
func measure(dir string) (resource.Vector, error) {
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
	// If these files do not exist, there is no limit: the process is in the root group, or
	// the host uses cgroup v1.
	if text, err := os.ReadFile("/sys/fs/cgroup/cpu.max"); err == nil {
		cpu = min(cpu, cpuMax(string(text), cpu))
	}
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		memory = min(memory, memoryMax(string(text), memory))
	}
	return resource.Vector{"cpu": cpu, "memory": memory, "disk": int64(disk.Blocks) * disk.Frsize}, nil
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
// of a core. It returns none if the quota is `max`.
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

// memoryMax returns the limit of a control group in bytes, or none if the limit is `max`.
func memoryMax(text string, none int64) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return none
	}
	return limit
}
