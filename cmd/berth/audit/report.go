package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// Stats are counts over the history.
type Stats struct {
	// Revision is the last revision that was audited.
	Revision int64
	// Snapshots is the number of snapshots. Each after the first hides a part of the
	// history.
	Snapshots int
	// Reservations is the number of accepted versions, Ended their number by end state.
	Reservations int
	Ended        map[model.State]int
	// LeasesGranted and WorkersLeased count leases and the workers in them.
	LeasesGranted, WorkersLeased int
	// WorkersRunning is the number of workers that were RUNNING, StartedTwice the number
	// of those that two leases started.
	WorkersRunning, StartedTwice int
	// OverCommitted is the number of executors whose use exceeds their capacity, because
	// their records shrank.
	OverCommitted int
}

// Violations returns the first MaxViolations violations in order of revision.
func (a *Auditor) Violations() []Violation { return slices.Clone(a.violations) }

// Count returns the number of violations, kept or not.
func (a *Auditor) Count() int { return a.count }

// Stats returns the counts so far.
func (a *Auditor) Stats() Stats {
	s := a.stats
	s.Ended = maps.Clone(s.Ended)
	for _, e := range a.executors {
		if !e.capacity().Fits(e.used) {
			s.OverCommitted++
		}
	}
	return s
}
