package inventory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// An agent registers its executor with a secret that it keeps across restarts. The record
// has the hash of the secret:
//
//	same secret           registers at once: the agent has restarted
//	another secret, none  is rejected, with a finding, until the executor is LOST and absent;
//	                      then it takes over the executor
//	any secret            registers if the record has no hash, because the agent that
//	                      registered before had no secret
//
// A superseded agent learns with its next heartbeat that another agent is present, and
// stops its workers. While it reports living workers, nothing is granted on the executor,
// because these workers may use its capacity. If it stops reporting, this ends after the
// time in which an absent executor becomes LOST: the workers would be LOST by then too.

// ownedByOther reports whether the executor belongs to an agent with another secret.
func (h *host) ownedByOther(r Register) bool {
	return h.Record.SecretHash != "" && h.Record.SecretHash != r.SecretHash && (!h.Record.Lost || h.returned())
}

// intruderFor is how long a rejected registration remains a finding. A rejected agent
// retries about twice a minute.
const intruderFor = 5 * time.Minute

// intruder is a registration that was rejected because of its secret.
type intruder struct {
	since, last time.Time
	address     string
}

// refuseOther rejects an agent with another secret and records the finding.
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

// forgetIntruders ends the findings of rejected and refused agents that have not retried for intruderFor.
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
	for id, seen := range c.refusedAgents {
		if until := seen.last.Add(intruderFor); until.After(c.now) {
			c.intrudersUntil = earliest(c.intrudersUntil, until)
		} else {
			delete(c.refusedAgents, id)
		}
	}
}

func otherAgent(h *host) error {
	return fault.New(fault.Precondition, fault.ReasonOtherAgent,
		"executor %q belongs to another agent, with incarnation %d: stop one of the two, or wait until the executor is LOST",
		h.ID, h.Record.Incarnation)
}

// supersedes reports whether the agent with the nonce was superseded by an agent that is
// present.
func (h *host) supersedes(nonce string) bool {
	return nonce != "" && slices.Contains(h.Record.Former, nonce) && present(h.live, h.Record.Incarnation)
}

// reportSuperseded records how many workers of a superseded agent live.
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

// supersededFor returns how long a report of a superseded agent is valid.
func (c *Core) supersededFor(h *host) time.Duration {
	return max(c.lostAfter(h), c.cfg.PresenceTTL)
}

// supersededDue returns when the workers of a silent superseded agent stop counting. A
// new leader restarts this clock.
func (c *Core) supersededDue(h *host) time.Time {
	from := h.term.supersededAt
	if from.Before(c.electedAt) {
		from = c.electedAt
	}
	return from.Add(c.supersededFor(h))
}

// supersededUntil returns the earliest supersededDue; zero means never.
func (c *Core) supersededUntil() time.Time {
	var next time.Time
	for _, h := range c.superseded {
		if !c.quarantined.executors[h.ID] {
			next = earliest(next, c.supersededDue(h))
		}
	}
	return next
}

// endSuperseded stops counting the workers of silent superseded agents.
func (c *Core) endSuperseded() {
	for _, id := range slices.Sorted(maps.Keys(c.superseded)) {
		if h := c.superseded[id]; !c.quarantined.executors[id] && !c.supersededDue(h).After(c.now) {
			c.subject = h.Record.Ref()
			c.setSuperseded(h, false)
		}
	}
	c.subject = model.Ref{}
}

// duplicates returns the findings about executors with two agents, in order of ID.
func (c *Core) duplicates() []Finding {
	var list []Finding
	for _, id := range slices.Sorted(maps.Keys(c.intruders)) {
		seen := c.intruders[id]
		if c.superseded[id] != nil {
			continue
		}
		list = append(list, Finding{
			Kind: FindingDuplicateAgent, Object: id, Since: seen.since,
			Message: fmt.Sprintf("an agent at %q with another secret was rejected, last at %s", seen.address,
				seen.last.UTC().Format(time.RFC3339)),
			Action: "Berth rejects that agent until the executor is LOST. Stop the agent that must not use this ID.",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.superseded)) {
		list = append(list, Finding{
			Kind: FindingDuplicateAgent, Object: id, Since: c.superseded[id].term.supersededAt,
			Message: "workers of a superseded agent are still running",
			Action: "The superseded agent stops these workers and exits. The executor gets no new work until they have " +
				"ended or the agent stops reporting.",
		})
	}
	return list
}
