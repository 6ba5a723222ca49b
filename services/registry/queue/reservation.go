package queue

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// reservation is what the versions of a key are together: of each worker index the newest
// worker. See doc.go, Views.
type reservation struct {
	// shown is the version that represents the reservation: its UID, epoch and request are shown.
	shown *version
	// members are the versions whose workers count, the oldest first.
	members []*version
	// past are the kept versions of the reservation whose records have ends of other versions.
	past []*version
	// newest has the highest number of each worker index of all of these.
	newest model.WorkerSet
	// unserved has the workers of members that do not count, because their index had a worker before.
	unserved map[*version]model.WorkerSet
}

// reservationOf returns the reservation of a key that has versions. It reads sets of workers
// and no task, so its cost does not depend on the number of workers.
func (c *Core) reservationOf(key model.Key) reservation { return c.reservationIn(c.byKey[key]) }

// reservationIn is reservationOf for all versions of a key.
func (c *Core) reservationIn(all []*version) reservation {
	if len(all) == 1 {
		r := reservation{shown: all[0], members: all, newest: all[0].r.Workers}
		if hasPast(all[0]) {
			r.past = all
			r.newest = unionOf(pastSets(r.past, []model.WorkerSet{r.newest}))
		}
		return r
	}
	// The versions that live are of one reservation. If none does, the newest version that is
	// being cancelled decides, or else the newest that has ended.
	begins := map[string]bool{}
	newest := all[len(all)-1]
	for _, v := range all {
		switch {
		case v.alive():
			begins[c.first(v.r)] = true
		case v.is(model.Cancelling):
			newest = v
		}
	}
	if len(begins) == 0 {
		begins[c.first(newest.r)] = true
	}
	return c.reservationFrom(all, begins)
}

// reservationFrom returns the reservation of those versions that began with one of some UIDs.
func (c *Core) reservationFrom(all []*version, begins map[string]bool) reservation {
	var r reservation
	var last *version
	var sets []model.WorkerSet
	for _, v := range all {
		if !begins[c.first(v.r)] {
			continue
		}
		if last == nil || !v.is(model.Replaced) || last.is(model.Replaced) {
			last = v
		}
		if hasPast(v) {
			r.past = append(r.past, v)
		}
		if c.isMember(v) {
			r.members, sets = append(r.members, v), append(sets, v.r.Workers)
		}
	}
	if len(r.members) == 0 { // it ended before it had a worker
		r.members, sets = []*version{last}, []model.WorkerSet{last.r.Workers}
	}
	for _, lives := range []func(*version) bool{(*version).alive, isCancelling, isAny} {
		living := slices.DeleteFunc(slices.Clone(r.members), func(v *version) bool { return !lives(v) })
		if r.shown = representative(living); r.shown != nil {
			break
		}
	}
	for i, v := range r.members {
		if !v.wasUnserved() || len(r.members) == 1 && len(r.past) == 0 {
			continue
		}
		others := unionOf(pastSets(r.past, slices.Delete(slices.Clone(sets), i, i+1)))
		again := model.WorkerSetOf(slices.DeleteFunc(v.r.Workers.List(), func(w model.WorkerID) bool {
			_, before := others.Number(w.Index)
			return !before
		}))
		if len(again) > 0 {
			if r.unserved == nil {
				r.unserved = map[*version]model.WorkerSet{}
			}
			r.unserved[v], sets[i] = again, sets[i].Minus(again)
		}
	}
	r.newest = unionOf(pastSets(r.past, sets))
	return r
}

// wasUnserved reports whether the version is a request that ended before it had executors.
func (v *version) wasUnserved() bool {
	return (v.is(model.Cancelled) || v.is(model.Expired)) && v.r.Origin == model.OriginRequested && v.r.Round == 0 &&
		len(v.r.WorkerCounts) == 0
}

func isCancelling(v *version) bool { return v.is(model.Cancelling) }
func isAny(*version) bool          { return true }

// first returns the UID of the version with which the reservation of a version began.
func (c *Core) first(r *model.Reservation) string {
	for {
		parent := c.versions[r.Parent]
		if r.First != "" || parent == nil || parent.r == nil {
			return cmp.Or(r.First, r.UID)
		}
		r = parent.r
	}
}

