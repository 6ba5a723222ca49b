package bench

import "os"

// The kinds of processes that costs are told by, as the table shows them.
const (
	kindLoad = "load"
	kindSim  = "sim"
)

// pids are the processes of the world that can be seen, by kind.
func (w *World) pids() map[string][]int {
	pids := map[string][]int{kindLoad: {os.Getpid()}}
	for kind, list := range w.site.processes {
		for _, p := range list {
			pids[kind] = append(pids[kind], p.Pid())
		}
	}
	for _, p := range w.sims {
		pids[kindSim] = append(pids[kindSim], p.Pid())
	}
	return pids
}
