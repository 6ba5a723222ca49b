package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

func drawKey(t *rapid.T) model.Key {
	return model.Key{
		Job:   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "job"),
		Stage: "s",
		Name:  rapid.SampledFrom([]string{"main", "more"}).Draw(t, "name"),
	}
}

func drawUpsert(t *rapid.T) model.Upsert {
	u := model.Upsert{
		Key:   drawKey(t),
		Count: rapid.Int32Range(1, 4).Draw(t, "count"),
		Spec: model.Spec{
			Constraints:  constraint.Constraints{SKU: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "sku")},
			Task:         model.Task{Command: rapid.SampledFrom([]string{"", "run"}).Draw(t, "command")},
			QueueTimeout: time.Hour,
		},
	}
	switch order := rapid.Int64Range(-1, 3).Draw(t, "order"); {
	case order >= 2:
	case order == 1:
		u.Spec.Priority.Class = model.ClassReplace
	default:
		u.Spec.Priority.Order = &order
	}
	return u
}

// After any decisions, commits and abandoned effects, the core has the same state as a new
// core that reads the store. Abandoned effects leave no trace.
func TestCoreIsAFunctionOfTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var config Config
		if rapid.Bool().Draw(t, "defaults") {
			config.DefaultAttributes = map[string]string{"zone": "a"}
		}
		w := newWorld(config)
		w.successor(10)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			w.hold, w.held = true, nil
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			w.step(nil)
			for range rapid.IntRange(0, 6).Draw(t, "inputs") {
				w.input(drawRequest(t))
			}
			durable := rapid.IntRange(0, len(w.held)).Draw(t, "durable")
			w.commitHeld(t, durable)
			if durable < len(w.held) {
				w.core.Step(w.now, model.Abandoned{})
			}
			w.hold = false
			w.compareAfresh(t)
			w.others(t)
			w.compareAfresh(t)
			w.nothingLivesTooLong(t)
		}
	})
}

func drawRequest(t *rapid.T) any {
	id := rapid.SampledFrom([]string{"", "", "r1", "r2", "r3"}).Draw(t, "request")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return request.Cancel{Key: drawKey(t), RequestID: id}
	case 6:
		key := drawKey(t)
		workerID := model.WorkerID{Index: rapid.Int32Range(0, 3).Draw(t, "index"),
			Number: rapid.Int32Range(1, 3).Draw(t, "number")}
		return request.CancelWorkers{Job: key.Job, Stage: key.Stage, Workers: []model.WorkerID{workerID}, RequestID: id}
	case 1:
		return request.CancelJob{Job: drawKey(t).Job, RequestID: id}
	case 2:
		if rapid.Bool().Draw(t, "job") {
			return request.Flush{Job: drawKey(t).Job, RequestID: id}
		}
		return request.Flush{Group: request.WithDefaults(drawUpsert(t)).Spec.Constraints.Group(), RequestID: id}
	}
	u := drawUpsert(t)
	u.RequestID = id
	if rapid.Bool().Draw(t, "volume") {
		u.Spec.Volume = &model.VolumeRequest{Resource: "slots"}
	}
	u.Spec.TargetSize = rapid.SampledFrom([]int32{0, 0, 8, 9}).Draw(t, "target")
	u.Spec.Start = rapid.SampledFrom([]model.Start{model.StartUnset, model.StartTogether}).Draw(t, "start")
	drawLife(t, &u.Spec)
	return u
}

// drawLife draws when the workers of a request begin, end and are restarted.
func drawLife(t *rapid.T, s *model.Spec) {
	draw := func(name string) time.Time {
		if n := rapid.IntRange(0, 15).Draw(t, name); n > 9 {
			return begin.Add(time.Duration(n-9) * 500 * time.Second)
		}
		return time.Time{}
	}
	s.ExpireAt, s.NotBefore = draw("expire"), draw("not before")
	if rapid.IntRange(0, 3).Draw(t, "lifetime") == 3 {
		s.Lifetime = model.Lifetime{For: 1000 * time.Second, From: model.FromCreated}
	}
	s.Restart = rapid.SampledFrom([]model.Restart{model.RestartNever, model.RestartOnFailure, model.RestartAlways}).
		Draw(t, "restart")
}

