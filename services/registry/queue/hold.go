package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// holds has the versions that are held, and where those are that are or may become held. A
// lease may have 50,000 workers, so a change costs only what it changes.
type holds struct {
	held map[string]*version // by UID
	// heldOn has the number of workers of each leased version that awaits a bind, by the ordinal
	// of their executor.
	heldOn map[uint32]map[*version]int
	// lost has the executors that are LOST or draining: how a message calls them, by ordinal.
	lost map[uint32]string
	// programs has the ordinals of the executors that start no task without a command.
	programs map[uint32]bool
}

// isHeld reports whether the version has its executors, or cells keep some for it, and it waits for
// a bind. It stays held while it waits for its lease on the cell that was chosen for it.
func (v *version) isHeld() bool {
	return v.awaitsBind() && v.header == nil && (v.hasLease() || v.heldByCells() || v.r.Chosen != "")
}

// heldSince returns the time from which the version is held; zero while it is not known.
func (v *version) heldSince() time.Time {
	if v.offer != nil {
		return v.offer.DecidedAt
	}
	return v.grantedAt()
}

// grantedAt returns the time of the version's lease; zero while the view does not show it.
func (v *version) grantedAt() time.Time {
	for _, chunk := range v.lease { // all chunks are granted at once
		return chunk.GrantedAt
	}
	return time.Time{}
}

// rating returns the rating of the version's lease, or while cells keep executors for it the
// highest of their ratings; nil if it has none.
func (v *version) rating() (best *int32) {
	for _, chunk := range v.lease { // all chunks have the same
		return chunk.Rating
	}
	if v.heldByCells() {
		for i := range v.offer.Cells {
			if cell := &v.offer.Cells[i]; cell.State == model.CellAccepted && (best == nil || cell.Rating > *best) {
				best = &cell.Rating
			}
		}
	}
	return best
}

// heldUntil returns the time at which the hold of a version expires; zero if the version is
// not held or its hold does not expire.
func (v *version) heldUntil() time.Time {
	since := v.heldSince()
	if !v.isHeld() || since.IsZero() || v.r.Spec.HoldLimit() == 0 {
		return time.Time{}
	}
	return since.Add(v.r.Spec.HoldLimit())
}

// awaitsBind reports whether the version is held once it has its executors.
func (v *version) awaitsBind() bool { return v.is(model.Queued) && v.r.Holds() }

// isBound reports whether the version was bound and the assigner does not have it yet, or not
// any more.
func (v *version) isBound() bool { return v.is(model.Queued) && !v.r.BoundAt.IsZero() }

// keepsBind reports whether a bound version starts on the executors that it held, with the task of its bind.
// Otherwise its workers are queued again: in a round, after a refused dispatch, or because others were
// cancelled.
func (v *version) keepsBind() bool { return v.isBound() && v.r.Round == 0 && v.hasLease() }

// isRound reports whether all workers of a gang wait in the version to start again.
func (v *version) isRound() bool {
	return v.is(model.Queued) && !v.started() && v.r.Origin == model.OriginRequested && v.r.Round > 0
}

// moveHolds adds the workers of a chunk of the version's lease to heldOn, or removes them if
// sign is -1.
func (h *holds) moveHolds(v *version, chunk *model.LeaseChunk, sign int) {
	if chunk == nil {
		return
	}
	for _, p := range chunk.Workers {
		on := h.heldOn[p.Ordinal]
		if on == nil {
			on = map[*version]int{}
			h.heldOn[p.Ordinal] = on
		}
		if on[v] += sign; on[v] == 0 {
			if delete(on, v); len(on) == 0 {
				delete(h.heldOn, p.Ordinal)
			}
		}
		if h.lost[p.Ordinal] != "" {
			v.lostWorkers += sign
		}
	}
}

// moveAllHolds adds or removes all workers of the version's lease.
func (h *holds) moveAllHolds(v *version, sign int) {
	for _, chunk := range v.lease {
		h.moveHolds(v, chunk, sign)
	}
}

