package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// VolumeEvent is something that changes the state of a volume or what it holds.
type VolumeEvent uint8

// The events.
const (
	// VolumeGranted: a lease starts a worker on the volume.
	VolumeGranted VolumeEvent = iota
	// VolumeListed: its home lists it.
	VolumeListed
	// VolumeMissing: a later whole list of its home lacks it, and no lease names it. For a
	// PLANNED volume, a worker may have used it, and the list is that of a later incarnation.
	VolumeMissing
	// VolumeMoved: its home is LOST, another executor lists it, and no lease names it.
	VolumeMoved
	// VolumeUnused: its worker ended and certainly never ran, or the lease was deleted before
	// it was dispatched, and no worker has used the volume before.
	VolumeUnused
	// VolumeReplaced: a grant starts its index elsewhere.
	VolumeReplaced
	// VolumeGivenUp: an operator states that it is lost for good.
	VolumeGivenUp
	// VolumeUnwanted: nobody wants it any longer.
	VolumeUnwanted
	// VolumeWanted: a reservation wants it again.
	VolumeWanted
	// VolumeExpired: its deletion was requested, or KeepFor is over, and no lease names it.
	VolumeExpired
	// VolumeGone: its home confirms that it was destroyed.
	VolumeGone
)

var volumeEventTexts = [...]string{
	"a worker is granted on it", "its executor lists it",
	"its executor no longer lists it, and no worker on it is leased",
	"another executor lists it, its executor is `LOST`, and no worker on it is leased",
	"its worker ended and certainly never ran", "its worker index starts elsewhere (`onLoss: REPLACE`)",
	"an operator abandons it", "no reservation wants its worker index any more",
	"a reservation wants its worker index again", "its deletion was requested, or `keepFor` is over, and no worker on it is leased",
	"its executor confirms that it destroyed the volume",
}

// String returns the event as a clause.
func (e VolumeEvent) String() string { return volumeEventTexts[e] }

// VolumeHolds says what a volume holds of its home.
type VolumeHolds uint8

// The amounts that a volume may hold.
const (
	HoldsNothing VolumeHolds = iota
	// HoldsSize: its size, which is the amount of one resource.
	HoldsSize
	// HoldsWorker: all resources of its worker.
	HoldsWorker
	// HoldsSame: what it held before.
	HoldsSame
)

var volumeHoldsNames = [...]string{"nothing", "its size", "the resources of its worker", "what it held before"}

func (h VolumeHolds) String() string { return volumeHoldsNames[h] }

// VolumeEdge is a transition of a volume. VolumeUnset in From means that the volume does not
// exist, and in To that its entry is deleted.
type VolumeEdge struct {
	From  model.VolumeState
	Event VolumeEvent
	To    model.VolumeState
	Holds VolumeHolds
}

// VolumeEdges has all transitions. No other code changes the state of a volume.
var VolumeEdges = []VolumeEdge{
	{model.VolumeUnset, VolumeGranted, model.VolumePlanned, HoldsWorker},

	{model.VolumePlanned, VolumeGranted, model.VolumePlanned, HoldsWorker},
	{model.VolumePlanned, VolumeListed, model.VolumeReady, HoldsSame},
	{model.VolumePlanned, VolumeMissing, model.VolumeLost, HoldsNothing},
	{model.VolumePlanned, VolumeMoved, model.VolumeReady, HoldsSize},
	{model.VolumePlanned, VolumeUnused, model.VolumeDestroying, HoldsSize},
	{model.VolumePlanned, VolumeReplaced, model.VolumeAbandoned, HoldsSize},
	{model.VolumePlanned, VolumeGivenUp, model.VolumeAbandoned, HoldsSize},
	{model.VolumePlanned, VolumeUnwanted, model.VolumePlanned, HoldsSize},
	{model.VolumePlanned, VolumeWanted, model.VolumePlanned, HoldsSame},
	{model.VolumePlanned, VolumeExpired, model.VolumeDestroying, HoldsSize},

	{model.VolumeReady, VolumeGranted, model.VolumeReady, HoldsWorker},
	{model.VolumeReady, VolumeMissing, model.VolumeLost, HoldsNothing},
	{model.VolumeReady, VolumeMoved, model.VolumeReady, HoldsSize},
	{model.VolumeReady, VolumeReplaced, model.VolumeAbandoned, HoldsSize},
	{model.VolumeReady, VolumeGivenUp, model.VolumeAbandoned, HoldsSize},
	{model.VolumeReady, VolumeUnwanted, model.VolumeReady, HoldsSize},
	{model.VolumeReady, VolumeWanted, model.VolumeReady, HoldsSame},
	{model.VolumeReady, VolumeExpired, model.VolumeDestroying, HoldsSize},

	{model.VolumeLost, VolumeListed, model.VolumeReady, HoldsSize},
	{model.VolumeLost, VolumeMoved, model.VolumeReady, HoldsSize},
	{model.VolumeLost, VolumeReplaced, model.VolumeUnset, HoldsNothing},
	{model.VolumeLost, VolumeGivenUp, model.VolumeUnset, HoldsNothing},
	{model.VolumeLost, VolumeUnwanted, model.VolumeLost, HoldsNothing},
	{model.VolumeLost, VolumeWanted, model.VolumeLost, HoldsNothing},
	{model.VolumeLost, VolumeExpired, model.VolumeUnset, HoldsNothing},

	{model.VolumeAbandoned, VolumeMoved, model.VolumeAbandoned, HoldsSize},
	{model.VolumeAbandoned, VolumeExpired, model.VolumeDestroying, HoldsSize},

	{model.VolumeDestroying, VolumeMoved, model.VolumeDestroying, HoldsSize},
	{model.VolumeDestroying, VolumeGone, model.VolumeUnset, HoldsNothing},
	{model.VolumeDestroying, VolumeGivenUp, model.VolumeUnset, HoldsNothing},
}

