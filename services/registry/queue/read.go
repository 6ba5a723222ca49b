package queue

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// View is a reservation as it is shown: its record, and what follows from what
// other services have stored.
type View struct {
	Reservation *model.Reservation
	// State is the derived one: LEASING while a cycle with it is in flight,
	// ASSIGNING while it holds a lease that is not ACTIVE.
	State model.State
	// Position is the place in its queue, 1 for the head, 0 when it does not
	// queue.
	Position int
	Reason   fault.Reason
	Message  string
	// Fitting is how many of its workers fitted when it was last tried.
	Fitting int
	// Counts are its workers by state, once they are dispatched.
	Counts map[string]int32
}

// Get shows the version that stands for those of a key that have not ended: what
// was asked for before its parts, and those before requeues, the newest of
// equals; or the newest of all when all have ended.
func (c *Core) Get(key model.Key) (View, bool) {
	v := c.shown(key)
	if v == nil {
		return View{}, false
	}
	return c.view(v), true
}

// GetUID shows one version.
func (c *Core) GetUID(uid string) (View, bool) {
	v := c.versions[uid]
	if v == nil || v.r == nil {
		return View{}, false
	}
	return c.view(v), true
}

// durableView shows a version as it is stored. What later effects under way make
// of it is nobody's to see yet, and where it stands in its queue goes with that.
func (c *Core) durableView(ref model.Ref) View {
	if v := c.versions[ref.ID]; v != nil && v.r != nil && c.pendingOf[ref] == 0 {
		return c.view(v)
	}
	r := c.durableReservation(ref)
	return View{Reservation: r, State: r.State, Reason: r.Reason, Message: r.Message, Counts: r.WorkerCounts}
}

func (c *Core) view(v *version) View {
	view := View{Reservation: v.r, State: v.r.State, Reason: v.r.Reason, Message: v.r.Message, Counts: v.counts()}
	switch {
	case !v.is(model.Queued):
		return view
	case v.held:
		view.Reason = fault.ReasonPoison
		return view
	case v.dispatched(): // as its record is about to say
		view.State, view.Reason = model.Active, ""
		return view
	case !v.waits():
		view.State = model.Assigning
		return view
	case v.inCycle:
		view.State = model.Leasing
	}
	view.Position = c.groups[v.group].order.Rank(v.r) + 1
	view.Reason = fault.ReasonBehindHead
	if view.Position == 1 {
		view.Reason = fault.ReasonNotTried
		switch {
		case !c.isReady():
			view.Reason = fault.ReasonRegistryNotReady
		case v.outcome != nil:
			view.Reason, view.Message, view.Fitting = v.outcome.Reason, v.outcome.Message, v.outcome.Fitting
		}
	}
	return view
}

// counts counts the workers by state, as the assigner has stored them.
func (v *version) counts() map[string]int32 {
	if len(v.tasks) == 0 {
		return v.r.WorkerCounts
	}
	counts := map[string]int32{}
	for _, chunk := range v.tasks {
		for _, w := range chunk.Workers {
			counts[w.State.String()]++
		}
	}
	return counts
}

// failures says in a sentence how many workers failed, and why the first of
// them did; empty when none has.
func (v *version) failures() string {
	failed := v.counts()[model.WorkerFailed.String()]
	if failed == 0 {
		return ""
	}
	for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
		for _, w := range v.tasks[n].Workers {
			if w.State != model.WorkerFailed {
				continue
			}
			why := string(w.Reason)
			switch {
			case w.LastError != "":
				why = w.LastError
			case w.ExitCode != nil:
				why = fmt.Sprintf("exit code %d", *w.ExitCode)
			}
			again := ""
			if n := v.requeued(); n > 0 {
				again = fmt.Sprintf(", %d queued again", n)
			}
			return fmt.Sprintf("%d of %s failed%s; %s: %s", failed, workers(v.r.Workers.Len()), again, w.ID, why)
		}
	}
	return ""
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// requeued is how many of its workers the assigner gave back to be queued again.
func (v *version) requeued() int {
	n := 0
	for _, workers := range v.spent {
		n += len(workers)
	}
	return n
}

// Filter chooses reservations; what is empty matches all.
type Filter struct {
	Job, Stage string
	State      model.State
}

// List shows what Get shows, in order of their keys, those after a key
// only, at most limit of them. More says that there are others.
func (c *Core) List(filter Filter, after model.Key, limit int) (views []View, more bool) {
	for key := range c.keys.From(later(after, model.Key{Job: filter.Job})) {
		if key == after {
			continue
		}
		if filter.Job != "" && key.Job != filter.Job {
			break
		}
		if filter.Stage != "" && key.Stage != filter.Stage {
			continue
		}
		view, _ := c.Get(key)
		if filter.State != model.StateUnset && view.State != filter.State {
			continue
		}
		if len(views) == limit {
			return views, true
		}
		views = append(views, view)
	}
	return views, false
}

// later returns the later of two keys.
func later(a, b model.Key) model.Key {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

// Versions shows every version of a job that there is a record of, those of one
// key in the order that accepted them; those after the key and uid given only,
// at most limit of them. More says that there are others.
func (c *Core) Versions(filter Filter, after model.Key, uid string, limit int) (views []View, more bool) {
	for key := range c.keys.From(later(after, model.Key{Job: filter.Job})) {
		if key.Job != filter.Job {
			break
		}
		versions := c.byKey[key]
		if key == after {
			at := slices.IndexFunc(versions, func(v *version) bool { return v.uid == uid })
			versions = versions[at+1:]
		}
		for _, v := range versions {
			view := c.view(v)
			switch {
			case filter.Stage != "" && key.Stage != filter.Stage, filter.State != model.StateUnset && view.State != filter.State:
				continue
			case len(views) == limit:
				return views, true
			}
			views = append(views, view)
		}
	}
	return views, false
}

// Stages shows the stages of a job in order, with the highest number that each
// of their worker indexes has had; all of them, or the one that is named.
func (c *Core) Stages(job, stage string) []model.Stage {
	var stages []model.Stage
	for key := range c.stageKeys.From(model.Key{Job: job}) {
		if key.Job != job {
			break
		}
		if stage == "" || stage == key.Stage {
			stages = append(stages, *c.stages[key])
		}
	}
	return stages
}

// PendingGroup is one queue that is not empty.
type PendingGroup struct {
	ID          string
	Constraints constraint.Constraints
	// Reservations and Workers count what waits without a lease, what a cycle in
	// flight holds included.
	Reservations, Workers int
	// Head is tried first; it waits since HeadSince, for Reason.
	Head      model.Key
	HeadSince time.Time
	Reason    fault.Reason
	Message   string
	// Failed are the executors that the head failed on.
	Failed []model.FailedOn
}

// Pending shows the queues, in order of their ids. Before the registry is ready
// it refuses with REGISTRY_NOT_READY: whoever counts demand must not take a
// part of it for all.
func (c *Core) Pending() ([]PendingGroup, error) {
	if !c.isReady() {
		return nil, notReady()
	}
	groups := make([]PendingGroup, 0, len(c.groups))
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[id]
		head := g.order.At(0)
		view := c.view(c.versions[head.UID])
		groups = append(groups, PendingGroup{
			ID: id, Constraints: head.Spec.Constraints,
			Reservations: g.order.Len(), Workers: g.workers,
			Head: head.Key, HeadSince: head.CreatedAt,
			Reason: view.Reason, Message: view.Message, Failed: head.Failed,
		})
	}
	return groups, nil
}