// isMember reports whether the workers of a version count. Those of a version that was replaced
// belong to others, and a request that ended before it had executors never had workers, except for
// the rest of a batch of which parts went ahead. Of that, the indexes do not count that had workers before.
func (c *Core) isMember(v *version) bool {
	if v.is(model.Replaced) {
		return false
	}
	return !v.wasUnserved() || v.r.Split || c.children[v.uid] > 0 // parts of a batch that an older Berth version split
}

// cameToNothing reports whether a version was a request that expired before it had executors, so that the
// workers of its indexes are still those of before.
func (c *Core) cameToNothing(v *version) bool { return v.is(model.Expired) && !c.isMember(v) }

// mayVanish reports whether a queued version is no member of its reservation once it ends.
func (c *Core) mayVanish(v *version) bool {
	return v.r.Origin == model.OriginRequested && v.r.Round == 0 && !v.r.Split && c.children[v.uid] == 0
}

func hasPast(v *version) bool {
	return v.r.Ends != nil && (len(v.r.Ends.Past) > 0 || len(v.r.Ends.Counted) > 0)
}

// pastSets appends the workers of other versions that the records of some versions have.
func pastSets(versions []*version, sets []model.WorkerSet) []model.WorkerSet {
	for _, v := range versions {
		for _, e := range v.r.Ends.Past {
			sets = append(sets, e.Workers)
		}
		if counted := v.r.Ends.Counted; len(counted) > 0 {
			sets = append(sets, counted)
		}
	}
	return sets
}

// unionOf returns the union of sets. It joins them in pairs, so that many sets of one worker
// are not copied once for each.
func unionOf(sets []model.WorkerSet) model.WorkerSet {
	switch n := len(sets); n {
	case 0:
		return nil
	case 1:
		return sets[0]
	default:
		return unionOf(sets[:n/2]).Raise(unionOf(sets[n/2:]))
	}
}

// overtaken returns the workers of a member whose index has a newer worker.
func (r reservation) overtaken(v *version) model.WorkerSet {
	if len(r.members) == 1 && len(r.past) == 0 {
		return nil
	}
	over := v.r.Workers.Below(r.newest).Raise(r.unserved[v])
	if len(v.r.Requeued) > 0 {
		over = over.Raise(v.r.Requeued)
	}
	return over
}

// isWaiting reports whether the version has no task yet, and isActive whether it has one.
func (v *version) isWaiting() bool { return v.is(model.Queued) && !v.dispatched() }
func (v *version) isActive() bool  { return v.is(model.Active) || v.dispatched() }

// hasEnds reports whether the record of an ended version says how its workers ended. A record
// of an older Berth version does not, but its task may still be there.
func (v *version) hasEnds() bool {
	return v.r.State.Terminal() && (len(v.tasks) == 0 || v.r.Ends != nil && len(v.r.Ends.Own) > 0 ||
		len(v.r.WorkerCounts) == 1 && v.r.WorkerCounts[model.WorkerCompleted.String()] > 0)
}

// ends returns how the workers of an ended member ended that are not overtaken. The last entry
// may be of workers that the record only counts.
func (v *version) ends(over model.WorkerSet) []model.End {
	if !v.r.State.Terminal() {
		return nil
	}
	if len(v.r.WorkerCounts) == 0 {
		return []model.End{{Workers: v.r.Workers.Minus(over)}}
	}
	var own []model.End
	if v.r.Ends != nil {
		own = v.r.Ends.Own
	}
	ends := make([]model.End, 0, len(own)+1)
	rest, listed := v.r.Workers, map[model.WorkerState]int32{}
	for _, e := range own {
		listed[e.State] += int32(e.Workers.Len())
		rest = rest.Minus(e.Workers)
		ends = append(ends, model.End{State: e.State, GaveUp: e.GaveUp, Workers: e.Workers.Minus(over)})
	}
	// Of workers without an entry only the number in each state is known. Those that are
	// overtaken are probably among those that did not complete.
	left := int32(rest.Len())
	rest = rest.Minus(over)
	overtaken, unknown := left-int32(rest.Len()), int32(0)
	for state := model.WorkerFailed; state <= model.WorkerEvicted; state++ {
		more := v.r.WorkerCounts[state.String()] - listed[state]
		gone := min(max(more, 0), overtaken)
		if more -= gone; more > 0 {
			ends = append(ends, model.End{State: state, More: more})
			unknown += more
		}
		overtaken -= gone
	}
	switch completed := model.WorkerCompleted; {
	case v.r.WorkerCounts[completed.String()] == 0:
	case unknown == 0:
		ends = append(ends, model.End{State: completed, Workers: rest})
	default:
		ends = append(ends, model.End{State: completed, More: max(0, int32(rest.Len())-unknown)})
	}
	return ends
}

