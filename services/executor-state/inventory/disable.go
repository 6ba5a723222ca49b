package inventory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// The bounds of requests to disable.
const (
	maxSelected = 1000
	maxReason   = 1 << 10
	// maxNames bounds the registered executors that requests hold for by id, each
	// counted once for each request, and maxByKind the requests that go by
	// attributes: that many fit into memory. Requests to disable and claims leave
	// reservedNames of it to drains, so that an operator can always drain; what
	// enables adds no name, and is never refused for these bounds.
	maxNames      = 200_000
	reservedNames = maxNames / 10
	maxByKind     = 500
	// maxUnknown bounds the ids without a registered executor that requests hold
	// for, counted in the same way but apart: a caller can make up any number.
	maxUnknown = 10_000
)

// Selector chooses executors: by ids, or by attributes that all have to be
// equal without regard to case. One of the two is given.
type Selector struct {
	IDs        []string
	Attributes map[string]string
}

// Disable is the request to take executors out of allocation until it expires
// or is undone: those there are, and those that come later or come back.
// Workers on them stay. Overlapping requests hold each for itself. A repeat
// with the same id acts once, for [model.KeepDisable] after the request has
// ended too. The reply's Value is a [Disabled].
type Disable struct {
	// RequestID names the request.
	RequestID string
	Selector  Selector
	// ExpireAt is zero for a request that stands until it is undone.
	ExpireAt time.Time
	Reason   string
}

// Disabled answers Disable.
type Disabled struct {
	RequestID string
	// Executors counts those that the request holds for now.
	Executors int
	// Unknown are the ids of the request of which no executor is registered, in
	// order.
	Unknown []string
}

// Enable is the request to undo others: the one with DisableRequestID, or all
// that name the same ids or attributes as the selector. Ids are taken out of
// requests that name others too. A repeat with the same id acts once, for
// [model.KeepDisable]. The reply's Value is an [Enabled].
type Enable struct {
	RequestID        string
	DisableRequestID string
	Selector         Selector
}

// Enabled answers Enable.
type Enabled struct {
	RequestID string
	// Undone counts the requests that were undone, wholly or in part.
	Undone int
}

// disable decides one request; the executors' place in the index follows from
// its record alone.
func (c *Core) disable(token uint64, r Disable) {
	d, err := c.asked(r)
	switch {
	case err != nil:
		c.reply(token, nil, err)
	case c.known(d.ID) != nil:
		c.reply(token, c.disabled(c.known(d.ID)), nil)
	default:
		c.disableNow(d)
		c.reply(token, c.disabled(d), nil)
	}
}

// disabled answers a request to disable.
func (c *Core) disabled(d *model.Disable) Disabled {
	answer := Disabled{RequestID: d.ID, Executors: c.countHeld(d)}
	if d.Holds() {
		answer.Unknown = c.unknown(d.IDs)
	}
	return answer
}

