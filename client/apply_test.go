package client

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	berthv1 "berth.dev/api/berth/v1"
)

// eventHistory is the history of a job. It has one event for each revision from 1 on, and
// the state at each revision.
type eventHistory struct {
	*rapid.T
	events  []*berthv1.Event
	states  []state
	workers map[string][]*berthv1.WorkerID // by UID of the version
	epochs  map[string]int64
	next    int32 // the lowest unused worker index
	// splitRevisions has the revisions that services show only together with the next
	// revision.
	splitRevisions map[int64]bool
}

// state is the state of a job at one revision. A queued worker has the state 0.
type state struct {
	versions map[string]berthv1.Reservation_State
	workers  map[workerID]known
}

type known struct {
	uid   string
	state berthv1.Assignment_State
}

func (p *eventHistory) now() state      { return p.states[len(p.states)-1] }
func (p *eventHistory) revision() int64 { return int64(len(p.events)) }

// addEvent adds an event and the state after it.
func (p *eventHistory) addEvent(kind berthv1.Event_Kind, uid string, change func(state),
	workers ...*berthv1.EventWorker) {
	after := state{maps.Clone(p.now().versions), maps.Clone(p.now().workers)}
	change(after)
	event := eventOf(p.revision()+1, kind, uid, workers...)
	if rapid.IntRange(0, 4).Draw(p.T, "named") == 0 {
		event.Workers = nil // the event has only the number of workers
	}
	p.events, p.states = append(p.events, event), append(p.states, after)
}

// asks adds a queued version with the given workers.
func (p *eventHistory) asks(workers ...*berthv1.WorkerID) {
	uid := fmt.Sprintf("1-%d", len(p.workers)+1)
	p.workers[uid], p.epochs[uid] = workers, p.revision()+1
	p.addEvent(berthv1.Event_RESERVATION_QUEUED, uid, func(s state) {
		s.versions[uid] = berthv1.Reservation_QUEUED
		for _, id := range workers {
			s.workers[workerID{id.GetIndex(), id.GetNumber()}] = known{uid: uid}
		}
	}, p.named(uid)...)
}

func (p *eventHistory) named(uid string) []*berthv1.EventWorker {
	var workers []*berthv1.EventWorker
	for _, id := range p.workers[uid] {
		workers = append(workers, of(id.GetIndex(), id.GetNumber(), 0))
	}
	return workers
}

// setState starts or ends a version.
func (p *eventHistory) setState(kind berthv1.Event_Kind, uid string) {
	p.addEvent(kind, uid, func(s state) { s.versions[uid] = eventStates[kind] }, p.named(uid)...)
}

// addRandomEvent adds a random event that is possible in the current state.
func (p *eventHistory) addRandomEvent() {
	now := p.now()
	uid := fmt.Sprintf("1-%d", rapid.IntRange(1, len(p.workers)).Draw(p.T, "version"))
	untouched, over := true, true
	for _, w := range now.workers {
		if w.uid == uid {
			untouched = untouched && w.state == 0
			over = over && terminal(w.state)
		}
	}
	switch version := now.versions[uid]; {
	case Ended(version):
		n := rapid.Int32Range(1, 3).Draw(p.T, "fresh")
		var fresh []*berthv1.WorkerID
		for range n {
			fresh = append(fresh, &berthv1.WorkerID{Index: p.next, Number: 1})
			p.next++
		}
		p.asks(fresh...)
	case version == berthv1.Reservation_QUEUED && untouched && rapid.Bool().Draw(p.T, "replaced"):
		p.setState(berthv1.Event_RESERVATION_REPLACED, uid)
		p.splitRevisions[p.revision()] = true
		p.asks(p.workers[uid]...)
	case version == berthv1.Reservation_QUEUED && untouched && rapid.IntRange(0, 3).Draw(p.T, "cancelled") == 0:
		p.setState(berthv1.Event_RESERVATION_CANCELLED, uid)
	case version == berthv1.Reservation_QUEUED && rapid.Bool().Draw(p.T, "assigned"):
		p.setState(berthv1.Event_RESERVATION_ASSIGNED, uid)
	case version == berthv1.Reservation_ACTIVE && over:
		p.setState(berthv1.Event_RESERVATION_COMPLETED, uid)
	default:
		p.moves(uid)
	}
}

