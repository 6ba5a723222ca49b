package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// restarts reports whether the assigner has withdrawn the version because its gang restarts.
func (v *version) restarts() bool {
	return v.is(model.Active) && v.header != nil && v.header.Restarts()
}

// delaysRound reports whether the next round of a gang that restarts waits for the version: its
// workers may run together with those of the next round. So may a worker that is queued again and has a
// lease: the assigner withdraws it once it has its task.
func (v *version) delaysRound() bool {
	if v.r == nil || v.r.Spec.OnWorkerFailure != model.OnFailedRestart {
		return false
	}
	awaitsTask := v.r.Origin == model.OriginRequeue && v.is(model.Queued) && (v.accepted || v.hasLease())
	return awaitsTask || v.is(model.Cancelling) || v.started() && !(v.restarts() && v.header.Ended && v.leaseOver())
}

// roundEnded reports whether the next round of a gang that restarts may begin.
func (c *Core) roundEnded(key model.Key) bool {
	return !slices.ContainsFunc(c.byKey[key], (*version).delaysRound)
}

// reindexGang must be called when a version changes that another version of its reservation waits for:
// one that begins or ceases to delay the next round, or may have a worker with which the reservation
// completes. The order in which a view is read does not matter then.
func (c *Core) reindexGang(key model.Key) {
	for _, o := range c.byKey[key] {
		c.reindexUnsettled(o)
	}
}

// ending is the end of a reservation that its workers have decided; zero for none.
type ending struct {
	reason  fault.Reason
	message string
	at      time.Time
}

// firstEnding returns the end of a reservation that the workers of its versions have decided first in time,
// and the version whose workers did. Several may have decided before a leader saw it. v has such an end.
func (c *Core) firstEnding(v *version) (by *version, first ending) {
	by, first = v, c.endingOf(v)
	for _, o := range c.byKey[v.r.Key] {
		if o == v || !o.started() || c.first(o.r) != c.first(v.r) {
			continue
		}
		if how := c.endingOf(o); how != (ending{}) && how.at.Before(first.at) {
			by, first = o, how
		}
	}
	return by, first
}

// endingOf returns how the workers of a started version end its reservation. Of a worker whose failure
// does that, and workers whose end does, the first in time count: often the end of one makes others fail.
func (c *Core) endingOf(v *version) ending {
	if v.r.Spec.OnWorkerFailure == model.OnFailedNotify && len(v.r.Spec.CompletesWith) == 0 {
		return ending{}
	}
	fatal := v.fatal()
	completed, failed, at := c.completedWith(v)
	switch {
	case completed && (fatal == nil || !at.After(fatal.Since.Time())):
		if !failed.At.IsZero() {
			return ending{fault.ReasonGangFailed, failed.ID.String() + ": " + failed.Text, at}
		}
		return ending{fault.ReasonCompletesWith, "the workers of completesWith have completed", at}
	case fatal != nil:
		message := c.failure(*fatal)
		if v.r.Round > 0 {
			message = withEarlier(v.r, roundText(v.r.Failures+1, message))
		}
		return ending{fault.ReasonGangFailed, message, fatal.Since.Time()}
	}
	return ending{}
}

// fatal returns the worker of a started version whose failure is that of its reservation; nil for
// none. It is the first worker in time that has FAILED for good. With RESTART_GANG, that ends the
// reservation only if the worker is beyond its limit or its exit code is final: otherwise the assigner
// has withdrawn the version. A worker that could not be started does not count then. A gang that could
// not start together begins another round.
func (v *version) fatal() (first *model.TaskWorker) {
	policy := v.r.Spec.OnWorkerFailure
	if policy == model.OnFailedNotify || v.header != nil && v.header.Withdrawn && !v.header.Restarts() {
		return nil
	}
	for _, chunk := range v.failed {
		for _, w := range chunk {
			counts := policy != model.OnFailedRestart || !w.GaveUp()
			if counts && v.failedForGood(w) && (first == nil || model.InTime(*w, *first) < 0) {
				first = w
			}
		}
	}
	if first != nil && policy == model.OnFailedRestart && first.Reason != fault.ReasonRoundsExhausted &&
		v.r.Spec.RestartsExit(first.ExitCode) {
		return nil
	}
	return first
}

// failedForGood reports whether a worker has FAILED by itself and is not queued again.
func (v *version) failedForGood(w *model.TaskWorker) bool {
	return v.failedByItself(w) && !w.Requeue && !v.r.Requeued.Has(w.ID)
}

