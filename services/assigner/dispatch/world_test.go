package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// world simulates everything around one core: the store with its view, the other services
// and the clock. At every step, world checks the promises of the core.
type world struct {
	core     *Core
	cfg      Config
	now      time.Time
	revision int64
	// records is the content of the store. own is the part of the store that the assigner
	// owns, including the effects that are not durable yet.
	records map[model.Ref]stored
	own     map[model.Ref]model.Record
	effects []model.Effect
	held    []model.Action
	// sent counts the submits of each worker by attempt.
	sent map[workerKey]map[int32]int
	// unsent has the answers to submits that the core withdrew before they were sent.
	unsent []SubmitDone
	failed []string
}

type stored struct {
	record      model.Record
	create, mod int64
}

func newWorld(cfg Config) *world {
	w := &world{
		core: New(cfg), cfg: cfg.orDefault(), revision: 1,
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		records: map[model.Ref]stored{}, own: map[model.Ref]model.Record{},
		sent: map[workerKey]map[int32]int{},
	}
	ready := &model.Ready{Since: w.now, By: "auto"}
	w.records[ready.Ref()] = stored{ready, w.revision, w.revision}
	w.core.Step(w.now, model.Changed{Ref: ready.Ref(), Record: ready, Create: w.revision, Mod: w.revision})
	return w
}

func (w *world) fail(format string, args ...any) {
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

// write stores a record of another service and sends it to the core. A nil record deletes.
// The batch of changes ends with progress.
func (w *world) write(ref model.Ref, record model.Record) {
	w.revision++
	old := w.records[ref]
	if record == nil {
		delete(w.records, ref)
		w.step(model.Changed{Ref: ref, Mod: w.revision})
		return
	}
	s := stored{record, cmp.Or(old.create, w.revision), w.revision}
	w.records[ref] = s
	w.step(model.Changed{Ref: ref, Record: record, Create: s.create, Mod: s.mod})
}

func (w *world) progress() { w.step(model.Progress{Revision: w.revision}) }

// elect makes the core the leader of a new term.
func (w *world) elect() []model.Action {
	w.revision++
	return w.step(model.Elected{Term: w.revision, Revision: w.revision})
}

// succeed replaces the core by another leader, which reads the store.
func (w *world) succeed() []model.Action {
	w.effects, w.held, w.unsent = nil, nil, nil
	w.core = w.rebuilt()
	w.own = map[model.Ref]model.Record{}
	for ref, s := range w.records {
		if ref.Kind == model.KindTaskHeader || ref.Kind == model.KindTaskChunk {
			w.own[ref] = s.record
		}
	}
	return w.elect()
}

// rebuilt returns a new core that has read all records of the store, in an order that differs from
// one revision to the next.
func (w *world) rebuilt() *Core {
	c := New(w.cfg)
	refs := slices.SortedFunc(maps.Keys(w.records), func(a, b model.Ref) int {
		return cmp.Compare(w.records[a].mod, w.records[b].mod)
	})
	if w.revision%2 == 1 {
		slices.Reverse(refs)
	}
	for _, ref := range refs {
		s := w.records[ref]
		c.Step(w.now, model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})
	}
	c.Step(w.now, model.Progress{Revision: w.revision})
	return c
}

// step sends an event to the core and returns the actions that are carried out at once.
// Actions that follow an effect wait until the effect is durable. The outcome of a call that
// does not name its call is that of the call in flight.
func (w *world) step(event model.Event) []model.Action {
	var carried []model.Action
	for _, action := range w.core.Step(w.now, w.core.named(event)) {
		switch a := action.(type) {
		case model.Effect:
			w.check(a)
			w.effects = append(w.effects, a)
		case DropVolumes:
			w.checkDrop(a)
		}
		w.held = append(w.held, action)
	}
	if len(w.effects) == 0 {
		carried, w.held = w.carry(w.held), nil
	}
	return carried
}

// named returns an event with the number of the call in flight, if the event is an outcome
// without one.
func (c *Core) named(event model.Event) model.Event {
	number := func(key workerKey, stop instance) int64 {
		if f := c.calls[callKey{key, stop}]; f != nil {
			return f.number
		}
		return 0
	}
	switch d := event.(type) {
	case SubmitDone:
		if key, ok := c.workerKey(d.Executor, d.UID, d.WorkerID); ok && d.Call == 0 {
			d.Call = number(key, instance{})
		}
		return d
	case SubmitsDone:
		all := slices.Clone(d)
		for i := range all {
			all[i] = c.named(all[i]).(SubmitDone)
		}
		return all
	case StopDone:
		if key, ok := c.workerKey(d.Executor, d.UID, d.Worker.ID); ok && d.Call == 0 {
			d.Call = number(key, instance{d.UID, d.Worker, d.Epoch})
		}
		return d
	case DropDone:
		if d.Call == 0 {
			d.Call = number(workerKey{ordinal: c.ordinals[d.Executor]}, instance{})
		}
		return d
	}
	return event
}

