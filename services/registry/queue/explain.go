package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// Standing is where a reservation stands: the registry's part of why it waits.
type Standing struct {
	View
	// Group is its queue, in which Queued wait and Head is first, since
	// HeadSince; empty when it does not queue.
	Group     string
	Queued    int
	Head      model.Key
	HeadSince time.Time
	// Tried is when it was last found not to fit; zero when it was not.
	Tried time.Time
}

// Standing explains the newest version of a key that queues, or else what Get
// shows.
func (c *Core) Standing(key model.Key) (Standing, bool) {
	for _, v := range slices.Backward(c.byKey[key]) {
		if !v.waits() {
			continue
		}
		g := c.groups[v.group]
		head := g.order.At(0)
		return Standing{
			View: c.view(v), Group: g.id, Queued: g.order.Len(),
			Head: head.Key, HeadSince: head.CreatedAt, Tried: v.triedAt,
		}, true
	}
	view, ok := c.Get(key)
	return Standing{View: view}, ok
}

// The kinds of findings.
const (
	// FindingHeadWaits: the head of a queue does not fit for long, and all
	// behind it wait with it.
	FindingHeadWaits = "HEAD_WAITS"
	// FindingNotReady: the registry waits for markReady for long.
	FindingNotReady = "REGISTRY_NOT_READY"
)

const (
	// patience is how long something may wait before it is a finding.
	patience = 10 * time.Minute
	// maxFindings bounds the queues told of: those that wait longest.
	maxFindings = 100
)

// Finding is something that an operator should know of.
type Finding struct {
	Kind, Object    string
	Since           time.Time
	Message, Action string
}

// Findings tells of heads that were found not to fit and wait for longer than
// ten minutes, the longest first, and of a registry that is not ready for as
// long.
func (c *Core) Findings(now time.Time) []Finding {
	if !c.isReady() {
		if c.ready == nil || now.Sub(c.ready.Begun) < patience {
			return nil
		}
		action := "it goes on waiting"
		if at := c.readyAt(); !at.IsZero() {
			action = "it is ready by itself at " + at.Format(time.RFC3339)
		}
		return []Finding{{
			Kind: FindingNotReady, Object: model.ServiceRegistry, Since: c.ready.Begun,
			Message: "requests are taken, and nothing is leased before markReady", Action: action,
		}}
	}
	var stuck []*model.Reservation
	for _, g := range c.groups {
		head := g.order.At(0)
		if c.versions[head.UID].outcome != nil && now.Sub(head.CreatedAt) >= patience {
			stuck = append(stuck, head)
		}
	}
	slices.SortFunc(stuck, func(a, b *model.Reservation) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), a.Key.Compare(b.Key))
	})
	var findings []Finding
	for _, head := range stuck[:min(len(stuck), maxFindings)] {
		v := c.versions[head.UID]
		behind := "1 waits"
		if n := c.groups[v.group].order.Len() - 1; n != 1 {
			behind = fmt.Sprintf("%d wait", n)
		}
		findings = append(findings, Finding{
			Kind: FindingHeadWaits, Object: head.Key.String(), Since: head.CreatedAt,
			Message: fmt.Sprintf("%s: %s; it is the head of group %s, and %s behind it", v.outcome.Reason, v.outcome.Message, v.group, behind),
			Action:  "it is tried again on every change of the inventory, until it fits, is cancelled or its queueTimeout is over",
		})
	}
	return findings
}
