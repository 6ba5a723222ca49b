package dispatch

import (
	"container/heap"
	"slices"
)

// runsElsewhere says whether some executor has the worker of an order to submit,
// of another epoch, and is still to stop it. That is so after a restore: the name
// was used in the history that is gone, and is given again. An agent sees to it by
// itself for what it has; nobody but the assigner sees two of them. What a LOST
// executor has is given up, here as anywhere.
func (c *Core) runsElsewhere(o *order) bool {
	t := c.tasks[o.key.uid]
	return slices.ContainsFunc(c.namesakes[t.worker(o.key.workerID)], func(stray *order) bool {
		return !c.host(stray.key.ordinal).lost()
	})
}

// unname forgets a stray that is no more, and lets those go on who waited for it.
func (c *Core) unname(stray *order) {
	name := stray.of.worker
	left := slices.DeleteFunc(c.namesakes[name], func(o *order) bool { return o == stray })
	if c.namesakes[name] = left; len(left) == 0 {
		delete(c.namesakes, name)
	}
	c.unbar()
}

// unbar has every order that waits for strays looked at again. They are few, and
// rare.
func (c *Core) unbar() {
	for len(c.barred) > 0 {
		heap.Pop(&c.barred).(*order).enter(&c.due)
	}
}
