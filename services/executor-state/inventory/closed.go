package inventory

import (
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// ClosedBy implements [match.Owner]: a request to disable that goes by attributes closes
// the classes that it selects.
func (o owner) ClosedBy(attributes match.Attributes) []string {
	var list []string
	for id, selected := range o.disables.byKind {
		if attributes.Contain(selected) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

func holdsByKind(d *model.Disable) bool { return d != nil && d.Holds() && len(d.Attributes) > 0 }

// holdByKind has a request that goes by attributes hold from now on, or no more.
func (c *Core) holdByKind(was, is *model.Disable) {
	if holdsByKind(was) {
		delete(c.disables.byKind, was.ID)
		c.closeClasses(was, false)
	}
	if holdsByKind(is) {
		c.disables.byKind[is.ID] = match.AttributesOf(is.Attributes)
		c.closeClasses(is, true)
	}
}

// closeClasses closes the classes that a request selects, or ends that.
func (c *Core) closeClasses(d *model.Disable, closed bool) {
	for k := range c.index.Classes(match.AttributesOf(d.Attributes)) {
		if !c.index.Close(k, d.ID, closed) {
			continue
		}
		for _, e := range k.Executors() {
			h := c.holds[e.Ordinal].host
			c.forgetUse(h)
			c.countUse(h)
		}
	}
}

// insertID and removeID keep a list of IDs in order.
func insertID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Insert(ids, at, id)
}

func removeID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Delete(ids, at, at+1)
}