// nothingLivesTooLong checks that what has expired has ended or is being stopped, once the
// core has passed all deadlines, and that a version is in no queue before its time.
func (w *world) nothingLivesTooLong(t *rapid.T) {
	w.step(nil)
	for _, v := range w.core.versions {
		if !v.alive() {
			continue
		}
		if at := v.r.ExpiresAt(); !at.IsZero() && !at.After(w.now) {
			t.Fatalf("%s, %s, lives at %v past its expiry at %v", v.uid, v.r.State, w.now, at)
		}
		if v.entry.Group != nil && v.r.NotBefore.After(w.now) {
			t.Fatalf("%s is pending at %v, before %v", v.uid, w.now, v.r.NotBefore)
		}
	}
}

// commitHeld commits the given number of held effects, the earliest first. A transaction
// has several effects, unless two of them change the same record.
func (w *world) commitHeld(t *rapid.T, durable int) {
	for done := 0; done < durable; {
		touched, n := map[model.Ref]bool{}, 0
		revision := w.revision + 1
		for ; done+n < durable; n++ {
			refs := slices.Clone(w.held[done+n].Deletes)
			for _, record := range w.held[done+n].Puts {
				refs = append(refs, record.Ref())
			}
			if slices.ContainsFunc(refs, func(ref model.Ref) bool { return touched[ref] }) {
				break
			}
			for _, ref := range refs {
				touched[ref] = true
			}
			w.revision = revision - 1
			w.apply(w.held[done+n])
			if rapid.Bool().Draw(t, "close") {
				n++
				break
			}
		}
		w.core.Step(w.now, model.Committed{Effects: n, Revision: revision})
		done += n
	}
}

// others simulates the other services, which grant leases, and create and end tasks.
func (w *world) others(t *rapid.T) {
	for _, ref := range w.refs() {
		r, ok := w.records[ref].record.(*model.Reservation)
		if !ok {
			continue
		}
		lease := model.Ref{Kind: model.KindLeaseChunk, ID: r.UID}
		header := model.Ref{Kind: model.KindTaskHeader, ID: r.UID}
		_, leased := w.records[lease]
		_, handed := w.records[header]
		switch what := rapid.IntRange(0, 5).Draw(t, "other"); {
		case what == 0 && r.State == model.Queued && !leased:
			w.foreign(w.leaseOf(r.UID))
		case what == 1 && r.State == model.Queued && leased:
			w.foreign(model.Changed{Ref: header, Record: &model.TaskHeader{UID: r.UID,
				Complete: rapid.Bool().Draw(t, "complete")}})
		case what == 2 && handed:
			w.foreign(model.Changed{Ref: header, Record: &model.TaskHeader{
				UID: r.UID, Complete: true, Ended: true, Withdrawn: r.Spec.Start == model.StartTogether,
			}})
		case what == 5 && handed:
			chunk := &model.TaskChunk{UID: r.UID}
			for workerID := range r.Workers.All() {
				worker := model.TaskWorker{ID: workerID, State: model.WorkerFailed, Since: model.InstantOf(w.now)}
				if rapid.Bool().Draw(t, "alive") {
					worker.State = model.WorkerState(rapid.IntRange(1, 5).Draw(t, "state"))
				} else {
					worker.Requeue = r.Spec.Start != model.StartTogether && rapid.Bool().Draw(t, "requeue")
					worker.Reason = rapid.SampledFrom([]fault.Reason{"", fault.ReasonRoundsExhausted}).Draw(t, "reason")
					if rapid.Bool().Draw(t, "ran") {
						ran := time.Duration(rapid.IntRange(0, 1200).Draw(t, "for")) * time.Second
						worker.RunningSince = model.InstantOf(w.now.Add(-ran))
					}
				}
				chunk.Workers = append(chunk.Workers, worker)
			}
			w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk})
		case what == 3 && leased:
			w.foreign(model.Changed{Ref: lease})
		}
	}
}

func (w *world) compareAfresh(t *rapid.T) {
	fresh := New(w.core.config)
	for _, ref := range w.refs() {
		s := w.records[ref]
		fresh.Step(w.now, model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})
	}
	w.compareUsage(t)
	w.compareJobs(t)
	if diff := gocmp.Diff(strings.Split(fresh.dump(), "\n"), strings.Split(w.core.dump(), "\n")); diff != "" {
		t.Fatalf("the core differs from the store:\n%s", diff)
	}
}

