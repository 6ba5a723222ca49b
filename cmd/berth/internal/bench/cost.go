package bench

import (
	"os"
	"time"
)

// The kinds of processes that are not parts of Berth, as the table of costs names them.
const (
	kindLoad = "load"
	kindSim  = "sim"
)

// Cost is the processor time that a phase used.
type Cost struct {
	Phase string `json:"phase"`
	// Operations is the number of operations of the phase. Seconds is the duration of the
	// phase.
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	// CPU is the processor time in seconds, by kind of process; "load" is this process.
	// Kinds without a process on this machine are absent.
	CPU map[string]float64 `json:"cpu"`
	// Others is the average number of processors that all other processes of the machine
	// used.
	Others float64 `json:"others"`
	// Writes is the number of keys that Berth wrote, by kind. Bytes is the total size of
	// the values of these keys.
	Writes map[string]int `json:"writes"`
	Bytes  int            `json:"bytes"`

	world    *World // in which the phase ran
	from, to int64  // the revisions of the phase are those after from, up to and including to
}

// usage has the processor seconds that processes have used so far and the MB of resident
// memory that they use, by kind of process.
type usage struct {
	at          time.Time
	cpu, memory map[string]float64
	// machine is the time of all processors except idle time and I/O wait.
	machine float64
}

// pids returns the processes of the world on this machine, by kind.
func (w *World) pids() map[string][]int {
	pids := map[string][]int{kindLoad: {os.Getpid()}}
	for kind, list := range w.processes {
		for _, p := range list {
			pids[kind] = append(pids[kind], p.Pid())
		}
	}
	return pids
}

// measureUsage reads the usage of processes.
func measureUsage(pids map[string][]int) (usage, error) {
	u := usage{at: time.Now(), cpu: map[string]float64{}, memory: map[string]float64{}}
	machine, err := proc.Stat()
	if err != nil {
		return u, err
	}
	total := machine.CPUTotal
	u.machine = total.User + total.Nice + total.System + total.IRQ + total.SoftIRQ
	for kind, list := range pids {
		for _, pid := range list {
			p, err := proc.Proc(pid)
			if err != nil {
				return u, err
			}
			stat, err := p.Stat()
			if err != nil {
				return u, err
			}
			u.cpu[kind] += stat.CPUTime()
			u.memory[kind] += float64(stat.ResidentMemory()) / 1e6
		}
	}
	return u, nil
}

// cost returns the cost of a phase between two measurements of the usage.
func cost(phase string, operations int, from, to usage) Cost {
	c := Cost{Phase: phase, Operations: operations, Seconds: to.at.Sub(from.at).Seconds(), CPU: map[string]float64{},
		Writes: map[string]int{}}
	others := to.machine - from.machine
	for kind, used := range to.cpu {
		c.CPU[kind] = used - from.cpu[kind]
		others -= c.CPU[kind]
	}
	c.Others = max(0, others) / c.Seconds
	return c
}
