package inventory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// maxRefusedAgents is the maximum number of refused registrations that are findings. The ID of a
// refused agent may be any text, so nothing else bounds their number.
const maxRefusedAgents = 100

// refusedAgent is a registration that is refused until its agent changes.
type refusedAgent struct {
	since, last time.Time
	problem     string
}

// refuseAgent records the finding about a refused registration, and returns the error.
func (c *Core) refuseAgent(r Register, err error) error {
	id := r.ID
	if !model.ValidName(id, model.MaxID) {
		id = fmt.Sprintf("%.60q", id)
	}
	seen, known := c.refusedAgents[id]
	if !known {
		if len(c.refusedAgents) >= maxRefusedAgents {
			return err
		}
		seen.since = c.now
	}
	seen.last, seen.problem = c.now, fmt.Sprintf("%.300s", fault.Of(err).Message)
	c.refusedAgents[id] = seen
	c.intrudersUntil = earliest(c.intrudersUntil, c.now.Add(intruderFor))
	return err
}

// agentsRefused returns the findings about refused registrations, in order of ID.
func (c *Core) agentsRefused() []Finding {
	var list []Finding
	for _, id := range slices.Sorted(maps.Keys(c.refusedAgents)) {
		seen := c.refusedAgents[id]
		list = append(list, Finding{
			Kind: FindingAgentRefused, Object: id, Since: seen.since,
			Message: fmt.Sprintf("the registration of an agent was refused, last at %s: %s",
				seen.last.UTC().Format(time.RFC3339), seen.problem),
			Action: "Berth refuses the agent until its options change. Correct them, or stop the agent.",
		})
	}
	return list
}
