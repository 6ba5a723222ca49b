package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"berth.dev/api/fault"
)

// clockTick is the unit of processor time in /proc: Linux tells user space that
// it is a hundredth of a second, whatever it uses itself.
const clockTick = 10 * time.Millisecond

// Cost is the processor time that a phase took.
type Cost struct {
	Phase string `json:"phase"`
	// Operations is how many the phase did, in so many Seconds.
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	// CPU is the processor time in seconds, by kind of process; "load" is this
	// one. A kind that cannot be seen is left out.
	CPU map[string]float64 `json:"cpu"`
	// Others is how many processors, on average, did something else.
	Others float64 `json:"others"`
	// Writes counts the keys that Berth wrote, by kind, and Bytes the sum of
	// their values.
	Writes map[string]int `json:"writes"`
	Bytes  int            `json:"bytes"`

	from, to int64 // the phase is the revisions behind from, up to to
}

// usage is processor time so far.
type usage struct {
	at    time.Time
	kinds map[string]time.Duration
	// machine is what all processors did, idling and waiting aside.
	machine time.Duration
}

// measureUsage reads what the processes have used.
func measureUsage(pids map[string][]int) (usage, error) {
	u := usage{at: time.Now(), kinds: map[string]time.Duration{}}
	machine, err := os.ReadFile("/proc/stat")
	if err == nil {
		u.machine, err = machineTime(machine)
	}
	if err != nil {
		return u, err
	}
	for kind, list := range pids {
		for _, pid := range list {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				return u, err
			}
			used, err := processTime(text)
			if err != nil {
				return u, err
			}
			u.kinds[kind] += used
		}
	}
	return u, nil
}

// cost is what was used from one reading to another.
func cost(phase string, operations int, from, to usage) Cost {
	c := Cost{Phase: phase, Operations: operations, Seconds: to.at.Sub(from.at).Seconds(), CPU: map[string]float64{}, Writes: map[string]int{}}
	others := to.machine - from.machine
	for kind, used := range to.kinds {
		c.CPU[kind] = (used - from.kinds[kind]).Seconds()
		others -= used - from.kinds[kind]
	}
	if c.Seconds > 0 {
		c.Others = max(0, others.Seconds()) / c.Seconds
	}
	return c
}

// processTime reads /proc/PID/stat: fields 14 and 15, user and system. The name
// in field 2 may hold anything, so the count begins behind its last bracket.
func processTime(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fault.New(fault.Internal, fault.ReasonInternal, "/proc/PID/stat has %d fields", len(fields))
	}
	return ticks(fields[11:13])
}

// machineTime reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal.
func machineTime(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 8 || string(fields[0]) != "cpu" {
		return 0, fault.New(fault.Internal, fault.ReasonInternal, "/proc/stat begins with %q", line)
	}
	return ticks(append(fields[1:4:4], fields[6:8]...))
}

func ticks(fields [][]byte) (sum time.Duration, err error) {
	for _, f := range fields {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fault.New(fault.Internal, fault.ReasonInternal, "%q in /proc is no number", f)
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}