// becomes applies an event to a volume, and reports whether its entry remains. The table
// must have the transition.
func (c *Core) becomes(v *model.Volume, event VolumeEvent) (remains bool) {
	at := slices.IndexFunc(VolumeEdges, func(e VolumeEdge) bool { return e.From == v.State && e.Event == event })
	if at < 0 {
		panic(fmt.Sprintf("inventory: volume %s is %v, which has no transition if %v", v.ID, v.State, event))
	}
	edge := VolumeEdges[at]
	if edge.To != v.State {
		v.State, v.Since = edge.To, c.now
	}
	if edge.Holds != HoldsSame {
		v.Whole = edge.Holds == HoldsWorker
	}
	switch {
	case event == VolumeGranted || event == VolumeWanted:
		v.UnwantedSince = time.Time{}
	case (event == VolumeUnwanted || !edge.To.Current()) && v.UnwantedSince.IsZero():
		v.UnwantedSince = c.now
	}
	return edge.To != model.VolumeUnset
}

// markVolumes adds a chunk of volumes to the duties. Standbys mark nothing, because Elected
// marks all chunks.
func (c *Core) markVolumes(stage model.Key, chunk int32) {
	if s := c.stages[stage]; c.term != 0 && s != nil && s.chunks[chunk] != nil {
		c.volumeTodo.add(model.Ref{Kind: model.KindVolumeChunk, Key: stage, Chunk: chunk})
	}
}

// markHome adds the volumes of an executor to the duties, because the executor may have
// become LOST.
func (c *Core) markHome(a *allocation) {
	if c.term == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(a.volumes)) {
		v := a.volumes[id]
		c.markVolumes(v.stage, v.Index/model.VolumeChunkSize)
	}
}

// settleVolumes makes every volume become what the records, the lists of its home and the
// time say.
func (c *Core) settleVolumes() {
	for _, ref := range c.volumeTodo.take(c.cfg.StepLimit) {
		c.reviewVolumes(ref)
	}
	if next := c.nextKeep(); !next.IsZero() && !next.After(c.now) {
		var due []model.Ref
		for v := range c.keeps.All() {
			if v.keptUntil().After(c.now) || len(due) == c.cfg.StepLimit {
				break
			}
			due = append(due, v.ref())
		}
		for _, ref := range due {
			c.reviewVolumes(ref)
		}
	}
	c.subject = model.Ref{}
}

// knowsDemand reports whether all reservations and leases are known. Nothing is deleted
// because its time is over before the registry is ready, or while the record of a reservation
// or lease cannot be read: it may want the volume.
func (c *Core) knowsDemand() bool {
	return c.registryReady() && len(c.quarantined.uids) == 0
}

// nextKeep returns when the next kept volume is to be deleted; zero means never.
func (c *Core) nextKeep() time.Time {
	if !c.knowsDemand() {
		return time.Time{}
	}
	v, ok := c.keeps.First()
	if !ok {
		return time.Time{}
	}
	return v.keptUntil()
}

// reviewVolumes reviews the volumes of a chunk.
func (c *Core) reviewVolumes(ref model.Ref) {
	s := c.stages[ref.Key]
	if s == nil {
		return
	}
	c.subject = ref
	edits := volumeEdits{Core: c}
	list := volumesOf(s.chunks[ref.Chunk])
	for i := range list {
		next, remains := c.review(s, list[i])
		switch {
		case !remains:
			edits.remove(ref.Key, &next)
		case !next.Equal(&list[i]):
			edits.set(ref.Key, next)
		}
	}
	if len(edits.order) > 0 {
		c.decide(edits.effect())
	}
}

