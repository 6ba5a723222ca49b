package bench

import (
	"fmt"
	"strconv"
	"strings"

	"berth.dev/api/fault"
)

// memory is what each kind of process keeps in memory now (its resident set, MB).
func (w *World) memory() (map[string]float64, error) {
	kinds := map[string]float64{}
	for kind, pids := range w.pids() {
		for _, pid := range pids {
			kb, err := residentKB(procValue(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"))
			if err != nil {
				return nil, err
			}
			kinds[kind] += kb / 1000
		}
	}
	return kinds, nil
}

// residentKB reads an amount of memory as /proc tells it: in units of 1,024 bytes.
func residentKB(text string) (float64, error) {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
	if err != nil {
		return 0, fault.New(fault.Internal, fault.ReasonInternal, "%q in /proc is no amount of memory", text)
	}
	return kib * 1.024, nil
}
