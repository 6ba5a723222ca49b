package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// Executors that do not answer start requests. Their agents are present: they send heartbeats.
// Such an executor fails every start, but much later than another one, and its starts may have
// been received. So it is treated differently from executors that fail starts (failing.go):
//
//   - One start request without an answer is enough, from the moment at which the assigner
//     records it: no request can be the reason. The executor gets no new workers while a request
//     is unanswered, since such a worker could not start anyway. The assigner repeats these
//     requests, so the skip ends as soon as the executor answers one. It also ends if a worker
//     becomes RUNNING there, or the agent registers again.
//   - If a worker ended because none of its start requests could be sent, nothing is repeated.
//     Then the skip ends silentFor later, and the next start finds out.
//   - If many executors are silent, the assigner's network is more likely at fault than the
//     executors. So at most a quarter of the executors of a SKU are skipped, at least
//     silentAlways. In a SKU of one or two executors, all may be skipped.
//   - If a skipped executor has not answered for as long as after which an absent one is LOST, its
//     record says that it is silent (model.Executor.Silent). The assigner then gives up the
//     workers that the executor never acknowledged, or whose stop it does not answer. Their
//     capacity stays used: see release.
const (
	silentFor    = time.Minute
	silentAlways = 2
)

// taskedWorker identifies a worker of a task.
type taskedWorker struct {
	uid string
	id  model.WorkerID
}

// isUnanswered reports whether a worker has a request that its executor has not answered and
// that the assigner repeats.
func isUnanswered(w *model.TaskWorker) bool { return !w.UnansweredSince.IsZero() && w.Occupies() }

// observeSilence updates the workers with unanswered requests when a chunk of a task changes
// from prev to next.
func (c *Core) observeSilence(uid string, prev, next *entry) {
	var before, after []model.TaskWorker
	if prev != nil {
		before = prev.record.(*model.TaskChunk).Workers
	}
	if next != nil {
		after = next.record.(*model.TaskChunk).Workers
	}
	for i := range before {
		if w := &before[i]; isUnanswered(w) {
			answered := i < len(after) && after[i].ID == w.ID && after[i].UnansweredSince.IsZero()
			remains := i < len(after) && after[i].ID == w.ID && after[i].Ordinal == w.Ordinal && isUnanswered(&after[i])
			if !remains {
				c.endSilence(c.allocationOf(w.Ordinal), taskedWorker{uid, w.ID}, answered)
			}
		}
	}
	for i := range after {
		if w := &after[i]; isUnanswered(w) {
			a := c.allocationOf(w.Ordinal)
			if a.unanswered == nil {
				a.unanswered = map[taskedWorker]time.Time{}
			}
			a.unanswered[taskedWorker{uid, w.ID}] = w.UnansweredSince.Time()
		}
	}
}

// endSilence removes a worker from those with unanswered requests. If its executor has answered,
// the executor is not silent.
func (c *Core) endSilence(a *allocation, w taskedWorker, answered bool) {
	delete(a.unanswered, w)
	if len(a.unanswered) == 0 {
		a.unanswered = nil
	}
	if a.failing != nil {
		c.setFailures(a, slices.DeleteFunc(slices.Clone(a.failing.failures), func(f startFailure) bool {
			return f.unanswered && answered || c.outdated(a, f)
		}))
	}
	c.dropAllocation(a.ordinal)
}

// isSilence reports whether the executor has not answered, and has not registered again since.
func (h *allocation) isSilence(f startFailure) bool {
	return f.unanswered && (h.host == nil || !f.at.Before(h.host.Record.Since))
}

// silentUntil returns when a skip because of unanswered requests ends, as far as is known: while
// a request is unanswered, the skip continues. It returns the zero time without a skip.
func (c *Core) silentUntil(a *allocation) (until time.Time) {
	for _, f := range a.failing.failures {
		if !a.isSilence(f) {
			continue
		}
		end := f.at.Add(silentFor)
		if a.unanswered != nil {
			end = f.at.Add(max(0, c.now.Sub(f.at)).Truncate(skippedFor) + skippedFor)
		}
		if end.After(until) {
			until = end
		}
	}
	if !until.After(c.now) {
		return time.Time{}
	}
	return until
}

// trackSilence adds the executor to those that reviewSilence looks at, or removes it.
func (c *Core) trackSilence(a *allocation) {
	if a.failing != nil && a.failing.silent || a.host != nil && a.host.Record.Silent {
		c.silent[a.ordinal] = a
	} else {
		delete(c.silent, a.ordinal)
	}
}

// reviewSilence marks the executors that have been silent for long, and removes the mark from
// those that are not silent any more. A new leader waits longer rather than shorter.
func (c *Core) reviewSilence() {
	c.silentAt = time.Time{}
	for _, ordinal := range slices.Sorted(maps.Keys(c.silent)) {
		a := c.silent[ordinal]
		h := a.host
		if h == nil || c.quarantined.executors[h.ID] {
			continue
		}
		c.subject = h.Record.Ref()
		since := a.silentSince()
		switch {
		case h.Record.Silent && since.IsZero():
			c.markSilent(h, false)
		case h.Record.Silent, since.IsZero(), !a.skips(), h.state != model.ExecutorReady:
		default:
			for _, later := range []time.Time{h.live.since, c.electedAt} {
				if since.Before(later) {
					since = later
				}
			}
			if due := since.Add(c.lostAfter(h)); due.After(c.now) {
				c.silentAt = earliest(c.silentAt, due)
			} else {
				c.markSilent(h, true)
			}
		}
	}
	c.subject = model.Ref{}
}

func (c *Core) markSilent(h *host, silent bool) {
	next := *h.Record
	next.Silent = silent
	c.decide(model.Effect{Puts: []model.Record{&next}})
}

// silentSince returns since when the executor has answered no request; zero if it is not silent.
func (h *allocation) silentSince() (since time.Time) {
	if h.failing == nil || !h.failing.silent {
		return since
	}
	for _, at := range h.unanswered {
		if at.After(h.started) && !at.Before(h.host.Record.Since) {
			since = earliest(since, at)
		}
	}
	return since
}

// silenceFinding returns the finding about an executor that answers no start requests.
func (h *allocation) silenceFinding() Finding {
	var last startFailure
	keys := map[model.Key]bool{}
	since := time.Time{}
	for _, f := range h.failing.failures {
		if h.isSilence(f) {
			if len(keys) == 0 {
				last = f
			}
			keys[f.key], since = true, earliest(since, f.at)
		}
	}
	action := "The executor gets no new workers until its agent answers, and keeps its workers. Check that the assigner can connect to the agent, and restart the agent."
	if !h.failing.skipped {
		action = "The executor still gets new workers, because many executors of its SKU do not answer. Check the network between the assigner and the agents."
	}
	reservations := "reservation"
	if len(keys) > 1 {
		reservations = fmt.Sprintf("%d reservations, the last of", len(keys))
	}
	return Finding{
		Kind: FindingFailsStarts, Object: h.host.ID, Since: since,
		Message: fmt.Sprintf("does not answer requests about workers of %s %s: %s", reservations, last.key,
			cmp.Or(last.lastError, "no answer in time")),
		Action: action,
	}
}