// check checks the limits of an effect and its state transitions.
func (w *world) check(e model.Effect) {
	if n := len(e.Puts) + len(e.Deletes); n > maxPuts || n == 0 {
		w.fail("an effect of %d records", n)
	}
	for _, event := range e.Events {
		if len(event.Workers) > model.MaxEventWorkers || int(event.Count) < len(event.Workers) || event.Count == 0 {
			w.fail("event %d names %d of %d", event.Kind, len(event.Workers), event.Count)
		}
	}
	for _, ref := range e.Deletes {
		delete(w.own, ref)
	}
	seen := map[model.Ref]bool{}
	for _, put := range e.Puts {
		ref := put.Ref()
		if seen[ref] {
			w.fail("%v is put twice in one effect", ref)
		}
		seen[ref] = true
		before, _ := w.own[ref].(*model.TaskChunk)
		if after, ok := put.(*model.TaskChunk); ok && before != nil {
			for i, is := range after.Workers {
				was := before.Workers[i]
				if was.ID != is.ID || was.Ordinal != is.Ordinal {
					w.fail("%s moved to another executor", is.ID)
				}
				if was.State != is.State && !was.State.MayBecome(is.State) {
					w.fail("%s: %s became %s", is.ID, was.State, is.State)
				}
				w.checkMark(after.UID, was, is)
			}
		}
		w.own[ref] = put
	}
}

// checkDrop checks that the records say that the volumes of a request are to be destroyed when
// the core decides it. They may change before the request is sent, which is harmless: nothing
// ends the destruction of a volume except its confirmation, and no other volume gets its ID.
func (w *world) checkDrop(d DropVolumes) {
	e, _ := w.records[executorRef(d.Executor)].record.(*model.Executor)
	for _, id := range d.IDs {
		recorded := w.volumesOf(id)
		removal := len(recorded) == 0 && slices.Contains(e.Removals, id)
		if !removal && !slices.ContainsFunc(recorded, func(v model.Volume) bool {
			return v.State == model.VolumeDestroying && v.Ordinal == e.Ordinal
		}) {
			w.fail("%s destroys %s, of which the records say %+v", d.Executor, id, recorded)
		}
	}
}

// volumesOf returns the stored volumes with an ID. Only some transcripts use an ID twice.
func (w *world) volumesOf(id string) (list []model.Volume) {
	for _, s := range w.records {
		if chunk, ok := s.record.(*model.VolumeChunk); ok {
			for _, v := range chunk.Volumes {
				if v.ID == id {
					list = append(list, v)
				}
			}
		}
	}
	return list
}

