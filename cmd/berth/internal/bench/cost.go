package bench

import "time"

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

// usage is the processor time used so far, in seconds.
type usage struct {
	at    time.Time
	kinds map[string]float64
	// machine is the time of all processors except idle time and I/O wait.
	machine float64
}

// measureUsage reads what the processes have used.
func measureUsage(pids map[string][]int) (usage, error) {
	u := usage{at: time.Now(), kinds: map[string]float64{}}
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
			u.kinds[kind] += stat.CPUTime()
		}
	}
	return u, nil
}

// cost is what was used from one reading to another.
func cost(phase string, operations int, from, to usage) Cost {
	c := Cost{Phase: phase, Operations: operations, Seconds: to.at.Sub(from.at).Seconds(), CPU: map[string]float64{}, Writes: map[string]int{}}
	others := to.machine - from.machine
	for kind, used := range to.kinds {
		c.CPU[kind] = used - from.kinds[kind]
		others -= used - from.kinds[kind]
	}
	if c.Seconds > 0 {
		c.Others = max(0, others) / c.Seconds
	}
	return c
}
