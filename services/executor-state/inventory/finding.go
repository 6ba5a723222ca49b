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
	// FindingMassLoss: so many executors of a pool went at once that none of
	// them is given up. It ends when enough are back.
	FindingMassLoss = "MASS_LOSS"
	// FindingOvercommitted: an executor registered with less than leases hold
	// of it. It is offered to nobody until enough of them have ended.
	FindingOvercommitted = "OVERCOMMITTED"
	// FindingLostWithWorkers: an executor was given up, and leases still hold
	// some of it: the assigner has not written its workers LOST. It ends when
	// they are, or when the executor is back.
	FindingLostWithWorkers = "LOST_WITH_WORKERS"
	// FindingDuplicateAgent: another agent has tried to register an executor, or
	// one that was superseded still has workers. See secret.go.
	FindingDuplicateAgent = "DUPLICATE_AGENT"
)

// lostWithWorkersAfter is how long the assigner may take to write the workers
// of an executor LOST before that is a finding. It takes one round.
const lostWithWorkersAfter = 30 * time.Second

// noPool is the object of a mass loss among executors of no pool.
const noPool = "executors"

// Finding is something an operator should know of.
type Finding struct {
	Kind, Object string
	Since        time.Time
	Message      string
	// Action is what Berth does about it, and what is left to do.
	Action string
}

// Findings answers what an operator should know at a time, mass losses first.
func (c *Core) Findings(now time.Time) []Finding {
	var list []Finding
	for _, m := range c.massLosses() {
		list = append(list, Finding{
			Kind: FindingMassLoss, Object: cmp.Or(m.pool, noPool), Since: m.since,
			Message: fmt.Sprintf("%s without presence, gone within %v of each other: held back from LOST",
				match.CountExecutors(m.executors), c.cfg.PresenceTTL),
			Action: "Their workers are kept. It ends when enough of them are back; drain those that are gone for good.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.overcommitted)) {
		h := c.overcommitted[id]
		list = append(list, Finding{
			Kind: FindingOvercommitted, Object: id, Since: h.Record.Since,
			Message: "holds more than it has: " + h.Excess(),
			Action:  "It gets nothing new until enough of its workers have ended; drain it to move them.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.stranded)) {
		h := c.stranded[id]
		if now.Sub(h.Record.Since) < lostWithWorkersAfter {
			continue
		}
		list = append(list, Finding{
			Kind: FindingLostWithWorkers, Object: id, Since: h.Record.Since,
			Message: fmt.Sprintf("the executor is LOST and its capacity is still used (workers: %d)", h.hold.Workers),
			Action:  "The assigner is to write them LOST, which frees it; look whether an assigner leads.",
		})
	}
	return append(list, c.duplicates()...)
}
