package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// Executors that fail starts. If the starts of three different reservations fail on an
// executor within failureWindow, and no start succeeds there afterwards, matching skips the
// executor for skippedFor. A reservation avoids an executor that failed to start its worker
// (model.AvoidFor), but without this rule a faulty host would fail one reservation after the
// other.
//
// A start has failed if the assigner records the worker as FAILED, and the worker never ran:
// see failedToStart. A start has succeeded if the worker became RUNNING. Workers that are LOST,
// stopped, or ended by themselves say nothing else about starts.
//
// If the agent says that the task is at fault (model.TaskWorker.BadTask), such as a program that
// does not exist, the failure says nothing about the executor and does not count. Nor does a load
// with one of the exit codes by which a shell says the same. A host that lacks a program which
// others have is not skipped either: each reservation avoids it once.
//
// If the process of a worker was started and ended before it was ready, nothing shows whether the
// executor is at fault: a load that exits may be a wrong program or a broken device. Such a failure
// counts only if a worker of an equal request became RUNNING on another executor, later or within
// failureWindow before. So requests that run nowhere never take an executor out of use, however few
// match. If workers of failuresToReport reservations, none of which failed elsewhere, ended in this
// way, the executor is a finding, and matching does not skip it.
//
// Any other failure is one of the executor or its agent. But some of these fit faults of the request
// too: an agent of an older version does not say that a program does not exist. So the spread of the
// failures decides:
//
//   - Three reservations blame the executor. All workers and all versions of a reservation
//     count once. Reservations of one job count separately, because in many fleets one job
//     owns all reservations.
//   - Three executors clear it: if starts of one reservation fail on failuresOfReservation
//     executors, the reservation is at fault, and its failures count on no executor. Its job
//     is not, because then one broken reservation would disable the rule for all others of
//     the job.
//   - At most a quarter of the executors of a SKU are skipped, at least one, and never all.
//     So a fault of all executors, such as a broken registry of images, or of a job of which
//     all reservations are broken, leaves most of the fleet in use. The executors whose skip
//     ends first are skipped; the others stay findings.
//
// All of this is derived from the tasks that the view shows, by the leader and by standbys.
// A failure counts after its task was deleted, so a standby that has followed the view
// continues where the leader stopped. A replica that has started since knows the failures
// that the tasks which still exist show.
const (
	failureWindow = 10 * time.Minute
	skippedFor    = 10 * time.Minute
	// failuresToSkip is how many reservations must fail. failuresOfReservation is on how many
	// executors a reservation must fail to be at fault itself.
	failuresToSkip, failuresOfReservation = 3, 3
	// failuresToReport is how many reservations must fail, if nothing shows that the executor is at
	// fault, until it is a finding.
	failuresToReport = 5
	// failureKept is how long a failure is kept: a skip ends at the latest then.
	failureKept = failureWindow + skippedFor
	// maxFailures bounds the failures that are kept of an executor.
	maxFailures = 8
	// skippedShare is the divisor of a SKU's size that gives the bound of skipped executors.
	skippedShare = 4
)

// startFailure is the latest failure to start a worker of a reservation on an executor.
type startFailure struct {
	key       model.Key
	at        time.Time
	lastError string
	// unanswered is set if the executor has not answered; see silent.go.
	unanswered bool
	// request is the digest of the request, if only a start elsewhere shows that the executor is at
	// fault; otherwise empty.
	request string
}

// failing holds the failed starts on the executor with an ordinal.
type failing struct {
	// failures has the latest failure of each reservation, the latest first.
	failures []startFailure
	// counted is how many of them count, and until is when the skip that they cause ends;
	// zero if they cause none.
	counted int
	until   time.Time
	// review is when the next failure is dropped or the skip ends.
	review time.Time
	// silent is set if the executor does not answer start requests. unproven is set if nothing
	// shows that the executor is at fault: it is only a finding.
	silent, unproven bool
	// among is the set of the SKU's executors that fail starts; nil if this is not one of
	// them. skipped reports whether matching skips the executor.
	among   *failingSKU
	skipped bool
}

// failingGroup is the executors of a SKU that fail starts, of those that do not answer, or of those
// that are only a finding.
type failingGroup struct {
	sku              string
	silent, unproven bool
}

