package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/services/executor-state/match"
)

// The kinds of findings.
const (
	// FindingMassLoss: so many executors of a pool lost their presence at once that none of
	// them is declared LOST. The finding ends when enough of them have returned.
	FindingMassLoss = "MASS_LOSS"
	// FindingOvercommitted: an executor registered with less of a resource than its leases
	// use. Nothing is granted on the executor until enough of its workers have ended.
	FindingOvercommitted = "OVERCOMMITTED"
	// FindingLostWithWorkers: an executor is LOST and leases still use it, because the
	// assigner has not written its workers LOST. The finding ends when the assigner does so,
	// or when the executor returns.
	FindingLostWithWorkers = "LOST_WITH_WORKERS"
	// FindingDuplicateAgent: another agent tried to register an executor, or a superseded
	// agent still has workers. See duplicate.go.
	FindingDuplicateAgent = "DUPLICATE_AGENT"
	// FindingAgentRefused: an agent tried to register with a wrong ID or other wrong options, or
	// after another agent with its secret had registered. See refused.go.
	FindingAgentRefused = "AGENT_REFUSED"
	// FindingFailsStarts: the starts of several reservations failed on an executor, and no
	// start succeeded there since. See failing.go.
	FindingFailsStarts = "FAILS_STARTS"
	// FindingVolumeAway: a wanted volume has been on an executor that is not READY for
	// awayAfter. FindingVolumeLost: an executor no longer lists a volume. FindingVolumeMisplaced:
	// an executor lists volumes of another executor. FindingVolumeUnknown: an executor lists
	// volumes that no record names. FindingVolumeStuck: an executor has not confirmed for
	// stuckAfter that it destroyed a volume. See volumefinding.go.
	FindingVolumeAway      = "VOLUME_AWAY"
	FindingVolumeLost      = "VOLUME_LOST"
	FindingVolumeMisplaced = "VOLUME_MISPLACED"
	FindingVolumeUnknown   = "VOLUME_UNKNOWN"
	FindingVolumeStuck     = "VOLUME_STUCK"
	// FindingOfferSilent: a cell has not answered many offers in a row.
	FindingOfferSilent = "OFFER_SILENT"
)

// FindingKinds has all kinds.
var FindingKinds = []string{FindingMassLoss, FindingOvercommitted, FindingLostWithWorkers, FindingDuplicateAgent,
	FindingAgentRefused, FindingFailsStarts, FindingVolumeAway, FindingVolumeLost, FindingVolumeMisplaced,
	FindingVolumeUnknown, FindingVolumeStuck, FindingOfferSilent}

// lostWithWorkersAfter is how long the assigner may take to write the workers of a LOST
// executor LOST before the delay is a finding. The assigner normally takes one round.
const lostWithWorkersAfter = 30 * time.Second

// noPool is the object of the finding about a mass loss of executors without a pool.
const noPool = "executors"

// Finding is a condition that an operator should know about.
type Finding struct {
	Kind, Object string
	Since        time.Time
	Message      string
	// Action says what Berth does about the condition and what the operator can do.
	Action string
}

// Findings returns the findings at a time, mass losses first.
func (c *Core) Findings(now time.Time) []Finding {
	var list []Finding
	for _, name := range slices.Sorted(maps.Keys(c.mass)) {
		m := c.mass[name]
		list = append(list, Finding{
			Kind: FindingMassLoss, Object: cmp.Or(m.pool, noPool), Since: m.since,
			Message: fmt.Sprintf("%s lost their presence within %v of each other: not declared LOST",
				match.CountExecutors(m.executors), c.cfg.PresenceTTL),
			Action: "Berth keeps their workers. The finding ends when enough of them return; drain those that will not return.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.overcommitted)) {
		h := c.overcommitted[id]
		list = append(list, Finding{
			Kind: FindingOvercommitted, Object: id, Since: h.Record.Since,
			Message: "uses more than its capacity: " + h.Excess(),
			Action:  "The executor gets no new work until enough of its workers have ended. Drain the executor to move them.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.stranded)) {
		h := c.stranded[id]
		if now.Sub(h.Record.Since) < lostWithWorkersAfter {
			continue
		}
		list = append(list, Finding{
			Kind: FindingLostWithWorkers, Object: id, Since: h.Record.Since,
			Message: fmt.Sprintf("the executor is LOST and its capacity is still used (workers: %d)", h.allocation.Workers),
			Action:  "The assigner writes the workers LOST, which frees the capacity. Check that an assigner leads.",
		})
	}
	return slices.Concat(list, c.duplicates(), c.agentsRefused(), c.failsStarts(), c.volumeFindings(now), c.silentCells())
}