// pastEnds returns how workers of versions ended whose records are deleted, and that are not
// overtaken.
func (r reservation) pastEnds() (ends []model.End) {
	for _, v := range r.past {
		ends = append(ends, r.pastOf(v)...)
	}
	return ends
}

// pastOf returns those that the record of one version has.
func (r reservation) pastOf(v *version) (ends []model.End) {
	if v.r.Ends == nil {
		return nil
	}
	for _, e := range v.r.Ends.Past {
		e.Workers = r.notOvertaken(e.Workers)
		ends = append(ends, e)
	}
	// Of the workers that are only counted, those that are overtaken probably did not complete.
	overtaken := int32(v.r.Ends.Counted.Below(r.newest).Len())
	for _, completed := range []bool{false, true} {
		for i := range ends {
			if e := &ends[i]; (e.State == model.WorkerCompleted) == completed {
				n := min(e.More, overtaken)
				e.More, overtaken = e.More-n, overtaken-n
			}
		}
	}
	return ends
}

// notOvertaken returns the workers whose index has no newer worker.
func (r reservation) notOvertaken(workers model.WorkerSet) model.WorkerSet {
	return workers.Minus(workers.Below(r.newest))
}

// joined returns ends with one entry for each way, in a fixed order. It drops empty ones.
func joined(ends []model.End) []model.End {
	type way struct {
		state             model.WorkerState
		gaveUp, cancelled bool
	}
	sets, more := map[way][]model.WorkerSet{}, map[way]int32{}
	var ways []way
	for _, e := range ends {
		if len(e.Workers) == 0 && e.More == 0 {
			continue
		}
		w := way{e.State, e.GaveUp, e.Cancelled}
		if _, known := more[w]; !known {
			ways = append(ways, w)
		}
		sets[w], more[w] = append(sets[w], e.Workers), more[w]+e.More
	}
	number := map[bool]int{true: 1}
	slices.SortStableFunc(ways, func(a, b way) int {
		return cmp.Or(cmp.Compare(a.state, b.state), number[a.gaveUp]-number[b.gaveUp],
			number[a.cancelled]-number[b.cancelled])
	})
	var all []model.End
	for _, w := range ways {
		all = append(all, model.End{State: w.state, GaveUp: w.gaveUp, Cancelled: w.cancelled, Workers: unionOf(sets[w]),
			More: more[w]})
	}
	return all
}

// tally counts the workers of a reservation.
type tally struct {
	// states counts the newest worker of each index by state, and queued those without a task.
	states [model.WorkerEvicted + 1]int32
	queued int32
	gaveUp bool
	// ends has those whose version has ended.
	ends []model.End
}

func (r reservation) tally() (t tally) {
	for _, v := range r.members {
		over := r.overtaken(v)
		switch {
		case v.isWaiting():
			t.queued += int32(v.r.Workers.Minus(over).Len())
		case v.hasEnds():
			t.add(v.ends(over))
		default:
			for state, n := range v.workers.states {
				t.states[state] += n
			}
			for state := range v.statesOf(over) {
				t.states[state]--
			}
			t.gaveUp = t.gaveUp || v.workers.givenUp > 0
		}
	}
	t.add(r.pastEnds())
	t.ends = joined(t.ends)
	return t
}

func (t *tally) add(ends []model.End) {
	for _, e := range ends {
		n := int32(e.Workers.Len()) + e.More
		t.states[e.State] += n
		t.gaveUp = t.gaveUp || n > 0 && e.GaveUp
		if e.State != model.WorkerUnset { // a worker that was never assigned has no state
			e.Cancelled = false
			t.ends = append(t.ends, e)
		}
	}
}

// words returns the counts by the names of the states; nil if there are none.
func (t *tally) words() map[string]int32 {
	var counts map[string]int32
	add := func(state string, n int32) {
		if n > 0 {
			if counts == nil {
				counts = map[string]int32{}
			}
			counts[state] = n
		}
	}
	for state := model.WorkerAssigned; state <= model.WorkerEvicted; state++ {
		add(state.String(), t.states[state])
	}
	add(model.Queued.String(), t.queued)
	return counts
}