// compareUsage compares the usage of the core with the sum over all records.
func (w *world) compareUsage(t *rapid.T) {
	var all usage
	of, by := map[string]usage{}, map[*model.Tenant]usage{}
	for ref, s := range w.records {
		var u usage
		switch record := s.record.(type) {
		case *model.Reservation:
			u.bytes = int64(request.Size(record))
			if record.State == model.Queued {
				u.queued = 1
			}
			if !record.State.Terminal() {
				u.workers = record.Workers.Len()
				chunk, _ := w.records[model.Ref{Kind: model.KindTaskChunk, ID: record.UID}].record.(*model.TaskChunk)
				for i := 0; chunk != nil && i < len(chunk.Workers); i++ {
					if chunk.Workers[i].State.Terminal() {
						u.workers--
					}
				}
			}
		case *model.Stage:
			u = usageOfStage(record)
		default:
			continue
		}
		all, of[ref.Key.Job] = all.plus(u), of[ref.Key.Job].plus(u)
		if tenant := w.core.tenants.Of(ref.Key.Job); tenant != nil {
			by[tenant] = by[tenant].plus(u)
		}
	}
	storedBy := maps.Clone(w.core.storedBy)
	maps.DeleteFunc(storedBy, func(_ *model.Tenant, u usage) bool { return u == usage{} })
	if all != w.core.stored || !maps.Equal(of, w.core.storedOf) || !maps.Equal(by, storedBy) {
		t.Fatalf("stored is %+v, by job %v, by tenant %v; the core has %+v, by job %v, by tenant %v", all, of, by,
			w.core.stored, w.core.storedOf, storedBy)
	}
}

// compareJobs compares the jobs of the core with a count over all records.
func (w *world) compareJobs(t *rapid.T) {
	jobs := map[string]*Job{}
	for ref, s := range w.records {
		r, isReservation := s.record.(*model.Reservation)
		if !isReservation {
			continue
		}
		j := jobs[ref.Key.Job]
		if j == nil {
			j = &Job{Name: ref.Key.Job}
			jobs[ref.Key.Job] = j
		}
		j.LastActivity = latest(j.LastActivity, r.UpdatedAt)
		chunk, _ := w.records[model.Ref{Kind: model.KindTaskChunk, ID: r.UID}].record.(*model.TaskChunk)
		rest := r.Workers.Len()
		for i := 0; chunk != nil && i < len(chunk.Workers); i++ {
			rest--
			j.LastActivity = latest(j.LastActivity, chunk.Workers[i].Since.Time())
			switch worker := chunk.Workers[i]; {
			case r.State.Terminal() || worker.State.Terminal():
			case worker.State == model.WorkerRunning:
				j.RunningWorkers++
			case worker.State == model.WorkerEvict || worker.State == model.WorkerEvicting:
				j.StoppingWorkers++
			default:
				j.ReservedWorkers++
			}
		}
		_, leased := w.records[model.Ref{Kind: model.KindLeaseChunk, ID: r.UID}]
		_, dispatched := w.records[model.Ref{Kind: model.KindTaskHeader, ID: r.UID}]
		switch {
		case r.State.Terminal():
			continue
		case r.State == model.Cancelling:
			j.StoppingWorkers += rest
		case r.State == model.Queued && !leased && !dispatched && r.NotBefore.After(w.now):
			j.DelayedReservations++
			j.DelayedWorkers += rest
		case r.State == model.Queued && !leased && !dispatched:
			j.PendingReservations++
			j.PendingWorkers += rest
		default:
			j.ReservedWorkers += rest
		}
		j.Reservations++
	}
	var want []Job
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		if jobs[name].Reservations > 0 {
			want = append(want, *jobs[name])
		}
	}
	var got []Job
	for more, after := true, ""; more; {
		var page []Job
		page, more = w.core.Jobs("", after, 2)
		got = append(got, page...)
		if more {
			after = got[len(got)-1].Name
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("the jobs of the core (+) differ from the records (-):\n%s", diff)
	}
	// The queues have exactly the pending reservations.
	depth, pending := w.core.scheduler.Depth(), scheduler.Depth{Groups: w.core.scheduler.Depth().Groups}
	for _, j := range got {
		pending.Reservations += j.PendingReservations
		pending.Workers += j.PendingWorkers
	}
	if depth != pending {
		t.Fatalf("the queues have %+v, and the jobs %+v", depth, pending)
	}
	for _, j := range got {
		used := w.core.storedOf[j.Name].workers
		if n := j.PendingWorkers + j.DelayedWorkers + j.ReservedWorkers + j.RunningWorkers + j.StoppingWorkers; n != used {
			t.Fatalf("%s has %d workers in all numbers, but %d count for its tenant", j.Name, n, used)
		}
	}
}

