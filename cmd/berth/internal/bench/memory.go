package bench

// memory returns the resident memory of each kind of process, in MB.
func (w *World) memory() (map[string]float64, error) {
	kinds := map[string]float64{}
	for kind, pids := range w.pids() {
		for _, pid := range pids {
			p, err := proc.Proc(pid)
			if err != nil {
				return nil, err
			}
			status, err := p.NewStatus()
			if err != nil {
				return nil, err
			}
			kinds[kind] += float64(status.VmRSS) / 1e6
		}
	}
	return kinds, nil
}