// failures describes how many workers of the reservation failed or were lost, which indexes
// they have, and why the first of them in time did; empty if none did.
func (r reservation) failures(t *tally) string {
	failed, lost := t.states[model.WorkerFailed], t.states[model.WorkerLost]
	if failed+lost == 0 {
		return ""
	}
	var sets []model.WorkerSet
	var ids []model.WorkerID
	var cause model.Failure
	for _, v := range r.members {
		if v.hasEnds() {
			continue
		}
		for _, chunk := range v.failed {
			for _, w := range chunk {
				if !r.newest.Has(w.ID) || v.r.Requeued.Has(w.ID) {
					continue
				}
				ids = append(ids, w.ID)
				if f := (model.Failure{ID: w.ID, At: w.Since.Time()}); f.Before(cause) {
					cause = failureOf(*w)
				}
			}
		}
	}
	for _, e := range t.ends {
		if e.State == model.WorkerFailed || e.State == model.WorkerLost {
			sets = append(sets, e.Workers)
		}
	}
	for _, v := range slices.Concat(r.members, r.past) {
		r.note(&cause, v)
	}
	how := "failed"
	switch {
	case failed == 0:
		how = "lost"
	case lost > 0:
		how = "failed or lost"
	}
	return failuresText(int(failed+lost), r.newest.Len(), how, unionOf(append(sets, model.WorkerSetOf(ids))), cause)
}

// note replaces a failure by that in the record of a version, if it is earlier and of a newest
// worker.
func (r reservation) note(cause *model.Failure, v *version) {
	if e := v.r.Ends; e != nil && r.newest.Has(e.Cause.ID) && e.Cause.Before(*cause) {
		*cause = e.Cause
	}
}

// failureOf returns how a worker failed.
func failureOf(w model.TaskWorker) model.Failure {
	return model.Failure{ID: w.ID, At: w.Since.Time(), Text: clipped(endText(w))}
}

// failuresText describes workers that failed, with their indexes if they are several, and the
// first of them.
func failuresText(n, of int, how string, failed model.WorkerSet, first model.Failure) string {
	text := fmt.Sprintf("%d of %s %s", n, countWorkers(of), how)
	switch {
	case n > 1 && len(failed) > 0:
		text += " (" + indexesOf(failed, n) + ")"
	case first.At.IsZero() && len(failed) > 0:
		return text + "; " + failed.List()[0].String()
	}
	if first.At.IsZero() {
		return text
	}
	return text + "; " + first.ID.String() + ": " + first.Text
}

// maxRanges bounds how many ranges of indexes a message names.
const maxRanges = 8

// indexesOf returns the indexes of workers as ranges, such as "3, 17-19", and how many of n it
// does not name.
func indexesOf(workers model.WorkerSet, n int) string {
	var ranges []string
	named := 0
	for i := 0; i < len(workers) && len(ranges) < maxRanges; {
		first, last := workers[i].First, workers[i].Last
		for i++; i < len(workers) && workers[i].First == last+1; i++ {
			last = workers[i].Last
		}
		text := fmt.Sprint(first)
		if last > first {
			text += fmt.Sprintf("-%d", last)
		}
		ranges, named = append(ranges, text), named+int(last-first)+1
	}
	text := strings.Join(ranges, ", ")
	if n > named {
		text += fmt.Sprintf(" and %d more", n-named)
	}
	return text
}

// waitingOf returns the version that decides what is shown while some workers have no task: of
// requests and rounds the one that represents them, and otherwise, of the workers that are queued
// again, the first in the order of the queue that is in its queue. It is nil if none waits. first
// reports whether some workers wait for their first executors.
func (c *Core) waitingOf(members []*version) (waiting *version, first bool) {
	var requested []*version
	for _, v := range members {
		switch {
		case !v.isWaiting():
		case v.r.Origin != model.OriginRequeue:
			first = first || v.r.Round == 0
			requested = append(requested, v)
		case waiting == nil || waiting.isDelayed() && !v.isDelayed(),
			waiting.isDelayed() == v.isDelayed() && c.scheduler.Compare(v.r, waiting.r) < 0:
			waiting = v
		}
	}
	if len(requested) > 0 {
		return representative(requested), first
	}
	return waiting, false
}

