package inventory

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The kinds of findings.
const (
	// FindingMassLoss: so many executors went at once that none of them is
	// given up. It ends when enough are back.
	FindingMassLoss = "MASS_LOSS"
	// FindingOvercommitted: an executor registered with less than leases hold
	// of it. It is offered to nobody until enough of them have ended.
	FindingOvercommitted = "OVERCOMMITTED"
)

// Finding is something an operator should know of.
type Finding struct {
	Kind, Object string
	Since        time.Time
	Message      string
}

// Findings answers what an operator should know, mass loss first.
func (c *Core) Findings() []Finding {
	var list []Finding
	if c.mass.executors > 0 {
		list = append(list, Finding{
			Kind: FindingMassLoss, Object: "executors", Since: c.mass.since,
			Message: fmt.Sprintf("%s without presence, gone within %v of each other: held back from LOST",
				executors(c.mass.executors), c.cfg.PresenceTTL),
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.over)) {
		h := c.over[id]
		list = append(list, Finding{
			Kind: FindingOvercommitted, Object: id, Since: h.executor.Since,
			Message: "holds more than it has: " + h.excess(),
		})
	}
	return list
}
