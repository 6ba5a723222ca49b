package policy

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// MaxReason is the maximum length of the reason of a request, in bytes.
const MaxReason = 1 << 10

// checkSelector checks a selector of executors.
func checkSelector(v *model.Violations, s Selector) {
	switch {
	case len(s.IDs) == 0 && len(s.Attributes) == 0:
		v.Add(fault.ReasonRequired, "selector", "is required: ids or attributes")
	case len(s.IDs) > 0 && len(s.Attributes) > 0:
		v.Add(fault.ReasonInvalid, "selector", "must have either ids or attributes, got both")
	default:
		v.AtMost("selector.ids", len(s.IDs), MaxSelected, "entries")
		for i, id := range s.IDs[:min(len(s.IDs), MaxSelected)] {
			v.Name(fmt.Sprintf("selector.ids[%d]", i), id, model.MaxID)
		}
		v.Attributes("selector.attributes", s.Attributes)
	}
}