// checkMark checks the mark of a worker against its reservation: only the effect that ends
// the worker sets it, and only if a policy names that end. With restart ALWAYS, every
// worker that ends by itself has it.
func (w *world) checkMark(uid string, was, is model.TaskWorker) {
	if was.State.Terminal() {
		if was.Unconfirmed { // the executor may still answer
			was.Unconfirmed, was.UnansweredSince = is.Unconfirmed, is.UnansweredSince
			was.Cleared, was.Reason, was.NeverStarted = is.Cleared, is.Reason, is.NeverStarted
			was.Incarnation, was.Sequence = is.Incarnation, is.Sequence
		}
		if was.Later, was.Host = is.Later, is.Host; was != is { // what became of a later worker
			w.fail("%s of %s has ended and changed: %+v, before %+v", is.ID, uid, is, was)
		}
		return
	}
	r, _ := w.records[reservationRef(uid)].record.(*model.Reservation)
	if r == nil || !is.State.Terminal() {
		if is.Requeue {
			w.fail("marked: %+v of %v", is, r)
		}
		return
	}
	s, ran := r.Spec, time.Duration(-1)
	if !is.RunningSince.IsZero() {
		ran = w.now.Sub(is.RunningSince.Time())
	}
	over := r.State != model.Queued && r.State != model.Active || r.Unwanted.Has(is.ID) ||
		s.Lifetime.For > 0 && ran >= s.Lifetime.For
	stop := fault.Reason("")
	if was.State >= model.WorkerEvict {
		stop = was.Reason
	}
	switch stop {
	case fault.ReasonCancelled, fault.ReasonExpired, fault.ReasonLifetime, fault.ReasonNotTogether:
		over = true
	case fault.ReasonExecutorDraining:
		over = over || s.OnWorkerLoss != model.OnLossReplace
	}
	failures := r.Failures
	if r.Origin != model.OriginRequeue {
		failures = 0
	}
	unanswered := was.State == model.WorkerAssigned && is.Unconfirmed // the silent executor did not start it
	moved := is.State == model.WorkerEvicted || is.State == model.WorkerLost && !is.GaveUp() && !unanswered
	exhausted := s.Restart != model.RestartAlways && failures >= s.RestartLimit() && ran < model.StableAfter && !moved &&
		(is.State != model.WorkerLost || s.OnWorkerLoss != model.OnLossReplace)
	restarts := s.RestartsExit(is.ExitCode)
	named := restarts && s.Restart == model.RestartAlways ||
		restarts && s.Restart == model.RestartOnFailure && is.State == model.WorkerFailed ||
		s.OnWorkerLoss == model.OnLossReplace && (is.State == model.WorkerLost || is.State == model.WorkerEvicted) ||
		s.OnFailure != model.OnFailureNotify && (is.State == model.WorkerFailed || is.State == model.WorkerLost) &&
			is.RunningSince.IsZero() && (is.Attempts >= s.MaxAttempts || is.Reason == fault.ReasonExecutorRefuses ||
			!is.UnansweredSince.IsZero() && was.State == model.WorkerAssigned)
	if is.Requeue && (over || exhausted || !named) {
		w.fail("marked: %+v, before %+v, of %+v", is, was, r)
	}
	ended := is.State == model.WorkerCompleted || is.State == model.WorkerFailed
	lost := s.OnWorkerLoss == model.OnLossReplace && moved && stop == ""
	if s.Start != model.StartTogether && !over && !is.Requeue &&
		(s.Restart == model.RestartAlways && restarts && ended && stop == "" || lost && is.ID.Number < model.MaxNumber) {
		w.fail("not marked: %+v of %+v", is, r)
	}
}

// commit makes the first n effects durable if their compares succeed, and returns the
// actions that are then carried out. If the effects were abandoned instead, commit returns
// false.
func (w *world) commit(n int) ([]model.Action, bool) {
	n = min(n, len(w.effects))
	for _, e := range w.effects[:n] {
		for _, x := range e.Expect {
			s, there := w.records[x.Ref]
			if x.Absent && there || x.Mod != 0 && s.mod != x.Mod || x.Create != 0 && s.create != x.Create {
				w.abandon()
				return nil, false
			}
		}
	}
	w.revision++
	for _, e := range w.effects[:n] {
		for _, put := range e.Puts {
			w.records[put.Ref()] = stored{put, cmp.Or(w.records[put.Ref()].create, w.revision), w.revision}
		}
		for _, ref := range e.Deletes {
			delete(w.records, ref)
		}
	}
	w.effects = w.effects[n:]
	w.core.Step(w.now, model.Committed{Effects: n, Revision: w.revision})
	cut := 0
	for cut < len(w.held) {
		if _, ok := w.held[cut].(model.Effect); ok {
			if n == 0 {
				break
			}
			n--
		}
		cut++
	}
	carried := slices.Clone(w.held[:cut])
	w.held = w.held[cut:]
	return w.carry(carried), true
}

func (w *world) abandon() {
	w.effects, w.held = nil, nil
	w.own = map[model.Ref]model.Record{}
	for ref, s := range w.records {
		if ref.Kind == model.KindTaskHeader || ref.Kind == model.KindTaskChunk {
			w.own[ref] = s.record
		}
	}
	w.step(model.Abandoned{})
}