// failingSKU holds the executors of a group, those whose skip ends first before the others.
// Matching skips the executors in skipped, and the bound excludes those in spared.
type failingSKU struct {
	skipped, spared core.Ordered[*allocation]
}

// skipLimit returns how many executors of a group matching skips at most.
func (c *Core) skipLimit(g failingGroup) int {
	size := c.usage.Size(g.sku)
	switch {
	case g.unproven:
		return 0
	case g.silent:
		return max(silentAlways, size/skippedShare)
	}
	return max(0, min(max(1, size/skippedShare), size-1))
}

func compareSkips(a, b *allocation) int {
	return cmp.Or(a.failing.until.Compare(b.failing.until), cmp.Compare(a.ordinal, b.ordinal))
}

func compareReviews(a, b *allocation) int {
	return cmp.Or(a.failing.review.Compare(b.failing.review), cmp.Compare(a.ordinal, b.ordinal))
}

// skips reports whether matching skips the executor because it fails starts.
func (h *allocation) skips() bool { return h.failing != nil && h.failing.skipped }

// The exit codes of a shell for a command that cannot be executed and one that does not exist. A
// program that lacks a library has the second, too.
const exitCannotExecute, exitNotFound = 126, 127

// failedToStart reports whether a worker of a reservation ended because its executor could not
// start it, so that it never became RUNNING. was is the worker before, or zero if unknown.
// processEnded is set if the process was started, so that the program may be the reason.
//
// The exit code does not show whether the worker was ready: an agent stops a program that is not
// ready in time, and a load that fails ends by itself. An end of the process counts only if the
// reservation requests readiness REPORTED, because without it any program that ends at once may
// never be seen RUNNING. The records say that Berth did not stop the load if they show it before
// its end, or if a policy queues it again or gave it up.
func failedToStart(s *model.Spec, was, is *model.TaskWorker) (failed, processEnded bool) {
	if is.State != model.WorkerFailed || !is.RunningSince.IsZero() || is.BadTask {
		return false, false
	}
	byItself := was.State == model.WorkerAssigned || was.State == model.WorkerStarting || is.Requeue
	switch is.Reason {
	case fault.ReasonStartFailed, fault.ReasonStartTimeout:
		failed = true
	case fault.ReasonAttemptsExhausted, fault.ReasonRoundsExhausted:
		failed = !refusedForVolume(is)
	case fault.ReasonExited, fault.ReasonKilled:
		failed, processEnded = byItself, true
	}
	if is.ExitCode != nil && is.Reason != fault.ReasonAttemptsExhausted {
		processEnded = true
	}
	if failed && processEnded {
		failed = s.Task.Readiness == model.ReadyReported &&
			(is.ExitCode == nil || *is.ExitCode != exitCannotExecute && *is.ExitCode != exitNotFound)
	}
	return failed, processEnded
}

// refusedForVolume reports whether the last start request of a worker was refused because of
// its volume: the executor can start others.
func refusedForVolume(w *model.TaskWorker) bool {
	switch w.RefusedFor() {
	case fault.ReasonVolumeMissing, fault.ReasonVolumeDestroyed, fault.ReasonVolumeInUse:
		return true
	}
	return false
}

// started returns when a worker became RUNNING, as far as the record says; zero if it does
// not. An end before that is never a start that succeeded.
func started(is *model.TaskWorker) time.Time {
	switch {
	case !is.RunningSince.IsZero():
		return is.RunningSince.Time()
	case is.State == model.WorkerRunning:
		return is.Since.Time()
	}
	return time.Time{}
}

// observeTask counts the starts of a task, which need the task's header, its chunks and its
// reservation. These arrive in any order.
func (c *Core) observeTask(uid string) {
	if t := c.tasks[uid]; t != nil {
		for _, number := range slices.Sorted(maps.Keys(t.chunks)) {
			c.observeStarts(t, nil, t.chunks[number])
		}
	}
}