// failedByItself reports whether a worker has FAILED, and neither moved nor was stopped with its gang,
// cancelled or at the end of its lifetime.
func (v *version) failedByItself(w *model.TaskWorker) bool {
	return w.State == model.WorkerFailed && !w.Moved() && w.Reason != fault.ReasonGangRestarted &&
		w.Reason != fault.ReasonNotTogether && !v.r.Unwanted.Has(w.ID) && !w.Outlived(v.r.Spec.Lifetime)
}

// failsRound reports whether the failure of a worker is one of its gang, which restarts with it. A worker
// that could not be started is not: the others have lost nothing.
func (v *version) failsRound(w *model.TaskWorker) bool { return v.failedByItself(w) && !w.GaveUp() }

// completedWith reports whether all workers have ended by themselves with which the reservation of
// a started version completes, which of them failed first, and when the last of them ended. The end of a
// worker does not count if it came after the one because of which its gang restarts.
func (c *Core) completedWith(v *version) (completed bool, failed model.Failure, at time.Time) {
	of := v.r.Spec.CompletesWith
	if !slices.ContainsFunc(of, func(index int32) bool { _, has := v.r.Workers.Number(index); return has }) {
		return false, failed, at
	}
	r := c.reservationOf(v.r.Key)
	for _, index := range of {
		number, known := r.newest.Number(index)
		w, ended := r.endOf(model.WorkerID{Index: index, Number: number})
		if !known || !ended {
			return false, model.Failure{}, at
		}
		at = latest(at, w.Since.Time())
		if f := failureOf(w); w.State == model.WorkerFailed && f.Before(failed) {
			failed = f
		}
	}
	for _, o := range r.members {
		if cause := o.restartCause(); o.restarts() && cause != nil && at.After(cause.Since.Time()) {
			return false, model.Failure{}, at
		}
	}
	return true, failed, at
}

// endOf returns the end of a worker of the reservation, and reports whether it has ended by itself and
// is not queued again. Of a version that has ended, only the state is known.
func (r reservation) endOf(id model.WorkerID) (model.TaskWorker, bool) {
	for _, v := range r.members {
		if !v.r.Workers.Has(id) || v.r.Unwanted.Has(id) {
			continue
		}
		for w := range v.taskWorkers() {
			if w.ID == id {
				return w, w.State == model.WorkerCompleted && !w.Requeue || v.failedForGood(&w)
			}
		}
		return endIn(v.ends(nil), id, v.r.EndedAt)
	}
	return endIn(r.pastEnds(), id, time.Time{})
}

// endIn returns the end of a worker in a list, which has ended at a time.
func endIn(ends []model.End, id model.WorkerID, at time.Time) (model.TaskWorker, bool) {
	for _, e := range ends {
		if e.Workers.Has(id) {
			byItself := e.State == model.WorkerCompleted || e.State == model.WorkerFailed
			return model.TaskWorker{ID: id, State: e.State, Since: model.InstantOf(at)}, byItself
		}
	}
	return model.TaskWorker{}, false
}

// restartCause returns the first worker in time of a version that failed its round or moved; nil for none.
func (v *version) restartCause() (first *model.TaskWorker) {
	for w := range v.taskWorkers() {
		if (v.failsRound(&w) || w.Moved()) && (first == nil || model.InTime(w, *first) < 0) {
			first = &w
		}
	}
	return first
}

// endReservation ends all versions of a reservation as its workers have decided. The version whose
// workers have decided it comes last, so that another leader continues. Started versions become
// CANCELLING, and have the result once their workers have ended.
func (c *Core) endReservation(v *version, how ending) {
	var effect model.Effect
	others := slices.DeleteFunc(slices.Clone(c.byKey[v.r.Key]), func(o *version) bool { return o == v || !o.alive() })
	for _, o := range append(others, v) {
		c.makeRoom(&effect)
		if !o.started() {
			c.finish(&effect, o, model.Cancelled, model.EventReservationCancelled, how.reason, how.message)
			continue
		}
		c.stopStarted(&effect, o, how.reason).Message = how.message
	}
	c.decide(effect)
}

// isVerdict reports whether the workers of a reservation have decided how its version has ended.
func (v *version) isVerdict() bool {
	return v.is(model.Failed) && v.r.Reason == fault.ReasonGangFailed ||
		v.is(model.Completed) && v.r.Reason == fault.ReasonCompletesWith
}