// unknown returns the ids of which no executor is registered.
func (c *Core) unknown(ids []string) (unknown []string) {
	for _, id := range ids {
		if c.hosts[id] == nil {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// asked answers the request as it is to be kept, unless it is refused. That of a
// repeat is never refused.
func (c *Core) asked(r Disable) (*model.Disable, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	d := &model.Disable{
		ID: r.RequestID, IDs: idSet(r.Selector.IDs), Attributes: r.Selector.Attributes,
		Reason: r.Reason, ExpireAt: r.ExpireAt, CreatedAt: c.now,
	}
	d.Call = fingerprint("disable", r.Selector, r.Reason, r.ExpireAt)
	if known, err := c.repeated(d); known != nil || err != nil {
		return d, err
	}
	if err := inFuture(r.ExpireAt, c.now); err != nil {
		return nil, err
	}
	unknown := len(c.unknown(d.IDs))
	if err := c.roomFor("selector.ids", len(d.IDs)-unknown, maxNames-reservedNames); err != nil {
		return nil, err
	}
	if n := c.disables.unknown; n+unknown > maxUnknown {
		return nil, full("selector.ids", "%d of them are not registered, requests hold for %d such IDs, at most %d may be", unknown, n, maxUnknown)
	}
	if n := len(c.disables.byKind); len(d.Attributes) > 0 && n >= maxByKind {
		return nil, full("selector.attributes", "%d requests go by attributes, which is the most", n)
	}
	return d, nil
}

// inFuture refuses a request that would have expired by now.
func inFuture(expire, now time.Time) error {
	if !expire.IsZero() && !expire.After(now) {
		return fault.BadField(fault.ReasonInvalid, "expireTime", "must be in the future")
	}
	return nil
}

// roomFor refuses a request that would hold for more registered executors by id
// than may be held, all requests together.
func (c *Core) roomFor(field string, ids, most int) error {
	if n := c.disables.names - c.disables.unknown; ids > 0 && n+ids > most {
		return full(field, "requests hold for %d executors by id, at most %d may be", n, most)
	}
	return nil
}

// full refuses a request because of those there are.
func full(field, format string, args ...any) error {
	f := fault.BadField(fault.ReasonTooLarge, field, format, args...)
	f.Kind = fault.Exhausted
	f.Message += "; enable some, or wait until they expire"
	return f
}

// disableNow decides a request, with more records in the same effect. Where no
// executor holds a worker there is no job to be told.
func (c *Core) disableNow(d *model.Disable, more ...model.Record) {
	busy := func(h *host) bool { return h != nil && h.hold.Workers > 0 }
	d.ToldAll = !slices.ContainsFunc(d.IDs, func(id string) bool { return busy(c.hosts[id]) })
	if len(d.Attributes) > 0 {
		for k := range c.index.Classes(match.AttributesOf(d.Attributes)) {
			if slices.ContainsFunc(k.Executors(), func(e *match.Executor) bool { return e.Held.Workers > 0 }) {
				d.ToldAll = false
				break
			}
		}
	}
	c.decide(model.Effect{Puts: append([]model.Record{d}, more...)})
}

// enable undoes requests. Each is an effect of its own, for there may be more
// of them than a transaction holds; what undid them comes last.
func (c *Core) enable(r Enable) (Enabled, error) {
	if err := r.check(); err != nil {
		return Enabled{}, err
	}
	call := &model.Disable{ID: r.RequestID, Enable: true, CreatedAt: c.now, EndedAt: c.now}
	call.Call = fingerprint("enable", r.DisableRequestID, r.Selector)
	switch known, err := c.repeated(call); {
	case err != nil:
		return Enabled{}, err
	case known != nil:
		return Enabled{known.ID, int(known.Undone)}, nil
	}
	for _, id := range c.undoes(r) {
		d := c.known(id)
		if len(r.Selector.IDs) > 0 {
			c.decide(c.letGo(d, r.Selector.IDs))
		} else {
			c.decide(c.ending(d))
		}
		call.Undone++
	}
	c.decide(model.Effect{Puts: []model.Record{call}})
	return Enabled{call.ID, int(call.Undone)}, nil
}

// undoes answers the ids of the requests that hold and are to be undone.
func (c *Core) undoes(r Enable) []string {
	found := map[string]bool{}
	for _, id := range r.Selector.IDs {
		for _, request := range c.disables.named[id] {
			found[request] = true
		}
	}
	if len(r.Selector.Attributes) > 0 {
		attributes := match.AttributesOf(r.Selector.Attributes)
		for request, selected := range c.disables.byKind {
			if d := c.known(request); d != nil && d.Holds() && slices.Equal(attributes, selected) {
				found[request] = true
			}
		}
	}
	if known := c.known(r.DisableRequestID); known != nil && known.Holds() {
		found[known.ID] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// idSet answers the ids in order, each once.
func idSet(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// check refuses a request that is not well formed, naming every field that is
// wrong.
func (r Disable) check() error {
	var bad violations
	bad.name("requestId", r.RequestID, maxName)
	bad.selector(r.Selector)
	bad.reasonText(r.Reason)
	return bad.err()
}

func (r Enable) check() error {
	var bad violations
	bad.name("requestId", r.RequestID, maxName)
	if r.DisableRequestID == "" {
		bad.selector(r.Selector)
		return bad.err()
	}
	bad.name("disableRequestId", r.DisableRequestID, maxName)
	if len(r.Selector.IDs)+len(r.Selector.Attributes) > 0 {
		bad.add(fault.ReasonInvalid, "selector", "is given beside disableRequestId: give one of the two")
	}
	return bad.err()
}

func (v *violations) selector(s Selector) {
	switch {
	case len(s.IDs) == 0 && len(s.Attributes) == 0:
		v.add(fault.ReasonRequired, "selector", "must be given: ids or attributes")
	case len(s.IDs) > 0 && len(s.Attributes) > 0:
		v.add(fault.ReasonInvalid, "selector", "has ids and attributes: give one of the two")
	case len(s.IDs) > maxSelected:
		v.add(fault.ReasonTooLarge, "selector.ids", "at most %d, are %d", maxSelected, len(s.IDs))
	default:
		for i, id := range s.IDs {
			v.name(fmt.Sprintf("selector.ids[%d]", i), id, maxID)
		}
		v.attributes("selector.attributes", s.Attributes)
	}
}

func (v *violations) reasonText(reason string) {
	if len(reason) > maxReason {
		v.add(fault.ReasonTooLarge, "reason", "at most %d bytes, are %d", maxReason, len(reason))
	}
}
