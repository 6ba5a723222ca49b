package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// gap is a version that may have missing workers.
type gap struct {
	key model.Key
	uid string
}

func (g gap) compare(o gap) int { return cmp.Or(g.key.Compare(o.key), strings.Compare(g.uid, o.uid)) }

// endedForGood reports whether a worker has ended in a way that nobody requested, and Berth does
// not queue it again.
func endedForGood(w *model.TaskWorker) bool {
	switch {
	case w.Requeue:
		return false
	case w.State == model.WorkerEvicted:
		return w.Moved() || w.Reason == fault.ReasonRoundsExhausted
	}
	return w.State == model.WorkerFailed || w.State == model.WorkerLost
}

// mayMiss reports whether the version may have missing workers. It is cheap, because it is
// evaluated with every change of the version.
func (v *version) mayMiss() bool {
	return v.r != nil && (len(v.r.Missing) > 0 || v.workers.missing > 0 && v.is(model.Active) || v.expiredRequeue())
}

// expiredRequeue reports whether an older Berth version expired the version after its queueTimeout,
// although its worker was queued again.
func (v *version) expiredRequeue() bool {
	return v.r.Origin == model.OriginRequeue && v.is(model.Expired)
}

// missing returns the workers of the version, and of requeues of its workers, that have ended for
// good, without those that were cancelled or at the end of their lifetime. since is when the first
// of them ended, or a later change of the version. A gang that was withdrawn is queued again as a
// whole.
func (v *version) missing() (workers model.WorkerSet, since time.Time) {
	switch {
	case v.expiredRequeue():
		return v.r.Workers, v.r.EndedAt
	case len(v.r.Missing) > 0:
		since = v.r.UpdatedAt
	}
	if v.workers.missing == 0 || v.header != nil && v.header.Withdrawn {
		return v.r.Missing, since
	}
	var list []model.WorkerID
	for w := range v.taskWorkers() {
		if endedForGood(&w) && !w.Outlived(v.r.Spec.Lifetime) && !v.r.Unwanted.Has(w.ID) {
			list = append(list, w.ID)
			if at := w.Since.Time(); since.IsZero() || at.Before(since) {
				since = at
			}
		}
	}
	return v.r.Missing.Raise(model.WorkerSetOf(list)), since
}

// conclude ends an ACTIVE version whose workers have ended. Its record says which of them are missing.
func (c *Core) conclude(v *version, state model.State, kind model.EventKind, reason fault.Reason, message string) {
	ended := c.end(v.r, state, reason, message)
	ended.Missing, _ = v.missing()
	c.put(ended, kind)
}

// incompleteFindings returns a finding for each gang that Berth does not make whole again, the first
// in order of their keys. It omits the reservations in reported, which have a finding for the same
// cause.
func (c *Core) incompleteFindings(reported map[string]bool) []Finding {
	var findings []Finding
	var last model.Key
	for g := range c.gaps.All() {
		if g.key == last || reported[g.key.String()] {
			continue
		}
		last = g.key
		if f, found := c.incompleteFinding(g.key); found {
			if findings = append(findings, f); len(findings) == maxFindings {
				break
			}
		}
	}
	return findings
}

// incompleteFinding returns a finding if some workers of a gang live, and others are missing, in any
// version of the reservation. A worker is not missing if its index was requested again, under this
// name or another one, or if a lower target size drops it. A request that ended before it had
// executors does not count.
func (c *Core) incompleteFinding(key model.Key) (Finding, bool) {
	l := c.living(key)
	if l.newest == nil || l.newest.r.Spec.IsBestEffort(c.config.BestEffort) {
		return Finding{}, false
	}
	alive, begins := 0, map[string]bool{}
	for _, v := range l.all() {
		alive += v.r.Workers.Len() - int(v.workers.ended())
		begins[c.first(v.r)] = true
	}
	stage, newest := c.stage(key), c.newestOfStage(key)
	var missing model.WorkerSet
	var since time.Time
	for _, v := range c.byKey[key] {
		if !v.mayMiss() || !begins[c.first(v.r)] {
			continue
		}
		workers, from := v.missing()
		left := model.WorkerSetOf(slices.DeleteFunc(workers.List(), func(workerID model.WorkerID) bool {
			number, _ := newest.Number(workerID.Index)
			return number > workerID.Number || targetDrops(stage, v.r, workerID.Index)
		}))
		missing = missing.Raise(left)
		if len(left) > 0 && (since.IsZero() || from.Before(since)) {
			since = from
		}
	}
	if alive == 0 || len(missing) == 0 {
		return Finding{}, false
	}
	return Finding{
		Kind: FindingIncompleteGang, Object: key.String(), Since: since,
		Message: fmt.Sprintf("%s ended and not queued again: %s; %s not ended", countWorkers(missing.Len()), namesOf(missing),
			countWorkers(alive)),
		Action: "Berth does not queue these workers again; the job service requests their indexes again, or cancels " +
			"the reservation",
	}, true
}

// closesGap reports whether the workers of an ended version are why workers of a living reservation of
// another name are not missing.
func (c *Core) closesGap(ended *version) bool {
	if !c.isMember(ended) {
		return false
	}
	stage := stageKey(ended.r.Key)
	for g := range c.gaps.From(gap{key: stage}) {
		if stageKey(g.key) != stage {
			return false
		}
		if g.key == ended.r.Key || c.living(g.key).newest == nil {
			continue
		}
		missing, _ := c.versions[g.uid].missing()
		for workerID := range missing.All() {
			if number, _ := ended.r.Workers.Number(workerID.Index); number > workerID.Number {
				return true
			}
		}
	}
	return false
}

// newestOfStage returns the newest worker of each index, over the reservations of all names of a stage
// that have workers.
func (c *Core) newestOfStage(key model.Key) model.WorkerSet {
	var sets []model.WorkerSet
	for name := range within(&c.keys, stageKey(key), model.Key{}) {
		if r := c.reservationOf(name); c.isMember(r.members[0]) {
			sets = append(sets, r.newest)
		}
	}
	return unionOf(sets)
}

// maxNamed bounds how many workers a finding names.
const maxNamed = 10

// namesOf returns the names of the first maxNamed workers, and how many there are besides.
func namesOf(workers model.WorkerSet) string {
	var names []string
	for workerID := range workers.All() {
		if names = append(names, workerID.String()); len(names) == maxNamed {
			break
		}
	}
	text := strings.Join(names, ", ")
	if more := workers.Len() - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
