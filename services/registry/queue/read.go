package queue

import (
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// View is a reservation as it is shown: its record, and what the records of other
// services imply for it.
type View struct {
	Reservation *model.Reservation
	// State is the reservation's derived state: LEASING while a cycle with it is in flight, and
	// for a hold until the registry has read its lease; OFFERING while cells are asked about it; HELD
	// while it has a lease or cells keep executors for it and it waits for a bind; ASSIGNING
	// while it has a lease otherwise and is not ACTIVE.
	State model.State
	// Position is the reservation's place in its queue, 1 for the head; 0 if it is not
	// pending.
	Position int
	Reason   fault.Reason
	Message  string
	// Failure is the reason of the failure after which the workers of a pending version were queued
	// again; empty if they were not, or if they moved. Message begins with Earlier, which has the
	// earlier rounds.
	Failure fault.Reason
	Earlier string
	// Fitting is how many of its workers fitted in the last cycle that tried it.
	Fitting int
	// Counts is the number of its workers by state, once it is dispatched.
	Counts map[string]int32
	// HeldUntil is when its hold expires; zero if it is not held, or never. Rating is the rating
	// of its lease; nil for none.
	HeldUntil time.Time
	Rating    *int32
	// Pools has the answers of the cells that were asked, by ID; nil if none were.
	Pools map[string]model.CellOffer
	// Ends has the workers that have ended and whose version has ended too, by how they ended.
	Ends []model.End
	// FieldResults says to which workers the fields of the latest request apply. RequestedCount
	// or RequestedWorkers has its workers if these are not those of the reservation. BoundTask is
	// set if the task is that of a bind, and the request had another. They are set only in the
	// answers of Get and of upserts; in lists FieldResults is empty.
	FieldResults     []model.FieldResult
	RequestedCount   int32
	RequestedWorkers model.WorkerSet
	BoundTask        bool
}

// Get returns the reservation of a key: of each worker index the newest worker, over all
// versions, with the body of the latest request. See doc.go, Views.
func (c *Core) Get(key model.Key) (View, bool) {
	if len(c.byKey[key]) == 0 {
		return View{}, false
	}
	return c.latestView(c.viewOf(c.reservationOf(key)), 0, false), true
}

// GetUID returns the version of a UID.
func (c *Core) GetUID(uid string) (View, bool) {
	v := c.versions[uid]
	if v == nil || v.r == nil {
		return View{}, false
	}
	return c.view(v), true
}

// durableView returns a version as it is stored. It shows neither the result of later
// effects nor the place in the queue, which depends on them.
func (c *Core) durableView(ref model.Ref) View {
	t := c.tentative[ref]
	if t == nil {
		return c.view(c.versions[ref.ID])
	}
	r := t.durable.(*model.Reservation)
	return View{Reservation: r, State: r.State, Reason: r.Reason, Message: r.Message, Counts: r.WorkerCounts}
}

// durableReservation returns the reservation that a version represents, as it is stored. It returns only the
// version if another one represents the reservation since.
func (c *Core) durableReservation(ref model.Ref) View {
	var all []*version
	for _, v := range c.byKey[ref.Key] {
		if t := c.tentative[v.r.Ref()]; t != nil {
			stored, ok := t.durable.(*model.Reservation)
			if !ok {
				continue // a later effect creates it
			}
			before := *v
			before.r, v = stored, &before
		}
		all = append(all, v)
	}
	if len(all) > 0 {
		if r := c.reservationIn(all); r.shown.uid == ref.ID {
			return c.viewOf(r)
		}
	}
	return c.durableView(ref)
}

func (c *Core) view(v *version) View {
	view := View{Reservation: v.r, State: v.r.State, Reason: v.r.Reason, Message: v.r.Message, Counts: v.counts(),
		Rating: v.rating(), Pools: c.pools(v)}
	switch {
	case !v.is(model.Queued):
		return view
	case v.quarantined:
		view.Reason = fault.ReasonPoison
		return view
	case v.dispatched(): // a later effect records ACTIVE
		view.State, view.Reason = model.Active, ""
		return view
	case v.isDelayed():
		view.Reason, view.Message = v.delay()
		return view
	case v.isHeld() && v.granted != 0 && v.r.Chosen == "":
		view.State = model.Leasing // only the lease says its rating and until when it is held
		return view
	case v.isHeld():
		view.State, view.HeldUntil = model.Held, v.heldUntil()
		return view
	case !v.isPending(), v.r.Chosen != "":
		view.State = model.Assigning
		return view
	case v.isOffering():
		view.State = model.Offering
	case v.entry.InCycle:
		view.State = model.Leasing
	}
	view.Position = v.entry.Position()
	earlier, outcome := view.Message, v.entry.Outcome
	switch {
	case view.Position > 1:
		view.Reason = fault.ReasonBehindHead
	case !c.isReady():
		view.Reason = fault.ReasonRegistryNotReady
	case outcome == nil:
		view.Reason = fault.ReasonNotTried
	default:
		view.Reason, view.Message, view.Fitting = outcome.Reason, outcome.Message, outcome.Fitting
	}
	if v.r.Round > 0 && view.Reason != fault.ReasonRegistryNotReady {
		view.requeued(v, earlier, outcome)
	}
	return view
}

// requeued adds to the view of a pending version why its workers were queued again. If they failed, and the
// version only waits for its turn or for capacity, the failure is the reason. The message has both.
func (view *View) requeued(v *version, earlier string, outcome *model.Outcome) {
	waits := ""
	if outcome != nil && view.Position <= 1 {
		waits = outcome.Message
	}
	view.Failure = v.r.FailedFor
	switch view.Reason {
	case fault.ReasonBehindHead, fault.ReasonNotTried, fault.ReasonInsufficientCapacity:
		if view.Failure == "" {
			break
		}
		if waits != "" {
			waits = string(outcome.Reason) + ": " + waits
		}
		view.Reason = view.Failure
	}
	view.Message = joinTexts(earlier, waits)
	view.Earlier = earlier
}

// counts returns the number of workers by state, as the assigner has stored them.
func (v *version) counts() map[string]int32 {
	if len(v.tasks) == 0 {
		return v.r.WorkerCounts
	}
	t := tally{states: v.workers.states}
	return t.words()
}

// failures describes how many workers failed, and why the first of them in time did; empty if
// none did.
func (v *version) failures() string {
	first, failed := v.firstFailure()
	if len(failed) == 0 {
		return ""
	}
	requeued := 0
	for _, workers := range v.returned {
		requeued += len(workers)
	}
	how := "failed"
	if requeued > 0 {
		how += fmt.Sprintf(", %d queued again", requeued)
	}
	return failuresText(len(failed), v.r.Workers.Len(), how, model.WorkerSetOf(failed), failureOf(first))
}

// firstFailure returns the worker of the version that failed first, and all that failed.
func (v *version) firstFailure() (first model.TaskWorker, failed []model.WorkerID) {
	for _, chunk := range v.failed {
		for _, w := range chunk {
			if w.State != model.WorkerFailed {
				continue
			}
			if failed = append(failed, w.ID); len(failed) == 1 || model.InTime(*w, first) < 0 {
				first = *w
			}
		}
	}
	return first, failed
}

func countWorkers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// Filter selects reservations. An empty field matches every reservation.
type Filter struct {
	// Name requires Job and Stage.
	Job, Stage, Name string
	State            model.State
}

// List returns the reservations that Get returns for the keys after a key, in order of
// the keys and at most limit of them. It reports whether there are more. A reservation is in
// its state and in the states of its versions that have not ended.
func (c *Core) List(filter Filter, after model.Key, limit int) (views []View, more bool) {
	views, more = c.list(filter, after, limit, func(key model.Key, yield func(View, bool) bool) bool {
		if key == after {
			return true
		}
		r := c.reservationOf(key)
		view := c.viewOf(r)
		return yield(view, c.isIn(r, view, filter.State))
	})
	for i, view := range views {
		views[i] = c.latestView(view, 0, true)
	}
	return views, more
}

// Versions returns every version of a job that has a record, in order of the keys. The
// versions of one key are in the order in which they were accepted. It begins after a key
// and UID, returns at most limit versions, and reports whether there are more.
func (c *Core) Versions(filter Filter, after model.Key, uid string, limit int) (views []View, more bool) {
	return c.list(filter, after, limit, func(key model.Key, yield func(View, bool) bool) bool {
		versions := c.byKey[key]
		if key == after {
			versions = versions[slices.IndexFunc(versions, func(v *version) bool { return v.uid == uid })+1:]
		}
		for _, v := range versions {
			if view := c.view(v); !yield(view, view.State == filter.State) {
				return false
			}
		}
		return true
	})
}

// list lists what each yields for a key: views, and whether they are in the state of the filter.
func (c *Core) list(filter Filter, from model.Key, limit int,
	each func(key model.Key, yield func(view View, isIn bool) bool) bool) (views []View, more bool) {
	of := model.Key{Job: filter.Job}
	if filter.Job != "" {
		of.Stage, of.Name = filter.Stage, filter.Name
	}
	add := func(view View, isIn bool) bool {
		switch {
		case filter.State != model.StateUnset && !isIn:
			return true
		case len(views) == limit:
			more = true
			return false
		}
		views = append(views, view)
		return true
	}
	for key := range within(&c.keys, of, from) {
		if filter.Stage != "" && key.Stage != filter.Stage {
			continue
		}
		if !each(key, add) {
			break
		}
	}
	return views, more
}

// Queue returns the reservations that are pending in a group, in the order in which they are
// tried. It begins after the place of a reservation, which may have left the group, or with the
// head if last is nil. It returns at most limit reservations, only those in a state if one is
// given, and reports whether there are more.
func (c *Core) Queue(group string, state model.State, last *model.Reservation, limit int) (views []View, more bool) {
	for r := range c.scheduler.After(group, last) {
		view := c.view(c.versions[r.UID])
		switch {
		case state != model.StateUnset && view.State != state:
			continue
		case len(views) == limit:
			return views, true
		}
		views = append(views, view)
	}
	return views, false
}

// Stages returns the stages of a job in order, or only the stage with a name. Each has
// the highest number that each of its worker indexes has had.
func (c *Core) Stages(job, stage string) []model.Stage {
	var stages []model.Stage
	for key := range within(&c.stageKeys, model.Key{Job: job, Stage: stage}, model.Key{}) {
		stages = append(stages, *c.stages[key])
	}
	return stages
}

// PendingGroup is one non-empty queue.
type PendingGroup struct {
	ID          string
	Constraints constraint.Constraints
	// Reservations and Workers count what is pending, including the candidates of a cycle in
	// flight.
	Reservations, Workers int
	// Head is the reservation that is tried first. It has waited since HeadSince, for
	// Reason.
	Head      model.Key
	HeadSince time.Time
	Reason    fault.Reason
	Message   string
	// Failed lists the executors on which workers of the head failed.
	Failed []model.FailedOn
}

// Pending returns at most limit queues with IDs greater than after, in order of their IDs, and
// reports whether there are more. Before the registry is ready, it returns REGISTRY_NOT_READY:
// a caller must not take a part of the demand for all of it.
func (c *Core) Pending(after string, limit int) (groups []PendingGroup, more bool, err error) {
	if !c.isReady() {
		return nil, false, notReady()
	}
	for g := range c.scheduler.GroupsAfter(after) {
		if len(groups) == limit {
			return groups, true, nil
		}
		head, _ := g.Head()
		view := c.view(c.versions[head.UID])
		groups = append(groups, PendingGroup{
			ID: g.ID, Constraints: head.Spec.Constraints,
			Reservations: g.Len(), Workers: g.Workers,
			Head: head.Key, HeadSince: head.QueuedAt(),
			Reason: view.Reason, Message: view.Message, Failed: head.Failed,
		})
	}
	return groups, false, nil
}

// Depth returns what is pending in all queues, and whether the registry is ready. On a replica
// that does not lead, nothing puts a reservation into its queue when its NotBefore passes, so
// Depth counts it.
func (c *Core) Depth(now time.Time) (depth scheduler.Depth, ready bool) {
	depth = c.scheduler.Depth()
	fresh := map[string]bool{}
	for d := range c.clocks.All() {
		if d.at.After(now) {
			break
		}
		v := c.versions[d.uid]
		if !v.isDelayed() || v.demandAt(now) != model.DemandNow || v.quarantined {
			continue
		}
		depth.Reservations++
		depth.Workers += v.r.Workers.Len()
		if id := v.r.Group(); !c.scheduler.Has(id) && !fresh[id] {
			fresh[id] = true
			depth.Groups++
		}
	}
	return depth, c.isReady()
}