// observeStarts counts the starts that have succeeded or failed since prev, which is nil if
// the chunk was not seen before. It counts none twice.
func (c *Core) observeStarts(t *task, prev, next *entry) {
	if t.header == nil || next == nil {
		return
	}
	key, spec := t.header.record.(*model.TaskHeader).Key, &model.Spec{}
	if r := c.reservations[next.record.Ref().ID]; r != nil {
		spec = &r.record.(*model.Reservation).Spec
	}
	var before []model.TaskWorker
	if prev != nil {
		before = prev.record.(*model.TaskChunk).Workers
	}
	workers := next.record.(*model.TaskChunk).Workers
	for i := range workers {
		is, was := &workers[i], &model.TaskWorker{}
		if i < len(before) && before[i].ID == is.ID {
			was = &before[i]
		}
		if isUnanswered(is) && was.UnansweredSince != is.UnansweredSince {
			c.startFailed(is.Ordinal, startFailure{key: key, at: is.UnansweredSince.Time(),
				lastError: is.LastError.String(), unanswered: true})
		}
		if was.State == is.State && was.Since == is.Since {
			continue
		}
		if at := started(is); !at.IsZero() {
			if spec.Task.Readiness == model.ReadyReported && at.After(c.now.Add(-ranKept)) {
				c.noteRan(t.requestOf(spec), is.Ordinal, at)
			}
			c.startSucceeded(is.Ordinal, at)
		} else if failed, processEnded := failedToStart(spec, was, is); failed {
			failure := startFailure{key: key, at: is.Since.Time(), lastError: is.LastError.String(),
				unanswered: !is.UnansweredSince.IsZero()}
			if processEnded {
				failure.request = t.requestOf(spec)
			}
			c.startFailed(is.Ordinal, failure)
		}
	}
}

// startSucceeded drops the failures on an executor that are not later than a start that
// succeeded.
func (c *Core) startSucceeded(ordinal uint32, at time.Time) {
	if at.After(c.now) {
		at = c.now
	}
	h := c.allocationOf(ordinal)
	if !at.After(h.started) {
		return
	}
	h.started = at
	if h.failing != nil {
		c.setFailures(h, slices.DeleteFunc(slices.Clone(h.failing.failures),
			func(f startFailure) bool { return !f.at.After(at) }))
	}
}

func (c *Core) startFailed(ordinal uint32, f startFailure) {
	if f.at.After(c.now) {
		f.at = c.now // the clock of the assigner is ahead
	}
	h := c.allocationOf(ordinal)
	if !f.at.After(h.started) || c.outdated(h, f) {
		return
	}
	var next []startFailure
	if h.failing != nil {
		for _, known := range h.failing.failures {
			switch {
			case known.key != f.key:
				next = append(next, known)
			case f.at.Before(known.at), f.at.Equal(known.at) && f.request >= known.request:
				return // of two at the same time, one that needs no proof counts, in any order
			}
		}
	}
	at, _ := slices.BinarySearchFunc(next, f, func(a, b startFailure) int {
		return cmp.Or(b.at.Compare(a.at), a.key.Compare(b.key))
	})
	next = slices.Insert(next, at, f)
	c.setFailures(h, next[:min(len(next), maxFailures)])
}

// setFailures replaces the failures on an executor, and updates everything that follows from
// them. If a reservation becomes the one at fault, or no longer is, this affects at most
// failuresOfReservation executors.
func (c *Core) setFailures(h *allocation, next []startFailure) {
	if h.failing == nil {
		if len(next) == 0 {
			return
		}
		h.failing = &failing{}
	}
	affected := map[uint32]bool{h.ordinal: true}
	count := func(failures []startFailure, n int) {
		for _, f := range failures {
			if f.unanswered {
				continue // no reservation can be at fault
			}
			c.doubt(f.request, h.ordinal, n)
			executors := c.failedOn[f.key]
			before := len(executors)
			if executors == nil {
				executors = map[uint32]int{}
				c.failedOn[f.key] = executors
			}
			if executors[h.ordinal] += n; executors[h.ordinal] == 0 {
				delete(executors, h.ordinal)
			}
			// From two executors on, a failure without proof is no finding.
			after := len(executors)
			if fewer := min(before, after); after != before && (fewer == 1 || fewer == failuresOfReservation-1) {
				for ordinal := range executors {
					affected[ordinal] = true
				}
			}
			if len(executors) == 0 {
				delete(c.failedOn, f.key)
			}
		}
	}
	count(next, 1)
	count(h.failing.failures, -1)
	h.failing.failures = next
	for _, ordinal := range slices.Sorted(maps.Keys(affected)) {
		c.reviewFailures(c.allocations[ordinal])
	}
}