// setUsable records whether an executor may have holds; how says why not. It marks the versions
// that are held on the executor.
func (c *Core) setUsable(ordinal uint32, how string) {
	before := c.lost[ordinal]
	if before == how {
		return
	}
	sign := 0
	switch {
	case before == "":
		sign = 1
	case how == "":
		sign = -1
	}
	if c.lost[ordinal] = how; how == "" {
		delete(c.lost, ordinal)
	}
	for v, workers := range c.heldOn[ordinal] {
		v.lostWorkers += sign * workers
		c.reindexUnsettled(v)
	}
}

// isLosing reports whether the version is held on an executor that is LOST or draining, or relies on
// cells that have withdrawn.
func (c *Core) isLosing(v *version) bool { return v.lostWorkers > 0 && v.isHeld() || c.withdrew(v) }

// lostExecutor says which executor of the version is LOST or draining.
func (c *Core) lostExecutor(v *version) string {
	for _, number := range slices.Sorted(maps.Keys(v.lease)) {
		for _, p := range v.lease[number].Workers {
			if how := c.lost[p.Ordinal]; how != "" {
				return fmt.Sprintf("executor %s is %s", c.names[p.Ordinal], how)
			}
		}
	}
	return ""
}

// withdraw queues a held version that lost an executor or its cells again, in its place and under a new
// UID. The lease then belongs to an ended version, so executor-state deletes it as orphaned.
// It has no queueTimeout any more.
func (c *Core) withdraw(v *version) {
	next := c.newVersion(v.r)
	next.PlaceEpoch, next.CreatedAt, next.Granted = c.placeEpoch(v.r), c.now, true
	var effect model.Effect
	c.finish(&effect, v, model.Replaced, model.EventReservationWithdrawn, fault.ReasonHoldWithdrawn,
		c.withdrawal(v))
	effect.Puts = append(effect.Puts, next)
	effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	c.decide(effect)
}

// bind starts the workers of the held version of a key. From then on the version is one with a
// lease to dispatch, like any other.
func (c *Core) bind(token uint64, b request.Bind) error {
	mark := model.RequestMark{ID: b.RequestID, Change: model.Bound, Call: request.Fingerprint(b)}
	repeated, err := c.repeatBind(token, b.Key, mark)
	if repeated || err != nil {
		return err
	}
	l := c.living(b.Key)
	at := slices.IndexFunc(l.queued, (*version).isHeld)
	hasEpoch := func(v *version) bool { return b.IfEpoch == 0 || v.r.Epoch == b.IfEpoch }
	switch {
	case len(c.byKey[b.Key]) == 0:
		return fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s", b.Key)
	case at < 0 && slices.ContainsFunc(l.all(), hasEpoch) || at < 0 && b.IfEpoch == 0:
		return notHeld(b.Key, c.viewOf(c.reservationOf(b.Key)).State.String())
	case at < 0 || !hasEpoch(l.queued[at]):
		return epochMismatch(b.Key, b.IfEpoch)
	}
	v := l.queued[at]
	if v.heldSince().IsZero() && v.r.Spec.HoldLimit() > 0 {
		// Only its lease says since when it is held, so its hold may be over.
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the registry does not see the lease of %s yet", b.Key)
	}
	for _, end := range []time.Time{v.heldUntil(), v.r.ExpiresAt()} {
		if !end.IsZero() && !end.After(c.now) {
			return notHeld(b.Key, "expired since "+end.UTC().Format(time.RFC3339Nano))
		}
	}
	if c.isLosing(v) {
		return notHeld(b.Key, "withdrawn: "+c.withdrawal(v))
	}
	if b.Task == nil && !b.KeepHeld && v.r.Spec.Task.IsEmpty() {
		// A simulated executor runs an empty task, and a bind for it can say so.
		return fault.BadField(fault.ReasonRequired, "task", "must be set, because %s was requested without a task", b.Key)
	}
	next := c.edit(v.r)
	if next.Chosen, err = c.choose(v, b.Pool); err != nil {
		return err
	}
	if b.KeepHeld {
		remember(next, mark)
		c.decide(model.Effect{Puts: []model.Record{next}, Expect: []model.Expect{noTask(v.uid)}})
		c.replyBound(token, next.Ref())
		return nil
	}
	next.BoundAt, next.RequestedTask = c.now, request.TaskFingerprint(next.Spec.Task)
	if b.Task != nil {
		if latest := next.Latest; latest != nil && request.TaskFingerprint(latest.Spec.Task) == next.RequestedTask {
			bound := *latest
			bound.Spec.Task = *b.Task
			next.Latest = &bound
		}
		next.Spec.Task = *b.Task
		if err := c.admitTask(v, next); err != nil {
			return err
		}
	}
	if err := c.checkStarts(v, next.Spec.Task); err != nil {
		return err
	}
	remember(next, mark)
	c.put(next, model.EventReservationBound, noTask(v.uid))
	c.replyBound(token, next.Ref())
	return nil
}

