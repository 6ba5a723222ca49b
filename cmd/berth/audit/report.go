package audit

import "slices"

// Stats has counts over the audited history.
type Stats struct {
	// Revision is the last revision that was audited.
	Revision int64 `json:"revision"`
	// Snapshots is the number of snapshots. Before each snapshot except the first, the
	// auditor missed a part of the history.
	Snapshots int `json:"snapshots"`
	// Reservations is the number of accepted versions.
	Reservations int `json:"reservations"`
	// LeasesGranted and WorkersLeased count leases and the workers in them.
	LeasesGranted int `json:"leasesGranted"`
	WorkersLeased int `json:"workersLeased"`
	// WorkersRunning is the number of workers that became RUNNING. StartedTwice is the
	// number of workers that two leases started.
	WorkersRunning int `json:"workersRunning"`
	StartedTwice   int `json:"startedTwice"`
	// OverCommitted is the number of executors whose use exceeds their capacity. That is
	// not a violation if their records shrank.
	OverCommitted int `json:"overCommitted"`
}

// Violations returns the first MaxViolations violations in order of revision.
func (a *Auditor) Violations() []Violation { return slices.Clone(a.violations) }

// Count returns the number of all violations, including those beyond MaxViolations.
func (a *Auditor) Count() int { return a.count }

// Stats returns the counts so far.
func (a *Auditor) Stats() Stats {
	s := a.stats
	for _, e := range a.executors {
		if !e.capacity().Fits(e.used) {
			s.OverCommitted++
		}
	}
	return s
}
