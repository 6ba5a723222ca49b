package bench

import (
	"context"
	"time"

	"berth.dev/cmd/berth/audit"
)

// Audit is what the history of one world showed.
type Audit struct {
	Revision       int64    `json:"revision"`
	Seconds        float64  `json:"seconds"`
	LeasesGranted  int      `json:"leasesGranted"`
	WorkersLeased  int      `json:"workersLeased"`
	WorkersRunning int      `json:"workersRunning"`
	Violations     int      `json:"violations"`
	First          []string `json:"first,omitempty"`
}

// audit judges every revision since the world began.
func (w *World) audit(ctx context.Context) error {
	w.run.Say("auditing")
	began := time.Now()
	history := &counter{Store: w.Etcd, space: w.Space, phases: w.run.Costs[w.measured:]}
	auditor, err := audit.Check(ctx, history, w.Space, w.from)
	if err != nil {
		return err
	}
	s := auditor.Stats()
	a := Audit{
		Revision: s.Revision, Seconds: time.Since(began).Seconds(), LeasesGranted: s.LeasesGranted,
		WorkersLeased: s.WorkersLeased, WorkersRunning: s.WorkersRunning, Violations: auditor.Count(),
	}
	for _, v := range auditor.Violations() {
		a.First = append(a.First, v.String())
	}
	w.run.Audits = append(w.run.Audits, a)
	w.run.Say("%d violations up to revision %d, judged in %.1f s", a.Violations, a.Revision, a.Seconds)
	return nil
}