// carry checks requests against the durable records. It returns the actions that are
// carried out.
func (w *world) carry(actions []model.Action) (carried []model.Action) {
	for _, action := range actions {
		submit, ok := action.(Submit)
		if !ok {
			carried = append(carried, action)
			continue
		}
		if !w.core.Wanted(submit) {
			w.unsent = append(w.unsent, SubmitDone{Executor: submit.Executor, UID: submit.UID,
				WorkerID: submit.Worker.ID, Attempt: submit.Attempt,
				Outcome: NotSent{}})
			continue
		}
		carried = append(carried, action)
		key := workerKey{w.core.ordinals[submit.Executor], submit.UID, submit.Worker.ID}
		header, _ := w.records[model.Ref{Kind: model.KindTaskHeader, ID: submit.UID}].record.(*model.TaskHeader)
		if header == nil || !header.Complete || header.Stopping {
			w.fail("submit of %s for a task that is not to be started", submit.Worker)
			continue
		}
		if state := w.state(submit.UID, submit.Worker.ID); state != model.WorkerAssigned {
			w.fail("submit of %s, which is %s", submit.Worker, state)
		}
		if w.sent[key] == nil {
			w.sent[key] = map[int32]int{}
		}
		w.sent[key][submit.Attempt]++
		if submit.Attempt > w.core.maxAttempts(submit.UID) {
			w.fail("attempt %d of %s", submit.Attempt, submit.Worker)
		}
	}
	total, per := 0, map[uint32]int{}
	for key := range w.core.calls {
		total++
		per[key.ordinal]++
		if per[key.ordinal] > w.cfg.PerExecutor || total > w.cfg.InFlight {
			w.fail("%d in flight, %d at executor %d", total, per[key.ordinal], key.ordinal)
		}
	}
	return carried
}

// state returns the durable state of a worker.
func (w *world) state(uid string, workerID model.WorkerID) model.WorkerState {
	for ref, s := range w.records {
		if chunk, ok := s.record.(*model.TaskChunk); ok && ref.ID == uid {
			for _, worker := range chunk.Workers {
				if worker.ID == workerID {
					return worker.State
				}
			}
		}
	}
	return model.WorkerUnset
}

// dump returns the whole state that a core derives from records.
func dump(c *Core) string {
	var b strings.Builder
	for uid := range c.uids.All() {
		t := c.tasks[uid]
		fmt.Fprintf(&b, "task %s %+v %v leaving %d\n", uid, t.header, t.counts, t.leaving)
		for n, chunk := range t.chunks {
			fmt.Fprintf(&b, "  chunk %d %+v\n", n, chunk)
		}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(c.hosts)) {
		if h := c.hosts[ordinal]; h.record != nil || len(h.placed) > 0 {
			fmt.Fprintf(&b, "host %d %v %v\n", ordinal, h.record, h.placed)
		}
	}
	var requests []string
	for key, r := range c.requests {
		requests = append(requests, fmt.Sprintf("request %v %d %s", key, r.kind, r.state))
	}
	slices.Sort(requests)
	for l := range c.lifetimes.All() {
		requests = append(requests, fmt.Sprintf("lifetime %v of %v", l.end, l.placed))
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.gangs), model.Key.Compare) {
		g := c.gangs[key]
		fmt.Fprintf(&b, "gang %s of %d %v\n", key, c.workers(g), g.versions)
	}
	fmt.Fprintf(&b, "%s\nreservations %d leases %d live %v ordinals %v\n",
		strings.Join(requests, "\n"), len(c.reservations), len(c.leases), c.live, c.ordinals)
	return b.String()
}

// maxTaskAtOnce is the largest number of workers for which one effect can create the task.
const maxTaskAtOnce = (maxPuts - 1) * model.TaskChunkSize

// Task returns the header of a task and its workers, sorted by worker ID. It returns false
// if there is no such task.
func (c *Core) Task(uid string) (model.TaskHeader, []model.TaskWorker, bool) {
	t := c.tasks[uid]
	if t == nil || t.header == nil {
		return model.TaskHeader{}, nil, false
	}
	var workers []model.TaskWorker
	for _, chunk := range t.chunks {
		if chunk != nil {
			workers = append(workers, chunk.Workers...)
		}
	}
	return *t.header, workers, true
}

// The following methods write the records of other services.

func (w *world) executor(n uint32, incarnation int64, lost bool) {
	id := fmt.Sprintf("e%d", n)
	w.write(executorRef(id), &model.Executor{
		ID: id, Address: id + ":7200", Ordinal: n, Incarnation: incarnation, Lost: lost,
	})
}

func executorRef(id string) model.Ref { return model.Ref{Kind: model.KindExecutor, ID: id} }

// drain starts or ends the drain of an executor.
func (w *world) drain(id string, draining bool, grace *time.Duration) {
	e := *w.records[executorRef(id)].record.(*model.Executor)
	e.Draining, e.DrainGrace = draining, grace
	w.write(e.Ref(), &e)
}

func (w *world) silence(id string, silent bool) {
	e := *w.records[executorRef(id)].record.(*model.Executor)
	e.Silent = silent
	w.write(e.Ref(), &e)
}

func (w *world) present(id string, there bool) {
	ref := model.Ref{Kind: model.KindLive, ID: id}
	if there {
		w.write(ref, &model.Live{ID: id})
	} else {
		w.write(ref, nil)
	}
}

