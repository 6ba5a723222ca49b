package inventory

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// If the process of a worker ends before it is ready, the executor is at fault only if a worker of
// an equal request became RUNNING elsewhere; see failing.go. Requests are equal if their tasks and
// the constraints of their groups are, whichever reservations they belong to: a corrected command,
// or more memory, is another request. So the replicas of a service vouch for each other, and a
// worker that is queued again vouches for its predecessor.

// ranKept is for how long the core remembers where a request ran. An older start proves no failure
// that is kept.
const ranKept = failureKept + failureWindow

// ranOn has the two executors on which workers of a request became RUNNING last, the latest first,
// and when. So it has the latest time at which the request ran on any executor but one.
type ranOn [2]struct {
	ordinal uint32
	at      time.Time
}

// add notes that a worker became RUNNING.
func (r *ranOn) add(ordinal uint32, at time.Time) {
	i := 1
	if r[0].at.IsZero() || r[0].ordinal == ordinal {
		i = 0
	}
	if at.After(r[i].at) {
		r[i].ordinal, r[i].at = ordinal, at
	}
	if r[1].at.After(r[0].at) {
		r[0], r[1] = r[1], r[0]
	}
}

// proves reports whether the request ran on another executor, so that a failure there is the fault of
// the executor.
func (r *ranOn) proves(f startFailure, ordinal uint32) bool {
	for _, ran := range r {
		if !ran.at.IsZero() && ran.ordinal != ordinal && !ran.at.Before(f.at.Add(-failureWindow)) {
			return true
		}
	}
	return false
}

// requestOf returns the digest of the request of a task.
func (t *task) requestOf(s *model.Spec) string {
	if t.request == "" {
		task := &s.Task
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %q %q %d", s.Constraints.Canonical(), task.Command, task.Args,
			task.Env, task.Payload, task.StartTimeout))
		t.request = string(sum[:16])
	}
	return t.request
}

// ranAt returns where a request ran, as far as this core saw.
func (c *Core) ranAt(request string) ranOn {
	r := c.ran[request]
	for _, earlier := range c.ranBefore[request] {
		if !earlier.at.IsZero() {
			r.add(earlier.ordinal, earlier.at)
		}
	}
	return r
}

// ranElsewhere reports whether a failure on an executor is proven to be its fault.
func (c *Core) ranElsewhere(f startFailure, ordinal uint32) bool {
	r := c.ranAt(f.request)
	return r.proves(f, ordinal)
}

// noteRan notes that a worker of a request became RUNNING, and reviews the executors whose failures
// this proves.
func (c *Core) noteRan(request string, ordinal uint32, at time.Time) {
	if at.After(c.now) {
		at = c.now // the clock of the assigner is ahead
	}
	if c.ran == nil || c.now.Sub(c.ranSince) >= ranKept {
		c.ran, c.ranBefore, c.ranSince = map[string]ranOn{}, c.ran, c.now
	}
	before := c.ranAt(request)
	after := before
	after.add(ordinal, at)
	if after == before {
		return
	}
	c.ran[request] = after
	for _, doubted := range slices.Sorted(maps.Keys(c.doubted[request])) {
		h := c.allocations[doubted]
		if slices.ContainsFunc(h.failing.failures, func(f startFailure) bool {
			return f.request == request && !before.proves(f, doubted) && after.proves(f, doubted)
		}) {
			c.reviewFailures(h)
		}
	}
}

// doubt changes the number of failures of a request on an executor that need a proof by n.
func (c *Core) doubt(request string, ordinal uint32, n int) {
	if request == "" {
		return
	}
	executors := c.doubted[request]
	if executors == nil {
		executors = map[uint32]int{}
		c.doubted[request] = executors
	}
	if executors[ordinal] += n; executors[ordinal] == 0 {
		delete(executors, ordinal)
	}
	if len(executors) == 0 {
		delete(c.doubted, request)
	}
}