// viewOf returns a reservation as it is shown. See doc.go, Views.
func (c *Core) viewOf(r reservation) View {
	if len(r.members) == 1 && len(r.past) == 0 {
		return c.viewAlone(r)
	}
	t := r.tally()
	failures := r.failures(&t)
	waiting, first := c.waitingOf(r.members)
	var view View
	switch {
	case first:
		view = c.view(waiting)
		view.Message = joinTexts(view.Message, failures)
	case slices.ContainsFunc(r.members, (*version).isActive):
		view = c.viewOfRunning(r, waiting, &t)
		view.Message = joinTexts(failures, view.Message)
	case waiting != nil:
		view = c.view(waiting)
		view.Message = joinTexts(view.Message, failures)
	case r.shown.is(model.Cancelling):
		view = c.view(r.shown)
	default:
		view = r.viewOfEnded(&t)
		view.Message = cmp.Or(view.Message, failures)
	}
	shown := *r.shown.r
	shown.Workers = r.newest
	view.Reservation, view.Counts, view.Ends = &shown, t.words(), t.ends
	return view
}

// viewAlone returns a reservation that has one version.
func (c *Core) viewAlone(r reservation) View {
	v := r.shown
	view := c.view(v)
	failed := v.workers.states[model.WorkerFailed]+v.workers.states[model.WorkerLost] > 0
	if failed || v.r.State.Terminal() && len(v.r.WorkerCounts) > 0 {
		t := r.tally()
		view.Message, view.Ends = cmp.Or(view.Message, r.failures(&t)), t.ends
	}
	return view
}

// viewOfRunning returns the state of a reservation of which all requested workers were
// dispatched. Workers that are queued again do not change that it is ACTIVE, but their place
// and reason are shown.
func (c *Core) viewOfRunning(r reservation, waiting *version, t *tally) View {
	view := c.view(r.shown)
	view.State = model.Active
	if waiting != nil {
		w := c.view(waiting)
		view.Position, view.Reason, view.Fitting = w.Position, w.Reason, w.Fitting
		view.Message = countWorkers(int(t.queued)) + " queued again"
		if w.Message != "" {
			view.Message += ": " + w.Message
		}
	}
	return view
}

// viewOfEnded returns the state of a reservation whose versions have all ended. The last end
// decides whether the reservation was cancelled or has expired. It has expired also if the rest of a batch
// has, whichever part ends last.
func (r reservation) viewOfEnded(t *tally) View {
	last := slices.MaxFunc(r.members, func(a, b *version) int {
		return cmp.Or(a.r.EndedAt.Compare(b.r.EndedAt), byAge(a, b))
	})
	decided := slices.IndexFunc(r.members, (*version).isVerdict)
	rest := slices.IndexFunc(r.members, func(v *version) bool {
		return v.is(model.Expired) && v.r.Split && r.overtaken(v).Len() < v.r.Workers.Len()
	})
	if rest >= 0 && !last.is(model.Cancelled) {
		last = r.members[rest]
	}
	spared := func(v *version) bool { return !v.is(model.Failed) && r.overtaken(v).Len() < v.r.Workers.Len() }
	switch {
	case decided >= 0:
		v := r.members[decided]
		return View{State: v.r.State, Reason: v.r.Reason, Message: v.r.Message}
	case last.is(model.Cancelled), last.is(model.Expired),
		last.is(model.Failed) && !slices.ContainsFunc(r.members, spared):
		return View{State: last.r.State, Reason: last.r.Reason, Message: last.r.Message}
	case t.gaveUp:
		return View{State: model.Completed, Reason: fault.ReasonRoundsExhausted}
	}
	return View{State: model.Completed}
}

