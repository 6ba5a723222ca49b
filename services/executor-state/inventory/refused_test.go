package inventory

import (
	"fmt"
	"strings"
	"testing"

	"berth.dev/api/fault"
)

// An agent whose registration is refused until it changes is a finding with the reason, until it
// registers or stops retrying. The number of the findings is bounded, whatever the IDs are.
func TestRefusedAgentsAreFindings(t *testing.T) {
	r := lead(DefaultConfig())
	refused := func() (list []Finding) {
		for _, f := range r.core.Findings(r.now) {
			if f.Kind == FindingAgentRefused {
				list = append(list, f)
			}
		}
		return list
	}
	wrong := smallAgent("h1", "n1")
	wrong.SKU = "a b"
	wantReason(t, r, wrong, fault.ReasonBadName)
	if list := refused(); len(list) != 1 || list[0].Object != "h1" || !strings.Contains(list[0].Message, "sku: must ") {
		t.Fatalf("%+v", list)
	}
	r.ready(smallAgent("h1", "n1"))
	if list := refused(); len(list) > 0 {
		t.Fatalf("after the registration: %+v", list)
	}
	for i := range maxRefusedAgents + 10 {
		wrong.ID = fmt.Sprintf("%d/%s", i, strings.Repeat("x", 1000))
		wantReason(t, r, wrong, fault.ReasonTooLarge)
	}
	list := refused()
	if len(list) != maxRefusedAgents || len(list[0].Object) > 70 || len(list[0].Message) > 400 {
		t.Errorf("%d findings, the first is %+v", len(list), list[0])
	}
	r.pause(intruderFor)
	if list := refused(); len(list) > 0 {
		t.Errorf("later: %+v", list)
	}
}
