package queue

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Readiness selects what makes the registry ready, once in a cluster's life.
type Readiness uint8

// The ways to become ready.
const (
	// ReadyAuto: the first leader is ready as soon as it has loaded the state.
	ReadyAuto Readiness = iota
	// ReadyOnSignal: the registry is ready after MarkReady, or after Config.ReadinessGrace.
	ReadyOnSignal
)

// MarkReady is the request of a model.Input which says that all job services have
// repeated their requests. Each repeat returns the same MarkedReady, so a repeat needs no
// ID.
type MarkReady struct{}

// MarkedReady answers MarkReady.
type MarkedReady struct {
	// Since is when the registry became ready, whether by a signal or not.
	Since time.Time
}

// isReady reports whether the registry is ready. Until then it accepts requests, but it
// tries, dispatches and counts nothing.
func (c *Core) isReady() bool { return c.ready != nil && !c.ready.Since.IsZero() }

// getReady makes the registry ready if that needs no signal. Otherwise it begins to wait
// for the signal. It looks at the record alone, so any leader continues where the last
// one stopped, and the grace counts from when the first leader began to wait.
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

// readyAt returns when the wait ends without a signal; zero means never.
func (c *Core) readyAt() time.Time {
	if c.isReady() || c.ready == nil || c.config.ReadinessGrace == 0 {
		return time.Time{}
	}
	return c.ready.Begun.Add(c.config.ReadinessGrace)
}

// becomeReady stores the ready mark. Once the mark is durable, every head may be tried.
func (c *Core) becomeReady(by string) {
	next := model.Ready{Since: c.now, By: by}
	if c.ready != nil {
		next.Begun = c.ready.Begun
	}
	c.decide(model.Effect{Puts: []model.Record{&next}})
	c.once(func() { c.scheduler.Wake(scheduler.WakeReady) })
}

func (c *Core) markReady(token uint64) {
	if !c.isReady() {
		c.becomeReady("signal")
	}
	c.reply(token, func() any { return MarkedReady{Since: c.ready.Since} })
}

// notReady returns the error for a view of the whole queue that may lack a part of it.
func notReady() error {
	return fault.New(fault.Unavailable, fault.ReasonRegistryNotReady,
		"the registry waits for the job services to repeat their requests, and for markReady")
}