// twin is the reference implementation of the queue: a list of pending reservations that is
// sorted when it is read.
type twin struct {
	byClass bool
	waiting []*entry
	leased  []*entry
	used    map[string]map[int32]int32
	seq     int
}

// entry is a version of a reservation: a requested version, a part or a requeue.
type entry struct {
	u       model.Upsert
	uid     string
	requeue bool
	part    bool
	workers map[int32]int32
	// epoch and seq determine the place of the entry.
	epoch int64
	seq   int
	// refused is the epoch before the dispatch was refused, or 0. If it is set, no priority sorts the entry
	// before others.
	refused int64
	// done has the workers of the entry's batch that were dispatched earlier.
	done map[int32]bool
}

func (e *entry) indexes() []int32 { return slices.Sorted(maps.Keys(e.workers)) }

// before reports whether entry a is tried before entry b.
func (m *twin) before(a, b *entry) bool {
	switch {
	case a.requeue != b.requeue:
		return a.requeue
	case a.requeue:
		return a.seq < b.seq
	}
	x, y := m.ranks(a), m.ranks(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}

// ranks returns the values by which entries are sorted, the most important first.
func (m *twin) ranks(e *entry) []int64 {
	class, order := int64(4), e.epoch
	if e.u.Spec.Priority.Class != model.ClassUnset && e.refused == 0 {
		class = int64(e.u.Spec.Priority.Class)
	}
	if m.byClass {
		return []int64{class, 0, e.epoch, int64(e.seq), int64(e.indexes()[0])}
	}
	switch {
	case e.u.Spec.Priority.Order != nil && e.refused == 0:
		order = *e.u.Spec.Priority.Order
	case class == 1:
		order = 0
	}
	return []int64{order, 0, 0, int64(e.seq), int64(e.indexes()[0])}
}

// all returns the entries of a key that were requested, with their parts, but without
// requeues.
func (m *twin) all(key model.Key) []*entry {
	var all []*entry
	for _, e := range slices.Concat(m.waiting, m.leased) {
		if e.u.Key == key && !e.requeue {
			all = append(all, e)
		}
	}
	return all
}

func (m *twin) find(uid string) *entry {
	for _, e := range slices.Concat(m.waiting, m.leased) {
		if e.uid == uid {
			return e
		}
	}
	return nil
}

func (m *twin) drop(e *entry) {
	is := func(o *entry) bool { return o == e }
	m.waiting = slices.DeleteFunc(m.waiting, is)
	m.leased = slices.DeleteFunc(m.leased, is)
}

// queue returns the entries of one group in the order of the queue.
func (m *twin) queue(sku string) []*entry {
	var queue []*entry
	for _, e := range m.waiting {
		if e.u.Spec.Constraints.SKU == sku {
			queue = append(queue, e)
		}
	}
	return m.sorted(queue)
}

// sorted returns entries in the order of all groups.
func (m *twin) sorted(entries []*entry) []*entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b *entry) int {
		if m.before(a, b) {
			return -1
		}
		return 1
	})
}

// number returns the next unused number of a worker index.
func (m *twin) number(job string, index int32) int32 {
	if m.used[job] == nil {
		m.used[job] = map[int32]int32{}
	}
	m.used[job][index]++
	return m.used[job][index]
}

