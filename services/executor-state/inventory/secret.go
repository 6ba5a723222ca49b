package inventory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// An agent registers its executor with a secret that it keeps over restarts. The
// record holds the hash.
//
//	the same secret       registers at once: the agent has been restarted
//	another, or none      is refused until the executor is LOST, and is a finding;
//	                      after that it owns the executor
//	any                   where the record has no hash: it was written before
//	                      there were secrets, or by an agent without one
//
// An agent that was superseded by one that is present is told so with its next
// heartbeat, and stops its workers. While it reports living ones, the executor is
// given nothing, for they may use its capacity. If it falls silent, that ends after
// the time in which an executor that is away becomes LOST: by then its workers would
// have been given up too.

// ownedByOther reports whether the executor belongs to an agent with another secret.
func (h *host) ownedByOther(r Register) bool {
	return h.Record.SecretHash != "" && h.Record.SecretHash != r.SecretHash && !h.Record.Lost
}

// intruderFor is how long a refused registration remains a finding. Agents that are
// refused repeat it about twice a minute.
const intruderFor = 5 * time.Minute

// intruder is a registration that was refused for its secret.
type intruder struct {
	since, last time.Time
	address     string
}

// refuseOther refuses an agent with another secret, which is a finding.
func (c *Core) refuseOther(h *host, r Register) error {
	seen, known := c.intruders[h.ID]
	if !known {
		seen.since = c.now
	}
	seen.last, seen.address = c.now, r.Address
	c.intruders[h.ID] = seen
	c.intrudersUntil = earliest(c.intrudersUntil, c.now.Add(intruderFor))
	return otherAgent(h)
}

// forgetIntruders ends the findings of agents that have not been refused for long.
func (c *Core) forgetIntruders() {
	if c.intrudersUntil.IsZero() || c.intrudersUntil.After(c.now) {
		return
	}
	c.intrudersUntil = time.Time{}
	for id, seen := range c.intruders {
		if until := seen.last.Add(intruderFor); until.After(c.now) {
			c.intrudersUntil = earliest(c.intrudersUntil, until)
		} else {
			delete(c.intruders, id)
		}
	}
}

func otherAgent(h *host) error {
	return fault.New(fault.Precondition, fault.ReasonOtherAgent,
		"executor %q belongs to another agent, with incarnation %d: stop one of the two, or wait until the executor is LOST", h.ID, h.Record.Incarnation)
}

// supersedes reports whether the agent that is present has superseded the one that
// registered with the nonce.
func (h *host) supersedes(nonce string) bool {
	return nonce != "" && slices.Contains(h.Record.Former, nonce) && present(h.live, h.Record.Incarnation)
}

// reportSuperseded notes how many workers of a superseded agent live.
func (c *Core) reportSuperseded(h *host, workers int) {
	h.term.supersededAt = c.now
	c.setSuperseded(h, workers > 0)
}

func (c *Core) setSuperseded(h *host, workers bool) {
	if h.Record.SupersededWorkers == workers {
		return
	}
	next := *h.Record
	next.SupersededWorkers = workers
	c.decide(model.Effect{Puts: []model.Record{&next}})
}

// supersededFor is how long what a superseded agent has reported counts.
func (c *Core) supersededFor(h *host) time.Duration {
	return max(c.lostAfter(h), c.cfg.PresenceTTL)
}

// supersededDue is when the workers of a superseded agent are given up that is
// silent. A new leader waits longer rather than shorter.
func (c *Core) supersededDue(h *host) time.Time {
	from := h.term.supersededAt
	if from.Before(c.electedAt) {
		from = c.electedAt
	}
	return from.Add(c.supersededFor(h))
}

// supersededUntil is when that is due next; zero for never.
func (c *Core) supersededUntil() time.Time {
	var next time.Time
	for _, h := range c.superseded {
		if !c.quarantined.executors[h.ID] {
			next = earliest(next, c.supersededDue(h))
		}
	}
	return next
}

// endSuperseded gives up the workers of superseded agents that are silent.
func (c *Core) endSuperseded() {
	if len(c.superseded) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.superseded)) {
		if h := c.superseded[id]; !c.quarantined.executors[id] && !c.supersededDue(h).After(c.now) {
			c.subject = h.Record.Ref()
			c.setSuperseded(h, false)
		}
	}
	c.subject = model.Ref{}
}

// duplicates answers the findings of executors with two agents, in order of ID.
func (c *Core) duplicates() []Finding {
	var list []Finding
	for _, id := range slices.Sorted(maps.Keys(c.intruders)) {
		seen := c.intruders[id]
		if c.superseded[id] != nil {
			continue
		}
		list = append(list, Finding{
			Kind: FindingDuplicateAgent, Object: id, Since: seen.since,
			Message: fmt.Sprintf("an agent at %q with another secret was refused, the last time at %s", seen.address, seen.last.UTC().Format(time.RFC3339)),
			Action:  "It is refused until the executor is LOST; stop the agent that is not to have this ID.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.superseded)) {
		list = append(list, Finding{
			Kind: FindingDuplicateAgent, Object: id, Since: c.superseded[id].term.supersededAt,
			Message: "workers of an agent that was superseded still live",
			Action:  "It gets nothing new until they have ended or that agent is silent; the agent stops them and exits.",
		})
	}
	return list
}
