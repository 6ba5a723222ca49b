package inventory

import (
	"fmt"
	"hash/fnv"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// repeated answers what is kept of an earlier call with the id of this one; nil
// when there was none. Another call under that id is refused.
func (c *Core) repeated(call *model.Disable) (*model.Disable, error) {
	known := c.known(call.ID)
	if known != nil && known.Call != call.Call {
		return nil, fault.New(fault.Conflict, fault.ReasonDuplicate, "request id %q was used for another call", call.ID)
	}
	return known, nil
}

// fingerprint tells calls apart by what they ask for. It is stored: what it is
// made of must stay as it is, or a repeat is taken for another call.
func fingerprint(parts ...any) uint64 {
	sum := fnv.New64a()
	for _, part := range parts {
		switch p := part.(type) {
		case Selector:
			part = fmt.Sprintf("%q %s", idSet(p.IDs), match.AttributesKey(p.Attributes))
		case time.Time:
			part = p.UTC().Format(time.RFC3339Nano)
		}
		fmt.Fprintf(sum, "%#v\n", part)
	}
	return sum.Sum64()
}