// admitTask rejects a bind whose task is too large, or takes more bytes than the limits allow.
func (c *Core) admitTask(v *version, next *model.Reservation) error {
	stage, job := c.stage(v.r.Key), v.r.Key.Job
	more := int64(request.Size(next)) - v.stored.bytes
	return cmp.Or(request.CheckSize(next.Spec, next.Workers, &stage),
		c.checkTenantBytes(c.tenants.Of(job), more, false),
		c.checkLimits(job, usage{bytes: more}, c.config.MaxStoredPerJob, c.config.MaxStored))
}

// checkStarts rejects the task of a bind if an executor of the hold cannot start it: simulated executors
// start a task without a command, and those that start programs do not. The executors of a cell are known
// only there.
func (c *Core) checkStarts(v *version, task model.Task) error {
	if task.Command != "" || v.r.Spec.Constraints.Cells {
		return nil
	}
	if len(v.lease) == 0 {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the registry does not see the lease of %s yet", v.r.Key)
	}
	for _, number := range slices.Sorted(maps.Keys(v.lease)) {
		for _, p := range v.lease[number].Workers {
			if c.programs[p.Ordinal] {
				return fault.BadField(fault.ReasonRequired, "task.command",
					"must be set, because executor %s starts only programs", c.names[p.Ordinal])
			}
		}
	}
	return nil
}

func notHeld(key model.Key, what string) error {
	return fault.New(fault.Conflict, fault.ReasonNotHeld, "%s is %s; only a HELD reservation can be bound", key, what)
}

// repeatBind replies to a bind if it repeats an earlier one, and reports whether it does. It
// returns an error if the ID was used for another call.
func (c *Core) repeatBind(token uint64, key model.Key, mark model.RequestMark) (repeated bool, err error) {
	v, known := c.remembered(key, mark.ID)
	idle, isIdle := c.idle(key, mark.ID)
	switch {
	case v != nil && known.Call != mark.Call, isIdle && idle.Call != mark.Call:
		return false, request.OtherUnderID(mark.ID)
	case v == nil:
		return false, nil
	}
	c.replyBound(token, v.r.Ref())
	return true, nil
}

func (c *Core) replyBound(token uint64, ref model.Ref) {
	c.reply(token, func() any { return Upserted{View: c.latestView(c.durableView(ref), 0, false), Change: model.Bound} })
}

// holdFindings returns a finding for each version that has been held for a day, the oldest
// first.
func (c *Core) holdFindings(now time.Time) []Finding {
	var findings []Finding
	for _, v := range c.held {
		if since := v.heldSince(); !since.IsZero() && now.Sub(since) >= model.DefaultHoldTimeout {
			findings = append(findings, Finding{
				Kind: FindingHoldOld, Object: v.r.Key.String(), Since: since,
				Message: fmt.Sprintf("%s held on executors that nobody else can use", countWorkers(v.r.Workers.Len())),
				Action:  "the owner of the job binds or cancels the reservation",
			})
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object, b.Object))
	})
	return findings[:min(len(findings), maxFindings)]
}
