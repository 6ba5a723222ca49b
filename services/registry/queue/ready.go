package queue

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Readiness says what makes the registry ready, once in a cluster's life.
type Readiness uint8

// The ways to become ready.
const (
	// ReadyAuto: the first leader is ready as soon as it has the state.
	ReadyAuto Readiness = iota
	// ReadyOnSignal: MarkReady says so, or Config.ReadinessGrace has passed.
	ReadyOnSignal
)

// MarkReady is the request of a model.Input that tells that all job services
// have asked again for what they want. It is answered by MarkedReady, and by
// the same each time: there is nothing to remember a call for.
type MarkReady struct{}

// MarkedReady answers MarkReady.
type MarkedReady struct {
	// Since is when the registry became ready, by whatever.
	Since time.Time
}

// Ready says since when the registry is ready; zero while it is not. Before,
// requests are taken, and nothing is tried, dispatched or counted.
func (c *Core) Ready() time.Time {
	if c.ready == nil {
		return time.Time{}
	}
	return c.ready.Since
}

func (c *Core) isReady() bool { return !c.Ready().IsZero() }

// getReady makes the registry ready where that needs no signal, and otherwise
// begins to wait for it. It looks at the record alone: a successor goes on
// where the record says, and the grace counts from when the first has begun.
func (c *Core) getReady() {
	switch {
	case c.isReady():
	case c.config.Readiness == ReadyAuto:
		c.becomeReady("auto")
	case c.ready == nil:
		c.decide(model.Effect{Puts: []model.Record{&model.Ready{Begun: c.now}}})
	default:
		if at := c.readyAt(); !at.IsZero() && !c.now.Before(at) {
			c.becomeReady("grace")
		}
	}
}

// readyAt is when the wait for the signal ends by itself; zero for never.
func (c *Core) readyAt() time.Time {
	if c.isReady() || c.ready == nil || c.config.ReadinessGrace == 0 {
		return time.Time{}
	}
	return c.ready.Begun.Add(c.config.ReadinessGrace)
}

// becomeReady opens the queues: every head may be tried as soon as it is
// durable that they are open.
func (c *Core) becomeReady(by string) {
	next := model.Ready{Since: c.now, By: by}
	if c.ready != nil {
		next.Begun = c.ready.Begun
	}
	c.decide(model.Effect{Puts: []model.Record{&next}})
	c.once(func() { c.wake(WakeReady) })
}

func (c *Core) markReady(token uint64) {
	if !c.isReady() {
		c.becomeReady("signal")
	}
	c.reply(token, func() any { return MarkedReady{Since: c.Ready()} })
}

// notReady refuses a view of the whole queue that might lack a part of it.
func notReady() error {
	return fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "the registry waits for the job services to have asked again, and for markReady")
}