// upsert applies a request and returns the change that it makes.
func (m *twin) upsert(u model.Upsert, revision int64) model.Change {
	olds := m.all(u.Key)
	queued, asked := map[int32]int32{}, map[int32]bool{}
	for _, old := range olds {
		maps.Copy(queued, old.workers)
		maps.Copy(asked, old.done)
	}
	for i := range queued {
		asked[i] = true
	}
	isCount := func(n int, has func(int32) bool) bool {
		for i := range u.Count {
			if !has(i) {
				return false
			}
		}
		return n == int(u.Count)
	}
	same := isCount(len(queued), func(i int32) bool { return queued[i] != 0 }) ||
		isCount(len(asked), func(i int32) bool { return asked[i] })
	change, inPlace := model.Created, false
	next := &entry{u: u, workers: map[int32]int32{}, epoch: revision, seq: m.seq, done: map[int32]bool{}}
	if len(olds) > 0 {
		old := olds[0].u.Spec
		change = model.ChangeReplaced
		sameKind := old.Constraints.SKU == u.Spec.Constraints.SKU
		if sameKind && same && old.Task.Command == u.Spec.Task.Command && old.Batch == u.Spec.Batch {
			if !slices.ContainsFunc(olds, func(old *entry) bool { return !old.u.Spec.Priority.Equal(u.Spec.Priority) }) {
				return model.Unchanged
			}
			for _, old := range olds {
				old.prioritize(old.u.Spec.Priority, u.Spec.Priority)
				old.u = u
			}
			return model.Reordered
		}
		inPlace = sameKind
		for i := range u.Count {
			inPlace = inPlace && queued[i] != 0
		}
	}
	if inPlace {
		first := slices.MinFunc(olds, func(a, b *entry) int {
			if m.before(a, b) {
				return -1
			}
			return 1
		})
		next.epoch, next.seq, next.refused = first.epoch, first.seq, first.refused
		next.prioritize(first.u.Spec.Priority, u.Spec.Priority)
	} else {
		m.seq++
	}
	for i := range u.Count {
		if next.workers[i] = queued[i]; queued[i] == 0 {
			next.workers[i] = m.number(u.Key.Job, i)
		}
	}
	for _, old := range olds {
		m.drop(old)
	}
	m.waiting = append(m.waiting, next)
	return change
}

// prioritize makes an entry whose dispatch was refused sort by another priority.
func (e *entry) prioritize(before, after model.Priority) {
	if e.refused != 0 && !after.Equal(before) {
		e.epoch, e.refused = e.refused, 0
	}
}

// split moves the first workers of an entry into a part of its own.
func (m *twin) split(e *entry, fitting int) {
	part := *e
	part.uid, part.part = "", true
	part.workers = map[int32]int32{}
	rest := map[int32]int32{}
	for n, i := range e.indexes() {
		if n < fitting {
			part.workers[i] = e.workers[i]
		} else {
			rest[i] = e.workers[i]
		}
	}
	e.workers = rest
	m.waiting = append(m.waiting, &part)
}

// The queue behaves like a sorted list. With either strategy, it has the same order in
// every group as the list. This holds for any sequence of requests, reorders, replacements,
// cancels, requeues, splits, grants, refusals and failovers. Nothing is lost or duplicated,
// and every cycle has a prefix of each group.
func TestQueueIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &twin{used: map[string]map[int32]int32{}, byClass: rapid.Bool().Draw(t, "by class")}
		config := Config{BestEffort: rapid.Bool().Draw(t, "best effort")}
		if m.byClass {
			config.Scheduling.Order = scheduler.OrderByClass{}
		}
		w := newWorld(config)
		p := &player{t: t, w: w, twin: m}
		p.see(w.successor(10))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.now()
			p.play()
			p.compare()
		}
	})
}

type player struct {
	t     *rapid.T
	w     *world
	twin  *twin
	cycle *model.Cycle
	// cut has the positions of the pending entries at the start of the cycle in flight.
	cut map[*entry]int
	// refused maps each candidate that the last cycle refused to its revision. A candidate
	// that the cycle did not reach stays refused.
	refused map[string]int64
	call    *model.Dispatch
	reply   *model.Reply
	term    int64
	// others counts the reservations whose workers were given up.
	others int
}

func (p *player) now() { p.w.now = p.w.now.Add(2 * time.Millisecond) }