// moves changes the state of a worker of a version. If the worker is lost, it is requested
// again with the next number.
func (p *eventHistory) moves(uid string) {
	workers := p.workers[uid]
	at := workers[rapid.IntRange(0, len(workers)-1).Draw(p.T, "worker")]
	id := workerID{at.GetIndex(), at.GetNumber()}
	was := p.now().workers[id].state
	next := berthv1.Assignment_State(rapid.Int32Range(int32(berthv1.Assignment_ASSIGNED),
		int32(berthv1.Assignment_EVICTED)).Draw(p.T, "state"))
	stopping := was == berthv1.Assignment_EVICT || was == berthv1.Assignment_EVICTING
	if !follows(was, next) || next == berthv1.Assignment_EVICTING && was != berthv1.Assignment_STATE_UNSPECIFIED &&
		!stopping {
		return
	}
	p.addEvent(berthv1.Event_WORKER_RUNNING, uid, func(s state) { s.workers[id] = known{uid, next} },
		of(id.index, id.number, next))
	if next == berthv1.Assignment_LOST {
		p.asks(&berthv1.WorkerID{Index: id.index, Number: id.number + 1})
	}
}

// list returns the lists of both services, at the given revision or later. Each list has a
// revision of its own, and its content may be newer than that revision.
func (p *eventHistory) list(from int64) *listing {
	l := &listing{}
	draw := func(what string) state {
		revision := rapid.Int64Range(from, p.revision()).Draw(p.T, what)
		l.reached(revision, fmt.Sprint(revision))
		shows := rapid.Int64Range(revision, p.revision()).Draw(p.T, what+" shows")
		if p.splitRevisions[shows] {
			shows++
		}
		return p.states[shows]
	}
	registry, assigner := draw("registry"), draw("assigner")
	highest := map[int32]int32{}
	for uid, version := range registry.versions {
		l.versions = append(l.versions, &berthv1.Reservation{
			Job: "j", Stage: "s", Name: "main", Uid: uid, Epoch: p.epochs[uid], State: version, Workers: p.workers[uid],
		})
		for _, id := range p.workers[uid] {
			highest[id.GetIndex()] = max(highest[id.GetIndex()], id.GetNumber())
		}
	}
	slices.SortFunc(l.versions, func(a, b *berthv1.Reservation) int { return int(a.GetEpoch() - b.GetEpoch()) })
	used := &berthv1.StageWorkers{Stage: "s"}
	for index, number := range highest {
		used.Workers = append(used.Workers, &berthv1.WorkerID{Index: index, Number: number})
	}
	l.stages = []*berthv1.StageWorkers{used}
	for id, w := range assigner.workers {
		// The task of a version may be deleted some time after the version ended.
		if w.state == 0 || Ended(assigner.versions[w.uid]) && rapid.Bool().Draw(p.T, "gone") {
			continue
		}
		l.assignments = append(l.assignments, &berthv1.Assignment{
			Job: "j", Stage: "s", Reservation: "main", Uid: w.uid, Epoch: p.epochs[w.uid], Index: id.index, Number: id.number,
			State: w.state,
		})
	}
	return l
}

// A client may start from any list, even if parts of the list are newer than its revision.
// The events after the list lead to the final state, and no state ever moves backwards.
func TestListsAndEventsAgree(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := &eventHistory{T: r, workers: map[string][]*berthv1.WorkerID{}, epochs: map[string]int64{}, next: 1,
			splitRevisions: map[int64]bool{}}
		p.states = []state{{map[string]berthv1.Reservation_State{}, map[workerID]known{}}}
		p.asks(&berthv1.WorkerID{Index: 0, Number: 1})
		for range rapid.IntRange(0, 60).Draw(r, "steps") {
			p.addRandomEvent()
		}

		job, now := newJob("j"), time.Now()
		job.replace(p.list(0), now)
		first := job.Revision()
		for _, event := range p.events[first:] {
			before := job.Workers("s")
			if !job.apply(event, now) {
				job.replace(p.list(event.GetRevision()), now)
			}
			p.checkForward(before, job)
		}
		p.is(job)
	})
}

// checkForward fails if the state of a worker moves backwards.
func (p *eventHistory) checkForward(before []Worker, job *Job) {
	after := map[workerID]Worker{}
	for _, w := range job.Workers("s") {
		after[workerID{w.Index, w.Number}] = w
	}
	for _, was := range before {
		w, there := after[workerID{was.Index, was.Number}]
		moved := w.State == was.State || follows(was.State, w.State) || w.Ended && w.State == 0
		if !there || !moved || was.Ended && !w.Ended {
			p.Fatalf("%v changed to %v (found: %v)", was, w, there)
		}
	}
}

