package audit

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/model"
)

// setLeader applies a change of leader. The term is the create revision of the leader's key.
func (a *Auditor) setLeader(c change) {
	service := c.ref.ID
	if c.record == nil {
		a.leads[service] = 0
		return
	}
	if c.Create != a.leads[service] {
		if c.Create <= a.terms[service] {
			a.violate(RuleTerm, "%s: term %d follows term %d", service, c.Create, a.terms[service])
		}
		a.leads[service] = c.Create
		if service == model.ServiceExecutorState {
			a.cut = 0 // cycles are not stored, so a leader's cycles end with its term
		}
		a.terms[service] = max(a.terms[service], c.Create)
	}
}

// setChain records the term in a service's chain, `{term}-{batch}`.
func (a *Auditor) setChain(c change) {
	var chain recordv1.Chain
	if err := proto.Unmarshal(c.Value, &chain); err != nil {
		a.violate(RuleRecord, "chain of %s: %v", c.ref.ID, err)
		return
	}
	name, _, _ := strings.Cut(chain.GetBatch(), "-")
	term, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		term = -1 // no leader has this term
	}
	a.step.chained[c.ref.ID] = term
}

// checkFence checks that every write changed the chain of its service, and that the chain
// has the term of the current leader. Only a fenced transaction fulfills both conditions.
func (a *Auditor) checkFence() {
	for _, service := range slices.Sorted(maps.Keys(a.step.writers)) {
		term, chained := a.step.chained[service]
		switch {
		case service == "":
		case !chained:
			a.violate(RuleFence, "records of %s changed, but its chain did not", service)
		case term != a.leads[service]:
			a.violate(RuleFence, "term %d of %s wrote during term %d", term, service, a.leads[service])
		}
	}
}
