package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/model"
)

// dump returns the state of a core that follows from its records, and the answers of calls
// in flight.
func (c *Core) dump() string {
	var b strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(c.versions)) {
		v := c.versions[uid]
		position := 0
		if v.entry.Group != nil {
			position = v.entry.Position()
		}
		fmt.Fprintf(&b, "version %s granted=%d accepted=%v refused=%v due=%v position=%d leased=%v\n",
			uid, v.granted, v.accepted, v.refused, v.due != nil, position, v.leased != nil)
		if v.r != nil {
			fmt.Fprintf(&b, "  %+v\n", *v.r)
		}
		if v.header != nil {
			fmt.Fprintf(&b, "  header %+v\n", *v.header)
		}
		for _, n := range slices.Sorted(maps.Keys(v.lease)) {
			fmt.Fprintf(&b, "  lease %+v\n", *v.lease[n])
		}
		for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
			fmt.Fprintf(&b, "  task %+v\n", *v.tasks[n])
		}
	}
	for key := range c.keys.All() {
		fmt.Fprintf(&b, "key %s:", key)
		for _, v := range c.byKey[key] {
			b.WriteString(" " + v.uid)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "children %v, executors %v, names %v\n", c.children, c.executors, c.names)
	for _, key := range slices.SortedFunc(maps.Keys(c.returned), model.Key.Compare) {
		fmt.Fprintf(&b, "returned in %v: %v\n", key, slices.Sorted(maps.Keys(c.returned[key])))
	}
	for key := range c.stageKeys.All() {
		fmt.Fprintf(&b, "stage %+v\n", *c.stages[key])
	}
	for _, g := range c.scheduler.Groups() {
		fmt.Fprintf(&b, "group %s: %d reservations, %d workers\n", g.ID, g.Len(), g.Workers)
	}
	b.WriteString("leased:")
	for r := range c.leased.All() {
		b.WriteString(" " + r.UID)
	}
	b.WriteString("\nclocks:")
	for d := range c.clocks.All() {
		fmt.Fprintf(&b, " %s at %v", d.uid, d.at)
	}
	b.WriteString("\nended:")
	for d := range c.ended.All() {
		fmt.Fprintf(&b, " %s at %v", d.uid, d.at)
	}
	fmt.Fprintf(&b, "\nunstable: %v", slices.Sorted(maps.Keys(c.unstable)))
	fmt.Fprintf(&b, "\nunsettled: %v\n", slices.Sorted(maps.Keys(c.unsettled)))
	fmt.Fprintf(&b, "ready: %+v\n", c.ready)
	fmt.Fprintf(&b, "stored: %+v, by job %v\n", c.stored, c.storedOf)
	fmt.Fprintf(&b, "states: %v, %d keys, %d stages, %d pending of %d\n",
		c.states, len(c.byKey), len(c.stages), len(c.pending), len(c.tentative))
	return b.String()
}