// is fails unless the job has the expected state.
func (p *eventHistory) is(job *Job) {
	now := p.now()
	if versions := job.Versions(); len(versions) != len(now.versions) {
		p.Errorf("%d versions, want %d", len(versions), len(now.versions))
	}
	for _, v := range job.Versions() {
		if v.State != now.versions[v.UID] || v.Epoch != p.epochs[v.UID] {
			p.Errorf("%v, want %v of epoch %d", v, now.versions[v.UID], p.epochs[v.UID])
		}
	}
	workers := job.Workers("s")
	if len(workers) != len(now.workers) {
		p.Errorf("%d workers, want %d", len(workers), len(now.workers))
	}
	for _, w := range workers {
		want := now.workers[workerID{w.Index, w.Number}]
		over := Ended(now.versions[want.uid])
		forgotten := over && w.State == 0
		if w.UID != want.uid || w.State != want.state && !forgotten || w.Ended != (over || terminal(want.state)) {
			p.Errorf("%v, want %+v", w, want)
		}
		if newest := job.NewestWorkers("s")[w.Index]; newest.Number < w.Number {
			p.Errorf("index %d has number %d, want %d", w.Index, newest.Number, w.Number)
		}
	}
}

// Ended versions are forgotten after KeepEnded. Only the highest number of each worker
// index is kept.
func TestEndedVersionsAreForgotten(t *testing.T) {
	job, now := newJob("j"), time.Now()
	job.apply(eventOf(1, berthv1.Event_RESERVATION_QUEUED, "1-1", of(0, 1, 0)), now)
	job.apply(eventOf(2, berthv1.Event_WORKER_LOST, "1-1", of(0, 1, berthv1.Assignment_LOST)), now)
	job.apply(eventOf(3, berthv1.Event_RESERVATION_COMPLETED, "1-1", of(0, 1, 0)), now)
	job.apply(eventOf(4, berthv1.Event_RESERVATION_QUEUED, "1-2", of(1, 1, 0)), now.Add(KeepEnded))
	if n := len(job.Versions()); n != 2 {
		t.Errorf("%d versions, want both", n)
	}
	job.apply(eventOf(5, berthv1.Event_RESERVATION_ASSIGNED, "1-2", of(1, 1, 0)), now.Add(KeepEnded+time.Second))
	if versions, workers := job.Versions(), job.Workers("s"); len(versions) != 1 || versions[0].UID != "1-2" ||
		len(workers) != 1 {
		t.Errorf("versions left: %v, workers left: %v", versions, workers)
	}
	if w := job.NewestWorkers("s")[0]; w.Number != 1 || !w.Ended || w.State != 0 {
		t.Errorf("index 0 = %+v", w)
	}
}

// If Berth requeues a worker, the worker is Requeued until its version has ended.
func TestRequeuedWorkers(t *testing.T) {
	job, now := newJob("j"), time.Now()
	job.apply(eventOf(1, berthv1.Event_RESERVATION_QUEUED, "1-1", of(0, 1, 0), of(1, 1, 0)), now)
	job.apply(eventOf(2, berthv1.Event_WORKER_REQUEUED, "1-1", of(0, 1, berthv1.Assignment_FAILED)), now)
	if w := job.NewestWorkers("s")[0]; !w.Ended || !w.Requeued {
		t.Errorf("before its requeue: %+v", w)
	}
	job.apply(eventOf(3, berthv1.Event_RESERVATION_REQUEUED, "1-2", of(0, 2, 0)), now)
	if w := job.NewestWorkers("s")[0]; w.Ended || w.Number != 2 || w.UID != "1-2" {
		t.Errorf("its requeue: %+v", w)
	}
	job.apply(eventOf(4, berthv1.Event_WORKER_REQUEUED, "1-2", of(0, 2, berthv1.Assignment_FAILED)), now)
	job.apply(eventOf(5, berthv1.Event_RESERVATION_CANCELLED, "1-2", of(0, 2, 0)), now)
	if w := job.NewestWorkers("s")[0]; !w.Ended || w.Requeued {
		t.Errorf("cancelled before its requeue: %+v", w)
	}
}