func (p *player) see(actions []model.Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case model.Effect:
			p.name(a)
		case model.Cycle:
			if p.cycle != nil {
				p.t.Fatalf("cycle %d while %d is in flight", a.Number, p.cycle.Number)
			}
			p.cycle = &a
			p.compareCycle(a)
		case model.Dispatch:
			if p.call != nil {
				p.t.Fatalf("two dispatches in flight: %v and %v", *p.call, a)
			}
			p.call = &a
		case model.Reply:
			p.reply = &a
		}
	}
}

// name copies the UIDs of new versions to the twin's entries with the same key and workers.
func (p *player) name(effect model.Effect) {
	for _, record := range effect.Puts {
		r, ok := record.(*model.Reservation)
		if !ok || r.State != model.Queued || p.twin.find(r.UID) != nil {
			continue
		}
		for _, e := range slices.Concat(p.twin.waiting, p.twin.leased) {
			if e.uid == "" && e.u.Key == r.Key && r.Workers.Equal(e.asks()) && e.requeue == (r.Origin == model.OriginRequeue) {
				e.uid = r.UID
				break
			}
		}
	}
}

func (e *entry) asks() model.WorkerSet {
	var workers []model.WorkerID
	for index, number := range e.workers {
		workers = append(workers, model.WorkerID{Index: index, Number: number})
	}
	return model.WorkerSetOf(workers)
}

// requeue returns a worker of a separate batch to the queue, or cancels a requeued worker
// by its first worker ID.
func (p *player) requeue() {
	for _, e := range slices.Concat(p.twin.waiting, p.twin.leased) {
		if e.requeue && rapid.Bool().Draw(p.t, "cancelled") {
			p.twin.drop(e)
			p.see(p.w.input(request.CancelWorkers{Job: e.u.Key.Job, Stage: e.u.Key.Stage,
				Workers: []model.WorkerID{{Number: 1}}}))
			if got := p.reply.Value.(WorkersCancelled).Count; got != 1 {
				p.t.Fatalf("%d workers are cancelled with %s", got, e.uid)
			}
			return
		}
	}
	p.others++
	u := drawUpsert(p.t)
	u.Count, u.Key.Job = 1, fmt.Sprint("other", p.others)
	p.twin.upsert(u, p.w.revision+1)
	p.see(p.w.input(u))
	parent := p.twin.all(u.Key)[0]
	p.twin.drop(parent)
	again := &entry{u: u, requeue: true, workers: map[int32]int32{0: p.twin.number(u.Key.Job, 0)}, seq: p.twin.seq,
		done: map[int32]bool{}}
	p.twin.seq++
	p.twin.waiting = append(p.twin.waiting, again)
	h := &model.TaskHeader{UID: parent.uid, Complete: true}
	chunk := &model.TaskChunk{UID: parent.uid, Workers: []model.TaskWorker{{ID: model.WorkerID{Number: 1},
		State: model.WorkerFailed, Requeue: true}}}
	p.see(p.w.foreign(p.w.leaseOf(parent.uid), model.Changed{Ref: h.Ref(), Record: h},
		model.Changed{Ref: chunk.Ref(), Record: chunk}))
	if again.uid == "" {
		p.t.Fatalf("the worker of %s is not queued again", parent.uid)
	}
}

func (p *player) compareCycle(cycle model.Cycle) {
	tried := map[string][]string{}
	for i, e := range cycle.Candidates {
		if i > 0 && p.twin.before(p.twin.find(e.UID), p.twin.find(cycle.Candidates[i-1].UID)) {
			p.t.Fatalf("cycle %d has %s before %s", cycle.Number, cycle.Candidates[i-1].UID, e.UID)
		}
		sku := p.twin.find(e.UID).u.Spec.Constraints.SKU
		tried[sku] = append(tried[sku], e.UID)
		if view, _ := p.w.core.GetUID(e.UID); e.Mod == 0 || e.Mod != view.Reservation.Mod {
			p.t.Fatalf("%s is a candidate and not durable", e.UID)
		}
		if e.Unchanged && p.refused[e.UID] != e.Mod {
			p.t.Fatalf("%s is sent by name, but its current version was not refused", e.UID)
		}
	}
	p.cut = map[*entry]int{}
	for i, e := range p.twin.sorted(p.twin.waiting) {
		p.cut[e] = i
	}
	for _, sku := range []string{"x", "y"} {
		if len(tried[sku]) == 0 && len(p.twin.queue(sku)) > 0 {
			p.t.Fatalf("cycle %d has nothing of %s", cycle.Number, sku)
		}
	}
	for sku, uids := range tried {
		for i, uid := range uids {
			if want := p.twin.queue(sku)[i].uid; uid != want {
				p.t.Fatalf("cycle %d has %v of %s, not %v first", cycle.Number, uid, sku, want)
			}
		}
	}
}

