package inventory

import (
	"cmp"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// class is the executors with equal SKU and attributes: whatever chooses among
// executors by kind, a request, a pool or a request to disable, chooses all of a
// class or none. Where each executor has an attribute of its own there are as
// many classes as executors, so nothing that a cycle does looks at all of them.
type class struct {
	key string
	// index is its place in sections.classes.
	index int32
	// host is any of its executors, without an id; its pools are kept up with
	// the records of pools, and lostAfter and crews with them.
	host      constraint.Host
	lostAfter time.Duration
	crews     []*crew
	// attributes are those of host, folded, in order.
	attributes []attribute
	// hosts are its executors in no order, standing counts them by why they may
	// or may not be given work.
	hosts    []*host
	standing [standings]int
	// requests are the ids of the requests to disable that select it by attributes,
	// in order.
	requests []string
}

func compareIndexes(a, b *class) int { return cmp.Compare(a.index, b.index) }

// classOf answers the class that an executor belongs to.
func (c *Core) classOf(e *model.Executor) *class {
	// Spelled differently a SKU is the same SKU, but another class: so which
	// spelling is shown does not hang on who came first.
	key := e.SKU + "|" + attributesKey(e.Attributes)
	if k := c.classes[key]; k != nil {
		return k
	}
	k := &class{
		key: key, host: constraint.Host{SKU: e.SKU, Attributes: e.Attributes},
		attributes: attributesOf(e.Attributes),
	}
	c.classes[key] = k
	c.joinPools(k, c.poolsOf(k.host))
	c.sections.enter(k)
	k.requests = c.disables.holding(k.attributes)
	c.disables.closed.set(k.index, len(k.requests) > 0)
	return k
}

// joinKind moves the host to the class and the shape of its executor; nil for
// none. The host enters what is new before it leaves what was, so that an
// executor that is alone in its class does not end it by a change of its record.
func (c *Core) joinKind(h *host, e *model.Executor) {
	class, shape := h.class, h.shape
	h.class, h.shape = nil, nil
	if e != nil {
		h.class, h.shape = c.classOf(e), c.shapeOf(e)
	}
	if class != nil {
		class.remove(h)
	}
	if e != nil {
		h.class.add(h)
		h.shape.add(e.SKU)
	}
	if class == nil {
		return
	}
	if len(class.hosts) == 0 {
		delete(c.classes, class.key)
		c.disables.closed.set(class.index, false)
		c.sections.leave(class)
		c.leavePools(class)
	}
	c.leaveShape(shape, class.host.SKU)
}

// living counts the executors that are not LOST.
func (k *class) living() (n int) {
	for _, count := range k.standing {
		n += count
	}
	return n - k.standing[lost]
}

func (k *class) add(h *host) {
	h.at = len(k.hosts)
	k.hosts = append(k.hosts, h)
}

func (k *class) remove(h *host) {
	last := len(k.hosts) - 1
	moved := k.hosts[last]
	k.hosts[h.at], moved.at = moved, h.at
	k.hosts[last] = nil
	k.hosts = k.hosts[:last]
}