func joinTexts(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// isIn reports whether a reservation is in a state: its own, or that of a version that has not
// ended.
func (c *Core) isIn(r reservation, view View, state model.State) bool {
	if view.State == state {
		return true
	}
	return len(r.members) > 1 && slices.ContainsFunc(r.members, func(v *version) bool {
		return !v.r.State.Terminal() && c.view(v).State == state
	})
}

// endsOf returns the ends to store in the record of a version that ends: of its workers that did
// not complete, and those of other versions that its record has.
func (c *Core) endsOf(v *version) *model.Ends {
	if completed := v.workers.states[model.WorkerCompleted]; int(completed) == v.workers.all() {
		return v.r.Ends
	}
	var ends model.Ends
	if v.r.Ends != nil {
		ends = *v.r.Ends
	}
	isNewest := c.newestOf(v.r.Key)
	if !ends.Cause.At.IsZero() && !isNewest(ends.Cause.ID) {
		ends.Cause = model.Failure{}
	}
	var list []model.End
	for w := range v.taskWorkers() {
		if !w.State.Terminal() || w.State == model.WorkerCompleted {
			continue
		}
		f := failureOf(w)
		if w.State != model.WorkerEvicted && f.Before(ends.Cause) && !v.r.Requeued.Has(w.ID) && isNewest(w.ID) {
			ends.Cause = f
		}
		gaveUp := w.Reason == fault.ReasonRoundsExhausted
		list = append(list, model.End{State: w.State, GaveUp: gaveUp, Workers: model.WorkerSet{{First: w.ID.Index,
			Last: w.ID.Index, Number: w.ID.Number}}})
	}
	ends.Own, _ = bounded(joined(list))
	for i := range ends.Own {
		ends.Own[i].More = 0 // WorkerCounts counts them
	}
	return &ends
}

// newestOf returns a function that reports whether a worker is the newest one of its index in the
// reservation. It reads the other versions only if a later number was used: versions end often in a
// reservation of which many workers are restarted, and it has many versions then.
func (c *Core) newestOf(key model.Key) func(model.WorkerID) bool {
	used := c.stage(key).Numbers
	var newest model.WorkerSet
	return func(id model.WorkerID) bool {
		if number, _ := used.Number(id.Index); number <= id.Number {
			return true
		}
		if newest == nil {
			newest = c.reservationOf(key).granted().newest
		}
		return newest.Has(id)
	}
}

// bounded returns ends with at most model.MaxEndRuns runs, which count the workers that it drops.
// It prefers the workers that did not complete.
func bounded(ends []model.End) (kept []model.End, dropped []model.WorkerSet) {
	left := model.MaxEndRuns
	for _, completed := range []bool{false, true} {
		for i := range ends {
			e := &ends[i]
			if (e.State == model.WorkerCompleted) != completed {
				continue
			}
			if over := len(e.Workers) - left; over > 0 {
				e.More += int32(e.Workers[left:].Len())
				dropped = append(dropped, e.Workers[left:])
				e.Workers = e.Workers[:left:left]
			}
			left -= len(e.Workers)
		}
	}
	return ends, dropped
}

// forgetSome forgets a version, and others of its reservation that are due too. While the
// reservation lives, another version keeps how their workers ended: otherwise the view of a
// reservation that lives for long would forget that a worker has failed. When it has ended, all
// its versions are kept until the last one is due. forgetSome returns false if the version does
// not count.
func (c *Core) forgetSome(v *version) bool {
	first := c.first(v.r)
	r := c.reservationFrom(c.byKey[v.r.Key], map[string]bool{first: true})
	if !r.has(v) {
		return false
	}
	var ended []*version
	last, lives := v.r.EndedAt, false
	for _, o := range c.byKey[v.r.Key] {
		if c.first(o.r) != first {
			continue
		}
		lives, last = lives || !o.r.State.Terminal(), latest(last, o.r.EndedAt)
		if o.due == &c.ended && r.has(o) {
			ended = append(ended, o)
		}
	}
	due := []*version{v}
	if !c.tooManyEnded() {
		if until := last.Add(c.config.KeepEnded); !lives && until.After(c.now) {
			for _, o := range ended {
				c.update(o, func() { o.keepUntil = until })
			}
			return true
		}
		due = slices.DeleteFunc(ended, func(o *version) bool { return o.deadline.at.After(c.now) })
	}
	// One effect changes one heir, because the record of an heir may be large.
	var heir *version
	if lives {
		heir = c.heirOf(r, v)
		due = slices.DeleteFunc(due, func(o *version) bool { return c.heirOf(r, o) != heir })
	}
	// The last version is forgotten alone, because the records of the stages may go with it.
	due = due[:min(len(due), effectReservations, len(c.byKey[v.r.Key])-1)]
	var effect model.Effect
	for _, o := range due {
		effect.Deletes = append(effect.Deletes, o.r.Ref())
	}
	if heir != nil {
		if next := r.granted().inherit(heir, due); next != nil {
			effect.Puts = append(effect.Puts, next)
		}
	}
	c.decide(effect)
	return true
}

// has reports whether a version is of the reservation.
func (r reservation) has(v *version) bool {
	return slices.Contains(r.members, v) || slices.Contains(r.past, v)
}

// heirOf returns the version whose record keeps how the workers of a version ended: its parent,
// which is kept as long as it has children, or the origin of those that live.
func (c *Core) heirOf(r reservation, v *version) *version {
	if parent := c.versions[v.r.Parent]; parent != nil && parent.r != nil {
		return parent
	}
	if heir := c.root(r.shown); heir != v {
		return heir
	}
	return nil
}

// granted returns the reservation without requested workers that may vanish, because they never
// had an executor: earlier workers of their indexes are then the newest again.
func (r reservation) granted() reservation {
	sets := pastSets(r.past, nil)
	for _, v := range r.members {
		if !v.isWaiting() || v.r.Origin != model.OriginRequested || v.r.Round > 0 {
			sets = append(sets, v.r.Workers)
		}
	}
	r.newest = unionOf(sets)
	return r
}

// inherit returns the record of an heir with the ends of workers of other versions, and which of
// them are missing; nil if it need not change.
func (r reservation) inherit(heir *version, others []*version) *model.Reservation {
	next := *heir.r
	next.Mod, next.Ends = 0, &model.Ends{}
	var ends []model.End
	var counted []model.WorkerSet
	for _, v := range others {
		if slices.Contains(r.members, v) {
			own, only := v.endsToKeep(r.overtaken(v))
			ends, counted = append(ends, own...), append(counted, only)
		}
		ends = append(ends, r.pastOf(v)...)
		if v.r.Ends != nil {
			counted = append(counted, v.r.Ends.Counted)
		}
		r.note(&next.Ends.Cause, v)
		missing, _ := v.missing()
		next.Missing = next.Missing.Raise(r.notOvertaken(missing))
	}
	if ends = joined(ends); len(ends) == 0 {
		return nil
	}
	if before := heir.r.Ends; before != nil {
		next.Ends.Own = before.Own
		ends, counted = append(ends, r.pastOf(heir)...), append(counted, before.Counted)
		r.note(&next.Ends.Cause, heir)
	}
	past, dropped := bounded(joined(ends))
	next.Ends.Past, next.Ends.Counted = past, r.notOvertaken(unionOf(append(counted, dropped...)))
	return &next
}

// endsToKeep returns how the workers of a member ended that are not overtaken, as Ends.Past has it, and those
// workers that are only counted.
func (v *version) endsToKeep(over model.WorkerSet) (ends []model.End, counted model.WorkerSet) {
	cancelled := v.r.Unwanted
	if v.is(model.Cancelled) || v.is(model.Expired) {
		cancelled = v.r.Workers
	}
	counted = v.r.Workers.Minus(over)
	for _, e := range v.ends(over) {
		counted = counted.Minus(e.Workers)
		kept := without(e.Workers, cancelled)
		others := e.Workers.Minus(kept)
		if e.Workers = kept; len(kept) > 0 || e.More > 0 {
			ends = append(ends, e)
		}
		if len(others) > 0 {
			e.Workers, e.More, e.Cancelled = others, 0, true
			ends = append(ends, e)
		}
	}
	return ends, counted
}

// statesOf returns the states of workers of the version's task.
func (v *version) statesOf(workers model.WorkerSet) iter.Seq[model.WorkerState] {
	return func(yield func(model.WorkerState) bool) {
		if len(workers) == 0 {
			return
		}
		var all []*model.TaskChunk // in order of index
		for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
			if len(v.tasks[n].Workers) > 0 {
				all = append(all, v.tasks[n])
			}
		}
		for workerID := range workers.All() {
			at, first := slices.BinarySearchFunc(all, workerID.Index, func(chunk *model.TaskChunk, index int32) int {
				return cmp.Compare(chunk.Workers[0].ID.Index, index)
			})
			if !first {
				at--
			}
			if at < 0 {
				continue
			}
			i, found := slices.BinarySearchFunc(all[at].Workers, workerID, func(w model.TaskWorker, id model.WorkerID) int {
				return w.ID.Compare(id)
			})
			if found && !yield(all[at].Workers[i].State) {
				return
			}
		}
	}
}