func (p *player) play() {
	switch rapid.IntRange(0, 11).Draw(p.t, "what") {
	case 0, 1, 2, 3:
		u := drawUpsert(p.t)
		u.Spec.Batch = rapid.SampledFrom([]model.Batch{model.BatchUnset, model.BatchUnset, model.BatchBestEffort}).Draw(p.t,
			"batch")
		want := p.twin.upsert(u, p.w.revision+1)
		p.see(p.w.input(u))
		if got := p.reply.Value.(Upserted).Change; got != want {
			p.t.Fatalf("%v: %s, want %s", u.Key, got, want)
		}
	case 4:
		key := drawKey(p.t)
		gone := p.twin.all(key)
		for _, e := range gone {
			p.twin.drop(e)
		}
		want := len(gone)
		p.see(p.w.input(request.Cancel{Key: key}))
		if got := p.reply.Value.(Cancelled).Count; got != want {
			p.t.Fatalf("cancel of %v ended %d, want %d", key, got, want)
		}
	case 5, 6:
		p.finishCycle()
	case 7, 8:
		p.finishDispatch()
	case 9, 10:
		p.requeue()
	case 11:
		p.cycle, p.call = nil, nil
		p.term++
		p.see(p.w.successor(10 + p.term))
	}
	p.now()
	p.see(p.w.step(nil))
	if next := p.w.core.NextDeadline(); !next.IsZero() && !next.After(p.w.now) {
		p.t.Fatalf("stepped at %v, next deadline %v", p.w.now, next)
	}
}

// overtakes fails the test if a candidate is granted while an entry that was before it at
// the start of the cycle is still pending, unless the entry's group was stopped before. A
// part that this cycle split off must also come first.
func (p *player) overtakes(granted *entry, stopped map[string]bool) {
	for _, e := range p.twin.waiting {
		at, pending := p.cut[e]
		switch sku := e.u.Spec.Constraints.SKU; {
		case pending && at < p.cut[granted] && !stopped[sku], e.part && e.uid == "":
			p.t.Fatalf("cycle %d grants %s before %v of another group", p.cycle.Number, granted.uid, *e)
		}
	}
}