// maxEvents bounds the events of one review. A volume moves at most once, and then goes
// through at most five states.
const maxEvents = 8

// review applies all events to a volume that follow from the records, the lists and the
// time. It reports whether the volume's entry remains.
func (c *Core) review(s *stage, v model.Volume) (next model.Volume, remains bool) {
	for range maxEvents {
		event, ok := c.nextEvent(s, &v)
		if !ok {
			break
		}
		if !c.becomes(&v, event) {
			return v, false
		}
	}
	return v, true
}

// nextEvent returns the next event of a volume, and applies what the event says about its
// home; false if there is none.
func (c *Core) nextEvent(s *stage, v *model.Volume) (event VolumeEvent, ok bool) {
	current, leased, wanted := v.State.Current(), s.leased(v), s.wants(v.Index)
	if list, lists := c.listAfter(v); list != nil {
		switch {
		case lists && (v.State == model.VolumePlanned || v.State == model.VolumeLost):
			v.Incarnation, v.Sequence = list.incarnation, list.sequence
			return VolumeListed, true
		case !lists && !leased && (v.State == model.VolumeReady ||
			v.State == model.VolumePlanned && v.Used && list.incarnation > v.Incarnation):
			v.Incarnation, v.Sequence = list.incarnation, list.sequence
			return VolumeMissing, true
		}
	}
	if c.homeLost(v) && !leased {
		if h, list := c.listedElsewhere(v); h != nil {
			v.Ordinal, v.Incarnation, v.Sequence = h.Record.Ordinal, list.incarnation, list.sequence
			return VolumeMoved, true
		}
	}
	switch {
	case current && wanted && !v.UnwantedSince.IsZero():
		return VolumeWanted, true
	case current && !wanted && v.UnwantedSince.IsZero():
		return VolumeUnwanted, true
	case v.State != model.VolumeDestroying && !leased && (v.Delete || c.keepOver(v)) && s.mayRemove(v):
		return VolumeExpired, true
	}
	return 0, false
}

// mayRemove reports whether the entry of a volume may be removed if it is LOST or DESTROYING:
// its record must be durable. Otherwise one transaction could remove a READY volume, and no
// record would ever say that it was lost or to be destroyed.
func (s *stage) mayRemove(v *model.Volume) bool {
	if v.State != model.VolumeLost && v.State != model.VolumeDestroying {
		return true
	}
	e := s.chunks[v.Index/model.VolumeChunkSize]
	recorded := volumesOf(e)
	at, found := findVolume(recorded, v)
	return e.mod != 0 && found && recorded[at].State == v.State
}

// keepOver reports whether the time for which a volume is kept is over.
func (c *Core) keepOver(v *model.Volume) bool {
	kept := volume{Volume: v}
	return kept.kept() && c.knowsDemand() && !kept.keptUntil().After(c.now)
}

// home returns the home of a volume; nil if the record of the executor is unknown.
func (c *Core) home(v *model.Volume) *host {
	if a := c.allocations[v.Ordinal]; a != nil {
		return a.host
	}
	return nil
}

// homeLost reports whether the home of a volume is LOST.
func (c *Core) homeLost(v *model.Volume) bool {
	h := c.home(v)
	return h != nil && h.state == model.ExecutorLost
}

// away describes why the home of a volume cannot be given the volume's worker, whatever its
// free capacity; empty if it can. It names what the worker waits for.
func (c *Core) away(v *model.Volume) (h *host, why string) {
	if h = c.home(v); h == nil {
		return nil, fmt.Sprintf("on an executor whose record is unknown (ordinal %d): see the findings", v.Ordinal)
	}
	until, standing := "", h.Eligibility()
	switch standing {
	case match.Eligible, match.Overcommitted, match.FailsStarts:
		return h, "" // a skip because of failed starts would only delay the index: it has no other place
	case match.Registered, match.Unreachable, match.Lost:
		return h, fmt.Sprintf("on executor %s, which is %s: it waits until the executor is READY", h.ID, h.shown())
	case match.Quarantined:
		until = "has a lease or volume that cannot be read: see the findings"
	case match.Draining:
		until = "is draining: it waits until the drain ends"
	case match.Disabled:
		until = "is disabled: it waits until " + disabledBy(c, h) + " ends"
	case match.Cell:
		until = "is a cell"
	}
	return h, fmt.Sprintf("on executor %s, which %s", h.ID, until)
}

// disabledBy names the requests that take an executor out of allocation.
func disabledBy(c *Core, h *host) string {
	var ids []string
	for _, d := range c.requests.Of(&h.Executor) {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, ", ")
}