// reviewFailures derives from the failures on an executor whether the executor fails starts.
func (c *Core) reviewFailures(h *allocation) {
	f := h.failing
	c.leaveFailing(h)
	c.reviews.Delete(h)
	f.counted, f.until, f.review, f.silent, f.unproven = 0, time.Time{}, time.Time{}, false, false
	var counted, unclear []startFailure
	for _, failure := range f.failures {
		executors := len(c.failedOn[failure.key])
		proven := failure.request == "" || c.ranElsewhere(failure, h.ordinal)
		switch {
		case failure.unanswered || proven && executors < failuresOfReservation:
			counted, unclear = append(counted, failure), append(unclear, failure)
		case !proven && executors == 1:
			unclear = append(unclear, failure)
		}
	}
	f.counted, f.until = len(counted), c.skipEnd(counted, failuresToSkip)
	if f.until.IsZero() {
		if until := c.skipEnd(unclear, failuresToReport); !until.IsZero() {
			f.counted, f.until, f.unproven = len(unclear), until, true
		}
	}
	if silent := c.silentUntil(h); !silent.IsZero() {
		if f.silent = true; f.unproven || silent.After(f.until) {
			f.until, f.unproven = silent, false
		}
	}
	if len(f.failures) == 0 {
		h.failing = nil
	} else {
		f.review = earliest(f.until, c.nextOutdated(h))
		if !f.review.IsZero() {
			c.reviews.Insert(h)
		}
		c.enterFailing(h)
	}
	c.trackSilence(h)
	if h.host != nil {
		c.boundSkipped(h.host.Shape().SKU())
	}
	c.dropAllocation(h.ordinal)
}

// skipEnd returns when a skip ends that n of the failures within failureWindow cause; zero if they
// cause none, or if it has ended. The failures must be in order, the latest first.
func (c *Core) skipEnd(failures []startFailure, n int) time.Time {
	for i := range max(0, len(failures)-n+1) {
		if failures[i].at.Sub(failures[i+n-1].at) <= failureWindow {
			if until := failures[i].at.Add(skippedFor); until.After(c.now) {
				return until
			}
			break
		}
	}
	return time.Time{}
}

// enterFailing adds an executor that fails starts to those of its SKU. The caller must call
// boundSkipped afterwards.
func (c *Core) enterFailing(h *allocation) {
	if h.failing == nil || h.failing.until.IsZero() || h.host == nil || h.host.state == model.ExecutorLost {
		return
	}
	group := failingGroup{h.host.Shape().SKU(), h.failing.silent, h.failing.unproven}
	s := c.failingSKUs[group]
	if s == nil {
		s = &failingSKU{skipped: core.NewOrdered(compareSkips), spared: core.NewOrdered(compareSkips)}
		c.failingSKUs[group] = s
	}
	h.failing.among = s
	s.spared.Insert(h)
}

// leaveFailing removes an executor from those of its SKU that fail starts. The caller must
// call boundSkipped afterwards.
func (c *Core) leaveFailing(h *allocation) {
	if h.failing == nil || h.failing.among == nil {
		return
	}
	s := h.failing.among
	if h.failing.skipped {
		c.setSkipped(h, false)
	}
	s.spared.Remove(h)
	h.failing.among = nil
}

// setSkipped moves an executor between the skipped and the spared executors of its SKU.
func (c *Core) setSkipped(h *allocation, skipped bool) {
	s := h.failing.among
	from, to := &s.skipped, &s.spared
	if skipped {
		from, to = to, from
	}
	from.Remove(h)
	c.unplace(h.host)
	h.failing.skipped = skipped
	c.place(h.host)
	to.Insert(h)
}