// restartGang queues all workers of a gang again, once the workers of all its versions have ended and
// their leases are over. All versions end, and one version has all indexes, each with its next unused
// number: those of versions that were withdrawn, of workers that wait to be queued again, and of workers
// that had ended before. It does not have workers that were cancelled or were live for their lifetime, and
// indexes that the job service has requested again or that a lower target size drops. It has the earliest
// place of them. If the versions have different requests for volumes, there is one version for each.
//
// The new version comes first: what ends the others may take several effects. A version that is left has
// no index that the new version does not have, so another leader replaces it.
func (c *Core) restartGang(v *version) {
	round, requeues := c.roundOf(v.r.Key)
	base := representative(round)
	left, wanted := c.successors(base, round, requeues)
	switch reason := base.header.Message; {
	case !wanted:
		c.endRound(model.Effect{}, round, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
		return
	case len(left) == 0:
		c.endRound(model.Effect{}, round, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, reason)
		return
	}
	for _, s := range left {
		if s.id.Number > model.MaxNumber {
			c.endReservation(v, ending{reason: fault.ReasonGangFailed, message: noNumberLeft(s.id.Index, model.MaxNumber)})
			return
		}
	}
	lost := lostIn(round...)
	outcome := countRound(round, lost != nil)
	text := movedText(base.header.Message)
	switch first := outcome.first; {
	case lost != nil:
		text = movedText(c.failure(*lost))
	case first != nil && outcome.failures > restartLimit(round): // an executor was absent, and is not LOST
		c.endReservation(v, ending{reason: fault.ReasonGangFailed,
			message: withEarlier(base.r, roundText(outcome.failures, c.failure(*first)))})
		return
	case first != nil:
		text = roundText(outcome.failures, c.failure(*first))
	}
	var ended model.Effect
	for _, o := range requeues {
		c.makeRoom(&ended)
		c.finish(&ended, o, model.Replaced, model.EventReservationReplaced, fault.ReasonGangRestarted, base.header.Message)
	}
	if len(requeues) > 0 {
		c.decide(ended)
	}
	earliest := slices.MinFunc(round, func(a, b *version) int {
		return c.scheduler.Compare(c.beforeRefusal(c.placedBy(a.r)), c.beforeRefusal(c.placedBy(b.r)))
	})
	var begun model.Effect
	continued := slices.Concat(round, requeues)
	for i, gang := range byBase(left) {
		next := c.beginRound(gang, continued, outcome, text)
		next.Place, next.PlaceEpoch = c.placedBy(earliest.r).Place, c.orderedEpoch(earliest.r)
		if i > 0 { // a place is unique
			next.Place = c.newPlace()
		}
		if !request.SameConstraints(next.Spec.Constraints, gang[0].base.r.Spec.Constraints) {
			next.Place, next.PlaceEpoch = c.newPlace(), 0
		}
		begun.Puts = append(begun.Puts, next)
		begun.Events = append(begun.Events, c.event(model.EventReservationRequeued, next))
	}
	begun.Puts = append(begun.Puts, c.withNumbers(base.r.Key, model.WorkerSetOf(idsOf(left))))
	c.endRound(begun, round, model.Replaced, model.EventReservationReplaced, fault.ReasonGangRestarted,
		base.header.Message)
}

// beginRound returns the version that begins the next round with some workers. It continues the versions
// that had them, and ends a lifetime from CREATED when the first of these would have ended it.
func (c *Core) beginRound(workers []successor, round []*version, outcome outcome, text string) *model.Reservation {
	base := workers[0].base
	next := c.nextVersion(base.r, model.WorkerSetOf(idsOf(workers)), nil, "")
	next.Origin, next.Parent, next.Reason = model.OriginRequested, base.uid, fault.ReasonGangRestarted
	next.Round, next.Failures, next.NotBefore = outcome.round, outcome.failures, outcome.notBefore
	next.Earlier, next.EarlierOf, next.Continues = nil, earlierOf(workers), continuedEpochs(round)
	for _, o := range round {
		if end := o.r.LifetimeEnd; !end.IsZero() && !next.LifetimeEnd.IsZero() && end.Before(next.LifetimeEnd) {
			next.LifetimeEnd = end
		}
	}
	if outcome.first != nil {
		next.FailedFor = failedFor(*outcome.first)
	}
	next.Message = withEarlier(base.r, text)
	takeRequest(next)
	if next.Failures == 0 {
		next.NotBefore = time.Time{}
	}
	return next
}

// continuedEpochs returns the epochs of the versions that a round continues. A version that the round ends in
// the transaction that creates it has none, and no job service knows it.
func continuedEpochs(round []*version) (epochs []int64) {
	for _, o := range round {
		epochs = append(epochs, o.r.Continues...)
		if o.r.Epoch > 0 {
			epochs = append(epochs, o.r.Epoch)
		}
	}
	slices.Sort(epochs)
	epochs = slices.Compact(epochs)
	if over := len(epochs) - model.MaxContinues; over > 0 { // a job service knows those that it requested
		epochs = slices.Delete(epochs, model.MaxContinues/2, model.MaxContinues/2+over)
	}
	return epochs
}

// byBase returns the workers of a round by their base, because a worker keeps its volume.
func byBase(left []successor) (gangs [][]successor) {
	for _, s := range left {
		at := slices.IndexFunc(gangs, func(of []successor) bool { return of[0].base == s.base })
		if at < 0 {
			at, gangs = len(gangs), append(gangs, nil)
		}
		gangs[at] = append(gangs[at], s)
	}
	return gangs
}

// endRound ends the versions of a round, with an effect that comes first.
func (c *Core) endRound(effect model.Effect, round []*version, state model.State, kind model.EventKind,
	reason fault.Reason, message string) {
	for _, o := range round {
		c.makeRoom(&effect)
		ended := c.end(o.r, state, reason, message)
		effect.Puts = append(effect.Puts, ended)
		effect.Events = append(effect.Events, c.event(kind, ended))
	}
	c.decide(effect)
}

// roundOf returns the versions of a key that were withdrawn because their gang restarts, and the
// workers of this gang that are queued again and have no executor yet.
func (c *Core) roundOf(key model.Key) (round, requeues []*version) {
	for _, o := range c.byKey[key] {
		switch {
		case o.restarts():
			round = append(round, o)
		case o.is(model.Queued) && o.r.Origin == model.OriginRequeue && !o.started() && !o.accepted && !o.hasLease() &&
			o.r.Spec.OnWorkerFailure == model.OnFailedRestart:
			requeues = append(requeues, o)
		}
	}
	return round, requeues
}

// successor is a worker of the next round of a gang.
type successor struct {
	id model.WorkerID
	// earlier has the numbers that it had before, in ascending order.
	earlier []model.NumberRange
	// base represents the versions of the round with the same request for a volume.
	base *version
}

func idsOf(workers []successor) []model.WorkerID {
	ids := make([]model.WorkerID, len(workers))
	for i, s := range workers {
		ids[i] = s.id
	}
	return ids
}

// successors returns the workers of the next round of a gang, with their next numbers. wanted is
// false if all workers of the gang were cancelled.
func (c *Core) successors(base *version, round, requeues []*version) (left []successor, wanted bool) {
	key := base.r.Key
	r := c.reservationOf(key)
	ours := union(slices.Concat(round, requeues), (*version).toRestart)
	for _, v := range r.members { // those that have ended by themselves
		if (v.is(model.Completed) || v.is(model.Failed)) && v.r.Spec.OnWorkerFailure == model.OnFailedRestart {
			ours = ours.Raise(v.toRestart())
		}
	}
	for _, v := range r.past {
		for _, e := range r.pastOf(v) {
			if !e.Cancelled {
				ours = ours.Raise(e.Workers.Minus(outlivedOf(e, v.r.Missing)))
			}
		}
	}
	// A higher number was requested, or was cancelled: its version counts as long as it is kept, and then
	// the record of another one has it.
	newest := union(slices.DeleteFunc(slices.Clone(c.byKey[key]), func(v *version) bool {
		return v.is(model.Replaced) || c.cameToNothing(v)
	}), func(v *version) model.WorkerSet { return v.r.Workers })
	newest = unionOf(pastSets(r.past, []model.WorkerSet{newest}))
	stage := c.stage(key)
	versions := map[model.WorkerID]*version{} // of a version that replaces another one, the replaced one
	for _, v := range slices.Backward(c.byKey[key]) {
		for workerID := range v.r.Workers.All() {
			versions[workerID] = v
		}
	}
	for workerID := range ours.All() {
		number, _ := newest.Number(workerID.Index)
		if number > workerID.Number || targetDrops(stage, base.r, workerID.Index) {
			continue
		}
		s := successor{id: model.WorkerID{Index: workerID.Index, Number: nextNumber(stage.Numbers, workerID)}, base: base}
		if of := versions[workerID]; of != nil { // else its record is deleted
			s.earlier = c.earlierNumbers(of, workerID)
			if !of.r.Spec.Volume.Equal(base.r.Spec.Volume) {
				alike := slices.DeleteFunc(slices.Clone(round), func(o *version) bool {
					return !o.r.Spec.Volume.Equal(of.r.Spec.Volume)
				})
				s.base = cmp.Or(representative(alike), base)
			}
		}
		s.earlier = withNumber(s.earlier, workerID.Number)
		left = append(left, s)
	}
	return left, len(ours) > 0
}

// toRestart returns the workers of a version that the next round of its gang has: not those that were
// cancelled or were live for their lifetime.
func (v *version) toRestart() model.WorkerSet {
	workers := v.wanted()
	if v.r.State.Terminal() {
		for _, e := range v.ends(nil) {
			workers = workers.Minus(outlivedOf(e, v.r.Missing))
		}
		return workers
	}
	var outlived []model.WorkerID
	for w := range v.taskWorkers() {
		if w.Outlived(v.r.Spec.Lifetime) {
			outlived = append(outlived, w.ID)
		}
	}
	return without(workers, model.WorkerSetOf(outlived))
}

// outlivedOf returns the workers of an end that were live for their lifetime: EVICTED ones that are not
// missing, if they were not cancelled.
func outlivedOf(e model.End, missing model.WorkerSet) model.WorkerSet {
	if e.State != model.WorkerEvicted {
		return nil
	}
	return e.Workers.Minus(missing)
}

// lostIn returns the first worker in time of a round that was lost with its host; nil for none.
func lostIn(round ...*version) (lost *model.TaskWorker) {
	for _, v := range round {
		for w := range v.taskWorkers() {
			if w.LostHost() && (lost == nil || model.InTime(w, *lost) < 0) {
				lost = &w
			}
		}
	}
	return lost
}

// restartLimit returns how many rounds of a gang in a row may fail.
func restartLimit(round []*version) (limit int32) {
	for _, v := range round {
		limit = max(limit, v.r.Spec.RestartLimit())
	}
	return limit
}

// outcome is what a round of a gang means for the next one.
type outcome struct {
	// round is the number of the next round, and failures that of those in a row that failed.
	round, failures int32
	// first is the first worker that failed the round; nil if it did not fail.
	first *model.TaskWorker
	// notBefore is when the next round enters its queue; zero for at once.
	notBefore time.Time
}

// countRound returns the outcome of a round. It failed if a worker failed by itself
// that was started. If only workers moved, it did not. Nor if a worker was LOST: what the others lost with its
// executor may have made them fail long before the executor is LOST. If the worker because of which the round
// ended has run for StableAfter, the failures begin anew.
func countRound(round []*version, lost bool) (next outcome) {
	var last time.Time
	var cause *model.TaskWorker
	for _, v := range round {
		next.round = max(next.round, v.r.Round+1)
		if v.r.Origin != model.OriginRequeue {
			next.failures = max(next.failures, v.r.Failures)
		}
		if w := v.restartCause(); w != nil && (cause == nil || model.InTime(*w, *cause) < 0) {
			cause = w
		}
		for w := range v.taskWorkers() {
			last = latest(last, w.Since.Time())
			if !lost && v.failsRound(&w) && (next.first == nil || model.InTime(w, *next.first) < 0) {
				next.first = &w
			}
		}
	}
	if next.first != nil {
		cause = next.first
	}
	if cause != nil && cause.Stable() {
		next.failures = 0
	}
	if next.first == nil {
		return next
	}
	next.failures++
	if delay := model.RestartDelay(next.failures); delay > 0 {
		next.notBefore = last.Add(delay)
	}
	return next
}

// checkCompletesWith refuses an upsert whose completesWith names an index that the reservation does
// not have.
func checkCompletesWith(u model.Upsert, l living) error {
	for i, index := range u.Spec.CompletesWith {
		requested := index < u.Count ||
			slices.ContainsFunc(u.Workers, func(id model.WorkerID) bool { return id.Index == index })
		has := func(v *version) bool { _, has := v.r.Workers.Number(index); return has }
		if !requested && !slices.ContainsFunc(l.all(), has) {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("completesWith[%d]", i),
				"must be the index of a requested worker, got %d", index)
		}
	}
	return nil
}
