package audit

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// Stats counts what the history showed.
type Stats struct {
	// Revision is the last one judged.
	Revision int64
	// Snapshots is how often the history began anew; from the second on, what
	// happened between was not seen.
	Snapshots int
	// Reservations is how many versions were accepted, Ended how many of them
	// came to which end.
	Reservations int
	Ended        map[model.State]int
	// LeasesGranted and WorkersLeased count leases and the workers in them.
	LeasesGranted, WorkersLeased int
	// WorkersRunning is how many workers were ever RUNNING, StartedTwice how
	// many of them were started by two leases.
	WorkersRunning, StartedTwice int
	// OverCommitted is how many executors offer less than is used of them now,
	// because their records shrank.
	OverCommitted int
}

// Violations answers the first MaxViolations violations, in order of revision.
func (a *Auditor) Violations() []Violation { return slices.Clone(a.violations) }

// Count is how many violations there were, kept or not.
func (a *Auditor) Count() int { return a.count }

// Stats answers the counts so far.
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
