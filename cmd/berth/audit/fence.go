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

// setLeader notes who is in office. The term is the key's create revision.
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
			a.cut = 0 // which cycles it took is not stored, and lost with the leader
		}
		a.terms[service] = max(a.terms[service], c.Create)
	}
}

// setChain notes the term that a service's chain names: `{term}-{batch}`.
func (a *Auditor) setChain(c change) {
	var chain recordv1.Chain
	if err := proto.Unmarshal(c.Value, &chain); err != nil {
		a.violate(RuleRecord, "chain of %s: %v", c.ref.ID, err)
		return
	}
	name, _, _ := strings.Cut(chain.GetBatch(), "-")
	term, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		term = -1 // nobody's
	}
	a.step.chained[c.ref.ID] = term
}

// checkFence demands of every write that it moved the chain of its service, and
// that the term in it was in office: only a fenced transaction does both.
func (a *Auditor) checkFence() {
	if a.step.jump {
		return
	}
	for _, service := range slices.Sorted(maps.Keys(a.step.writers)) {
		term, chained := a.step.chained[service]
		switch {
		case service == "":
		case !chained:
			a.violate(RuleFence, "records of %s changed without its chain", service)
		case term != a.leads[service]:
			a.violate(RuleFence, "term %d of %s wrote while term %d was in office", term, service, a.leads[service])
		}
	}
}