// finishCycle grants a prefix of each group. It grants only candidates that have not
// changed, and none after the end that a grant or a part sets.
func (p *player) finishCycle() {
	if p.cycle == nil {
		p.w.now = p.w.now.Add(time.Second)
		return
	}
	done := scheduler.CycleDone{Cycle: p.cycle.Number}
	stopped, end, refused := map[string]bool{}, len(p.cycle.Candidates), p.refused
	p.refused = map[string]int64{}
	var leases []model.Changed
	for i, e := range p.cycle.Candidates {
		outcome := model.Outcome{UID: e.UID, Result: model.Behind}
		view, _ := p.w.core.GetUID(e.UID)
		sku := view.Reservation.Spec.Constraints.SKU
		switch {
		case i >= end, (e.Unchanged || len(done.Outcomes) > 0) && rapid.IntRange(0, 15).Draw(p.t, "later") == 15:
			end = min(end, i)
			if e.Unchanged {
				p.refused[e.UID] = refused[e.UID]
			}
			done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.Later})
			continue
		case e.Unchanged && !stopped[sku] && view.Reservation.Mod == e.Mod && rapid.Bool().Draw(p.t, "nothing new"):
			stopped[sku] = true
			p.refused[e.UID] = e.Mod
			continue
		}
		if !stopped[sku] {
			switch {
			case view.Reservation.Mod != e.Mod:
				outcome.Result = model.Stale
			case rapid.Bool().Draw(p.t, "fits"):
				outcome.Result = model.Granted
				leases = append(leases, p.w.leaseOf(e.UID))
				granted := p.twin.find(e.UID)
				p.overtakes(granted, stopped)
				p.twin.drop(granted)
				p.twin.leased = append(p.twin.leased, granted)
				if e.NextAt > 0 {
					end = min(end, int(e.NextAt))
				}
			default:
				outcome.Result = model.NoFit
				p.refused[e.UID] = e.Mod
				tried := p.twin.find(e.UID)
				outcome.Fitting = rapid.IntRange(0, len(tried.workers)-1).Draw(p.t, "fitting")
				batch := tried.u.Spec.Batch
				if best := batch == model.BatchBestEffort || batch == model.BatchUnset && p.w.core.config.BestEffort; best &&
					outcome.Fitting > 0 {
					p.twin.split(tried, outcome.Fitting)
					if e.Splits {
						end = i + 1
					}
				}
			}
		}
		stopped[sku] = outcome.Result != model.Granted
		done.Outcomes = append(done.Outcomes, outcome)
	}
	p.cycle = nil
	if len(leases) > 0 {
		p.w.write(leases...)
	}
	for i := range done.Outcomes {
		if done.Outcomes[i].Result == model.Granted {
			done.Outcomes[i].Lease = p.w.revision
		}
	}
	p.see(p.w.step(done))
	if len(leases) > 0 {
		p.see(p.w.show(leases...))
	}
}

// finishDispatch accepts or refuses each task. The accepted tasks run and end.
func (p *player) finishDispatch() {
	if p.call == nil {
		return
	}
	call := p.call
	p.call = nil
	var done DispatchDone
	var tasks []model.Changed
	for _, task := range call.Tasks {
		view, _ := p.w.core.GetUID(task.UID)
		outcome := model.DispatchOutcome{UID: task.UID}
		e := p.twin.find(task.UID)
		switch {
		case view.Reservation.Mod != task.Mod: // refused because the reservation changed: the lease is not at fault
		case rapid.Bool().Draw(p.t, "taken"):
			outcome.Accepted = true
			p.twin.drop(e)
			for i := range e.workers {
				e.done[i] = true
			}
			h := &model.TaskHeader{UID: task.UID, Complete: true, Ended: true}
			tasks = append(tasks, model.Changed{Ref: h.Ref(), Record: h}, model.Changed{Ref: p.w.leaseOf(task.UID).Ref})
		default:
			p.twin.drop(e)
			e.seq = p.twin.seq
			p.twin.seq++
			e.refused = cmp.Or(e.refused, e.epoch)
			e.epoch = 1 << 40 // sorted last until the revision of the new version is known
			e.uid = ""
			if !e.part {
				e.done = map[int32]bool{}
			}
			p.twin.waiting = append(p.twin.waiting, e)
		}
		done.Outcomes = append(done.Outcomes, outcome)
	}
	p.see(p.w.step(done))
	for _, e := range p.twin.waiting {
		if e.epoch == 1<<40 {
			view, _ := p.w.core.GetUID(e.uid)
			e.epoch = view.Reservation.Epoch
		}
	}
	if len(tasks) > 0 {
		p.see(p.w.foreign(tasks...))
	}
}

func (p *player) compare() {
	if got, want := p.w.core.Stats().Leased, len(p.twin.leased); got != want {
		p.t.Fatalf("%d leased, want %d", got, want)
	}
	total := 0
	for _, sku := range []string{"x", "y"} {
		queue := p.twin.queue(sku)
		total += len(queue)
		for i, e := range queue {
			view, ok := p.w.core.GetUID(e.uid)
			if !ok || view.Position != i+1 {
				p.t.Fatalf("%v (%s) is at %d, want %d of %s", e.u.Key, e.uid, view.Position, i+1, sku)
			}
			if !view.Reservation.Workers.Equal(e.asks()) {
				p.t.Fatalf("%v has %v, want %v", e.u.Key, view.Reservation.Workers, e.workers)
			}
		}
	}
	for _, g := range p.w.pending() {
		total -= g.Reservations
	}
	if total != 0 {
		p.t.Fatalf("%d pending reservations are unknown to the core", total)
	}
}