// key returns the key of a version. Versions whose UIDs differ only after "+" have one key.
func key(uid string) model.Key {
	first, _, _ := strings.Cut(uid, "+")
	return model.Key{Job: "job-" + first, Stage: "map", Name: "main"}
}

// workerOf returns the full name of a worker of a reservation.
func workerOf(uid string, workerID model.WorkerID) model.Worker {
	return model.Worker{Job: key(uid).Job, Stage: "map", ID: workerID}
}

func reservationRef(uid string) model.Ref {
	return model.Ref{Kind: model.KindReservation, Key: key(uid), ID: uid}
}

// reservation stores a reservation in the given state. If the reservation exists, only its
// state and the given changes are applied.
func (w *world) reservation(uid string, state model.State, attempts int32, changes ...func(*model.Reservation)) {
	r := &model.Reservation{
		Key: key(uid), UID: uid,
		Spec: model.Spec{MaxAttempts: attempts, Task: model.Task{Command: "/bin/worker", StopGrace: 2 * time.Second}},
	}
	if s, there := w.records[r.Ref()]; there {
		was := *s.record.(*model.Reservation)
		r = &was
	}
	r.State = state
	for _, change := range changes {
		change(r)
	}
	w.write(r.Ref(), r)
}

// lease places worker i of a reservation on the i-th executor of the list. A reservation
// without workers has the workers 0.1, 1.1 and so on.
func (w *world) lease(uid string, ordinals ...uint32) {
	var workers []model.WorkerID
	if r, ok := w.records[reservationRef(uid)].record.(*model.Reservation); ok {
		workers = r.Workers.List()
	}
	for i := len(workers); i < len(ordinals); i++ {
		workers = append(workers, workerID(int32(i)))
	}
	chunks := int32((len(ordinals) + model.LeaseChunkSize - 1) / model.LeaseChunkSize)
	n := int32(0)
	for part := range slices.Chunk(ordinals, model.LeaseChunkSize) {
		chunk := &model.LeaseChunk{UID: uid, Key: key(uid), Chunk: n, Chunks: chunks, Total: int32(len(ordinals)), Epoch: 7,
			GrantedAt: w.now, OnVolumes: w.onVolumes(uid)}
		for _, ordinal := range part {
			chunk.Workers = append(chunk.Workers, model.Placement{Worker: workers[0], Ordinal: ordinal})
			workers = workers[1:]
		}
		w.write(chunk.Ref(), chunk)
		n++
	}
}

// onVolumes reports whether the workers of a reservation start on volumes.
func (w *world) onVolumes(uid string) bool {
	r, ok := w.records[reservationRef(uid)].record.(*model.Reservation)
	return ok && r.Spec.Volume != nil
}

func volumeRef(uid string, index int32) model.Ref {
	return model.VolumeChunkRef(model.Key{Job: key(uid).Job, Stage: "map"}, index)
}

// volume stores a volume of a worker index of the stage of a reservation, or removes it if
// its state is VolumeUnset.
func (w *world) volume(uid string, v model.Volume) {
	ref := volumeRef(uid, v.Index)
	var list []model.Volume
	if chunk, ok := w.records[ref].record.(*model.VolumeChunk); ok {
		list = slices.DeleteFunc(slices.Clone(chunk.Volumes), func(o model.Volume) bool { return o.ID == v.ID })
	}
	if v.State != model.VolumeUnset {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b model.Volume) int { return a.Compare(&b) })
	if len(list) == 0 {
		w.write(ref, nil)
	} else {
		w.write(ref, &model.VolumeChunk{Job: ref.Key.Job, Stage: ref.Key.Stage, Chunk: ref.Chunk, Volumes: list})
	}
}

func leaseRef(uid string) model.Ref { return model.Ref{Kind: model.KindLeaseChunk, ID: uid} }

// dispatch sends the core a dispatch with the current revisions.
func (w *world) dispatch(token uint64, uid string) []model.Action {
	return w.step(model.Input{Token: token, Request: model.Dispatch{Term: w.registry(), Tasks: []model.DispatchTask{{
		Key: key(uid), UID: uid, Mod: w.records[reservationRef(uid)].mod, Lease: w.records[leaseRef(uid)].create,
	}}}})
}

// leaderRecord is the value of a leader-election key.
type leaderRecord struct{ service string }

func (l leaderRecord) Ref() model.Ref { return model.LeaderRef(l.service) }

func (w *world) registry() int64 {
	ref := model.LeaderRef(model.ServiceRegistry)
	if _, ok := w.records[ref]; !ok {
		w.write(ref, leaderRecord{model.ServiceRegistry})
	}
	return w.records[ref].create
}
