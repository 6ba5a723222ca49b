package inventory

import (
	"iter"
	"slices"

	"berth.dev/pkg/model"
)

// A request to disable that goes by attributes holds for classes: it selects all
// executors of a class or none. A class that a request holds for is closed. Its
// executors stay where they are in the fields of the index, and a search skips the
// class by one bit, so that a request for the whole fleet costs a look at each class
// and a count of each executor.

// closedBy reports whether a request that goes by attributes holds for the class.
func (k *class) closedBy(request string) bool {
	_, held := slices.BinarySearch(k.requests, request)
	return held
}

// holding returns the ids of the requests that select executors with such attributes,
// in order.
func (s *disables) holding(attributes []attribute) []string {
	var list []string
	for id, selected := range s.byKind {
		if hasAll(attributes, selected) {
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
		c.selectClasses(was, removeID)
	}
	if holdsByKind(is) {
		c.disables.byKind[is.ID] = attributesOf(is.Attributes)
		c.selectClasses(is, insertID)
	}
}

// selectClasses changes the lists of requests of the classes that one selects.
func (c *Core) selectClasses(d *model.Disable, change func(ids []string, id string) []string) {
	toggled := false
	for k := range c.selected(d) {
		before := len(k.requests)
		if k.requests = change(k.requests, d.ID); before > 0 && len(k.requests) > 0 {
			continue
		}
		c.disables.closed.set(k.index, len(k.requests) > 0)
		for _, h := range k.hosts {
			h.tally(-1)
			c.unfree(h)
			h.stand()
			c.refree(h)
		}
		toggled = true
	}
	if toggled { // what refusals and sums say of these executors is out of date
		c.kinds++
		c.moves++
		c.shutCount++
		c.freed.forget()
	}
}

// selected gives the classes that a request selects by attributes, in order of index.
func (c *Core) selected(d *model.Disable) iter.Seq[*class] {
	attributes := attributesOf(d.Attributes)
	return func(yield func(*class) bool) {
		if len(attributes) == 0 {
			return
		}
		for k := range c.sections.all(c.sections.whole) {
			if hasAll(k.attributes, attributes) && !yield(k) {
				return
			}
		}
	}
}

// hasAll reports whether attributes have all that are wanted; both are in order.
func hasAll(attributes, wanted []attribute) bool {
	at := 0
	for _, w := range wanted {
		for at < len(attributes) && attributes[at].name != w.name {
			at++
		}
		if at == len(attributes) || attributes[at].value != w.value {
			return false
		}
	}
	return true
}

// insertID and removeID keep a list of ids in order.
func insertID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Insert(ids, at, id)
}

func removeID(ids []string, id string) []string {
	at, _ := slices.BinarySearch(ids, id)
	return slices.Delete(ids, at, at+1)
}