// boundSkipped makes matching skip as many of the SKU's executors that fail starts as the
// bound allows, those whose skip ends first. It must be called after each change of the SKU's
// size or of these executors. Such a change moves at most three executors.
func (c *Core) boundSkipped(sku string) {
	c.boundGroup(failingGroup{sku: sku})
	c.boundGroup(failingGroup{sku: sku, silent: true})
	c.boundGroup(failingGroup{sku: sku, unproven: true})
}

func (c *Core) boundGroup(g failingGroup) {
	s := c.failingSKUs[g]
	if s == nil {
		return
	}
	limit := c.skipLimit(g)
	for s.skipped.Len() > limit {
		c.setSkipped(s.skipped.At(s.skipped.Len()-1), false)
	}
	for first, spared := s.spared.First(); spared && limit > 0; first, spared = s.spared.First() {
		if s.skipped.Len() == limit {
			last := s.skipped.At(limit - 1)
			if compareSkips(last, first) < 0 {
				break
			}
			c.setSkipped(last, false)
		}
		c.setSkipped(first, true)
	}
	if s.skipped.Len()+s.spared.Len() == 0 {
		delete(c.failingSKUs, g)
	}
}

// endSkips drops failures that are no longer kept, and ends skips whose time has come.
func (c *Core) endSkips() {
	for range c.cfg.StepLimit {
		h, ok := c.reviews.First()
		if !ok || h.failing.review.After(c.now) {
			return
		}
		c.setFailures(h, slices.DeleteFunc(slices.Clone(h.failing.failures),
			func(f startFailure) bool { return c.outdated(h, f) }))
	}
}

// outdated reports whether a failure on an executor is no longer kept. A failure of an executor
// that still has not answered is kept.
func (c *Core) outdated(h *allocation, f startFailure) bool {
	return !f.at.Add(failureKept).After(c.now) && !(f.unanswered && h.unanswered != nil)
}

// nextOutdated returns when the next failure of an executor is no longer kept; zero if that
// depends on an answer.
func (c *Core) nextOutdated(h *allocation) (next time.Time) {
	for _, f := range h.failing.failures {
		if !f.unanswered || h.unanswered == nil {
			next = earliest(next, f.at.Add(failureKept))
		}
	}
	return next
}

// nextReview returns when endSkips has something to do; zero means never.
func (c *Core) nextReview() time.Time {
	h, ok := c.reviews.First()
	if !ok {
		return time.Time{}
	}
	return h.failing.review
}

// failsStarts returns the findings about executors that fail starts, in order of ID.
func (c *Core) failsStarts() []Finding {
	var list []Finding
	for group, s := range c.failingSKUs {
		if group.silent {
			for _, side := range []*core.Ordered[*allocation]{&s.skipped, &s.spared} {
				for h := range side.All() {
					list = append(list, h.silenceFinding())
				}
			}
			continue
		}
		for h := range s.skipped.All() {
			list = append(list, h.finding(fmt.Sprintf(
				"The executor gets no new workers until %s and keeps its workers. Check its agent and host; drain it if the fault stays.",
				h.failing.until.UTC().Format(time.RFC3339))))
		}
		for h := range s.spared.All() {
			if group.unproven {
				list = append(list, h.finding(
					"The executor still gets new workers, because none of these requests has run elsewhere. Check the output of the workers; drain the executor if it is at fault."))
				continue
			}
			list = append(list, h.finding(
				"The executor still gets new workers, because too many executors of its SKU fail starts. Check what they have in common, such as the program or the image."))
		}
	}
	slices.SortFunc(list, func(a, b Finding) int { return strings.Compare(a.Object, b.Object) })
	return list
}

func (h *allocation) finding(action string) Finding {
	last, reservations := h.failing.failures[0], fmt.Sprint(h.failing.counted)
	if h.failing.counted == maxFailures {
		reservations = "at least " + reservations
	}
	what := fmt.Sprintf("failed to start workers of %s reservations", reservations)
	if h.failing.unproven {
		what = fmt.Sprintf("workers of %s reservations ended before they were ready", reservations)
	}
	return Finding{
		Kind: FindingFailsStarts, Object: h.host.ID, Since: h.failing.until.Add(-skippedFor),
		Message: fmt.Sprintf("%s, the last of %s: %s", what, last.key, cmp.Or(last.lastError, "without an error message")),
		Action:  action,
	}
}
