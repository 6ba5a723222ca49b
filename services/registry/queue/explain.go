package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Standing is the registry's part of the explanation why a reservation is pending.
type Standing struct {
	View
	// Group is the reservation's queue, in which Queued reservations are pending. Head is
	// the first of them and has waited since HeadSince. Group is empty if the reservation is
	// not pending.
	Group     string
	Queued    int
	Head      model.Key
	HeadSince time.Time
	// Tried is when a cycle last found that the reservation does not fit; zero if never.
	Tried time.Time
}

// Standing explains the version of a key whose place and reason Get shows. If none waits, it
// returns what Get returns.
func (c *Core) Standing(key model.Key) (Standing, bool) {
	if len(c.byKey[key]) == 0 {
		return Standing{}, false
	}
	if v, _ := c.waitingOf(c.reservationOf(key).members); v != nil {
		g := v.entry.Group
		if g == nil {
			return Standing{View: c.view(v)}, true
		}
		head, _ := g.Head()
		return Standing{
			View: c.view(v), Group: g.ID, Queued: g.Len(),
			Head: head.Key, HeadSince: head.QueuedAt(), Tried: v.entry.TriedAt,
		}, true
	}
	view, ok := c.Get(key)
	return Standing{View: view}, ok
}

// The kinds of findings.
const (
	// FindingHeadWaits: the head of a queue has been pending for ten minutes and does not
	// fit, and blocks all reservations behind it.
	FindingHeadWaits = "HEAD_WAITS"
	// FindingNotReady: the registry has waited for markReady for ten minutes.
	FindingNotReady = "REGISTRY_NOT_READY"
	// FindingGaveUp: a worker has ended, and its limit of restarts is reached. The finding
	// stays until the version is forgotten.
	FindingGaveUp = "GAVE_UP"
	// FindingCrashLoop: a worker that is always restarted was queued again more often in a row
	// than maxRestarts, and has not run for ten minutes since.
	FindingCrashLoop = "CRASH_LOOP"
	// FindingIncompleteGang: some workers of a gang live, and others have ended and are not queued
	// again.
	FindingIncompleteGang = "INCOMPLETE_GANG"
	// FindingHoldOld: a reservation has been held for a day.
	FindingHoldOld = "HOLD_OLD"
)

const (
	// patience is how long a reservation or the registry may wait before the wait is a
	// finding.
	patience = 10 * time.Minute
	// maxFindings bounds the number of reported queues, and of reported reservations. Those
	// that have waited longest are reported.
	maxFindings = 100
)

// FindingKinds has all kinds.
var FindingKinds = []string{FindingHeadWaits, FindingNotReady, FindingGaveUp, FindingCrashLoop, FindingIncompleteGang,
	FindingHoldOld}

// Finding is a condition that an operator should know.
type Finding struct {
	Kind, Object    string
	Since           time.Time
	Message, Action string
}

// Findings reports the heads that a cycle refused and that have waited for longer than
// ten minutes, the longest wait first, and then the reservations with findings about their
// restarts, the oldest first, gangs that Berth does not make whole again, and those that have been
// held for a day. If the registry is not ready, it reports only that, after ten minutes.
func (c *Core) Findings(now time.Time) []Finding {
	if !c.isReady() {
		return c.findNotReady(now)
	}
	stuck := slices.DeleteFunc(c.scheduler.Groups(), func(g *scheduler.Group) bool {
		head, outcome := g.Head()
		return outcome == nil || now.Sub(head.QueuedAt()) < patience
	})
	slices.SortFunc(stuck, func(a, b *scheduler.Group) int {
		x, _ := a.Head()
		y, _ := b.Head()
		return cmp.Or(x.QueuedAt().Compare(y.QueuedAt()), x.Key.Compare(y.Key))
	})
	var findings []Finding
	for _, g := range stuck[:min(len(stuck), maxFindings)] {
		head, _ := g.Head()
		view := c.view(c.versions[head.UID])
		findings = append(findings, Finding{
			Kind: FindingHeadWaits, Object: head.Key.String(), Since: head.QueuedAt(),
			Message: fmt.Sprintf("%s: %s; head of group %s, reservations behind it: %d", view.Reason, view.Message, g.ID,
				g.Len()-1),
			Action: "the registry tries the head on every change of the inventory, until the head fits, is cancelled or " +
				"reaches its queueTimeout: run berth explain, then add executors or cancel it",
		})
	}
	var restarts []Finding
	gaveUp := map[string]bool{}
	for _, v := range c.unstable {
		if f, found := c.restartFinding(v, now); found {
			restarts = append(restarts, f)
			gaveUp[f.Object] = gaveUp[f.Object] || f.Kind == FindingGaveUp
		}
	}
	slices.SortFunc(restarts, func(a, b Finding) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Concat(findings, restarts[:min(len(restarts), maxFindings)], c.incompleteFindings(gaveUp),
		c.holdFindings(now))
}

func (c *Core) findNotReady(now time.Time) []Finding {
	if c.ready == nil || now.Sub(c.ready.Begun) < patience {
		return nil
	}
	action := "the registry waits for markReady: run berth mark-ready when all job services have repeated their requests"
	if at := c.readyAt(); !at.IsZero() {
		action = "the registry becomes ready without the call at " + at.Format(time.RFC3339)
	}
	return []Finding{{
		Kind: FindingNotReady, Object: model.ServiceRegistry, Since: c.ready.Begun,
		Message: "requests are accepted, and nothing is leased before markReady", Action: action,
	}}
}
