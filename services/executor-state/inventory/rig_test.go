package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// rig simulates the driver and the store for one core. It commits the core's decisions,
// checks the compares and delivers the writes of other services.
type rig struct {
	core *Core
	now  time.Time
	rev  int64
	keys map[model.Ref]key
	// unseen has the changes of other services that the core has not seen yet.
	unseen []model.Changed

	effects []model.Effect
	inputs  []model.Input
	replies map[uint64]model.Reply
	token   uint64
	// events has the job events of all committed effects.
	events []model.JobEvent
	// If measure is not nil, it is called with each effect.
	measure func(model.Effect)
	// If log is not nil, it is called with every action.
	log func(format string, args ...any)
}

type key struct {
	record      model.Record
	create, mod int64
}

// leaderKey is the record of a leader in the store.
type leaderKey struct{ service string }

func (l leaderKey) Ref() model.Ref { return model.LeaderRef(l.service) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newRig(cfg Config) *rig {
	return &rig{
		core: New(cfg), now: start, rev: 10,
		keys: map[model.Ref]key{}, replies: map[uint64]model.Reply{},
		log: func(string, ...any) {},
	}
}

// lead elects the core after a registry was elected.
func lead(cfg Config) *rig {
	r := newRig(cfg)
	r.write(leaderKey{model.ServiceRegistry})
	r.catchUp()
	r.elect()
	return r
}

func (r *rig) elect() {
	r.rev++
	r.step(model.Elected{Term: r.rev, Revision: r.rev})
	r.settle()
}

func (r *rig) registryTerm() int64 { return r.keys[model.LeaderRef(model.ServiceRegistry)].create }

// step sends one event to the core and collects the actions.
func (r *rig) step(event model.Event) {
	for _, action := range r.core.Step(r.now, event) {
		switch action := action.(type) {
		case model.Effect:
			if r.measure != nil {
				r.measure(action)
			}
			r.effects = append(r.effects, action)
			r.log("%s", effectText(action))
		case model.Reply:
			r.replies[action.Token] = action
			r.inputs = slices.DeleteFunc(r.inputs, func(in model.Input) bool { return in.Token == action.Token })
			r.log("%s", replyText(action))
		}
	}
}

// ask sends an input and returns its token.
func (r *rig) ask(request any) uint64 {
	r.token++
	in := model.Input{Token: r.token, Request: request}
	r.inputs = append(r.inputs, in)
	r.step(in)
	return in.Token
}

// do sends an input, commits all effects and returns the reply.
func (r *rig) do(request any) (any, error) {
	token := r.ask(request)
	r.settle()
	reply, ok := r.replies[token]
	if !ok {
		panic(fmt.Sprintf("no reply to %+v", request))
	}
	return reply.Value, reply.Err
}

// cycle sends the candidates in a cycle and returns the outcomes.
func (r *rig) cycle(entries ...model.Candidate) []model.Outcome {
	value, err := r.do(model.Cycle{Term: r.registryTerm(), Number: r.rev, Cut: r.rev, Candidates: entries})
	if err != nil {
		panic(err)
	}
	return value.([]model.Outcome)
}

// settle commits decisions and processes due deadlines until no work is left.
func (r *rig) settle() {
	for {
		for len(r.effects) > 0 {
			r.commit(len(r.effects))
		}
		deadline := r.core.NextDeadline()
		if deadline.IsZero() || deadline.After(r.now) {
			return
		}
		r.step(nil)
	}
}

// commit commits the first n effects in one transaction, or abandons all effects if a
// compare fails.
func (r *rig) commit(n int) {
	for _, effect := range r.effects[:n] {
		for _, expect := range effect.Expect {
			if !r.holds(expect) {
				r.log("compare failed: %s", expectText(expect))
				r.abandon()
				return
			}
		}
	}
	r.rev++
	for _, effect := range r.effects[:n] {
		for _, record := range effect.Puts {
			k := r.keys[record.Ref()]
			k.record, k.mod = record, r.rev
			k.create = cmp.Or(k.create, r.rev)
			r.keys[record.Ref()] = k
		}
		for _, ref := range effect.Deletes {
			delete(r.keys, ref)
		}
		r.events = append(r.events, effect.Events...)
	}
	r.effects = r.effects[n:]
	r.step(model.Committed{Effects: n, Revision: r.rev})
}

func (r *rig) holds(e model.Expect) bool {
	k, ok := r.keys[e.Ref]
	if e.Absent {
		return !ok
	}
	return ok && (e.Create == 0 || e.Create == k.create) && (e.Mod == 0 || e.Mod == k.mod)
}

// abandon undoes everything that is not committed. It then delivers the changes and repeats
// the inputs that have no reply, as the driver does.
func (r *rig) abandon() {
	r.effects = nil
	r.step(model.Abandoned{})
	r.catchUp()
	for _, in := range slices.Clone(r.inputs) {
		r.step(in)
	}
	r.step(nil)
}

// write stores a record for another service.
func (r *rig) write(record model.Record) {
	r.rev++
	ref := record.Ref()
	k := r.keys[ref]
	k.record, k.mod = record, r.rev
	k.create = cmp.Or(k.create, r.rev)
	r.keys[ref] = k
	r.unseen = append(r.unseen, model.Changed{Ref: ref, Record: record, Create: k.create, Mod: k.mod})
}

// drop deletes a record for another service, or because an etcd lease expired.
func (r *rig) drop(ref model.Ref) {
	if _, ok := r.keys[ref]; !ok {
		return
	}
	r.rev++
	delete(r.keys, ref)
	r.unseen = append(r.unseen, model.Changed{Ref: ref, Mod: r.rev})
}

// catchUp delivers the writes of other services.
func (r *rig) catchUp() {
	unseen := r.unseen
	r.unseen = nil
	for _, change := range unseen {
		r.step(change)
	}
	r.step(model.Progress{Revision: r.rev})
}

// apply writes a record, delivers it and settles.
func (r *rig) apply(record model.Record) {
	r.write(record)
	r.catchUp()
	r.settle()
}

func (r *rig) applyDeletion(ref model.Ref) {
	r.drop(ref)
	r.catchUp()
	r.settle()
}

// pause advances the clock by d and steps the core at each deadline in between.
func (r *rig) pause(d time.Duration) {
	end := r.now.Add(d)
	for {
		deadline := r.core.NextDeadline()
		if deadline.IsZero() || deadline.After(end) {
			break
		}
		if deadline.After(r.now) {
			r.now = deadline
		}
		r.step(nil)
		r.settle()
	}
	r.now = end
	r.step(nil)
	r.settle()
}

// failOver replaces the core by a new one that follows the store, and elects the new core.
func (r *rig) failOver() {
	r.follow()
	r.elect()
}

// follow replaces the core by a standby that has read the store, except the records that are
// quarantined.
func (r *rig) follow(quarantined ...model.Ref) {
	r.effects, r.inputs, r.unseen = nil, nil, nil
	r.core = New(r.core.cfg)
	refs := slices.SortedFunc(maps.Keys(r.keys), func(a, b model.Ref) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), a.Key.Compare(b.Key),
			cmp.Compare(a.Chunk, b.Chunk))
	})
	for _, ref := range refs {
		k := r.keys[ref]
		if slices.Contains(quarantined, ref) {
			r.step(model.Quarantined{Ref: ref})
			continue
		}
		r.step(model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
}

// ready registers an executor and announces it.
func (r *rig) ready(g Register) {
	g.Address = cmp.Or(g.Address, g.ID+":7200")
	g.Nonce = cmp.Or(g.Nonce, "n1")
	value, err := r.do(g)
	if err != nil {
		panic(err)
	}
	if _, err := r.do(Announce{g.ID, value.(Registered).Incarnation, 7, 0, false, ""}); err != nil {
		panic(err)
	}
}

// keyOf returns the key of the reservation with a UID. The UID may end with a job: "u@web". It
// may begin with a stage: "db:a" and "db:b" are of one stage.
func keyOf(uid string) model.Key {
	stage, job, _ := strings.Cut(uid, "@")
	stage, _, _ = strings.Cut(stage, ":")
	return model.Key{Job: cmp.Or(job, "job"), Stage: stage, Name: model.MainName}
}

func refOf(uid string) model.Ref {
	return model.Ref{Kind: model.KindReservation, Key: keyOf(uid), ID: uid}
}

// queue writes a reservation of n workers and returns its candidate.
func (r *rig) queue(uid string, n int, k constraint.Constraints) model.Candidate {
	k.Resources = k.Resources.WithSlots()
	placements := model.WorkerSet{{First: 0, Last: int32(n) - 1, Number: 1}}
	r.apply(&model.Reservation{Key: keyOf(uid), UID: uid, Workers: placements, Spec: model.Spec{Constraints: k},
		State: model.Queued})
	return r.entry(uid)
}

// entry returns the candidate of a reservation in its current state.
func (r *rig) entry(uid string) model.Candidate {
	k := r.keys[refOf(uid)]
	reservation := k.record.(*model.Reservation)
	return model.Candidate{
		Key: reservation.Key, UID: uid, Epoch: k.create, Mod: k.mod,
		Group:       reservation.Spec.Constraints.Group(),
		Constraints: reservation.Spec.Constraints, Workers: reservation.Workers, Volume: reservation.Spec.Volume,
		Hold: reservation.Holds(), Chosen: reservation.Chosen,
	}
}

// state rewrites a reservation with state s.
func (r *rig) state(uid string, s model.State) {
	next := *r.keys[refOf(uid)].record.(*model.Reservation)
	next.State = s
	r.write(&next)
}

// reportsReadiness rewrites a reservation with readiness REPORTED and a command.
func (r *rig) reportsReadiness(uid, command string) {
	next := *r.keys[refOf(uid)].record.(*model.Reservation)
	next.Spec.Task.Readiness, next.Spec.Task.Command = model.ReadyReported, command
	r.write(&next)
}

// leased returns the placements of a UID that the store has.
func (r *rig) leased(uid string) []model.Placement {
	var list []model.Placement
	for number := int32(0); number < 64; number++ {
		if k, ok := r.keys[model.Ref{Kind: model.KindLeaseChunk, ID: uid, Chunk: number}]; ok {
			list = append(list, k.record.(*model.LeaseChunk).Workers...)
		}
	}
	return list
}

// dispatch writes the task of a lease, as the assigner does.
func (r *rig) dispatch(uid string) {
	r.write(&model.TaskHeader{UID: uid, Key: keyOf(uid), Complete: true})
	workers := r.leased(uid)
	for number := 0; len(workers) > 0; number++ {
		n := min(len(workers), model.TaskChunkSize)
		chunk := &model.TaskChunk{UID: uid, Chunk: int32(number)}
		for _, p := range workers[:n] {
			chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: p.Worker, Ordinal: p.Ordinal,
				State: model.WorkerAssigned})
		}
		r.write(chunk)
		workers = workers[n:]
	}
	r.catchUp()
	r.settle()
}

// end sets the state of the workers of a task that have the given indexes.
func (r *rig) end(uid string, s model.WorkerState, indexes ...int32) {
	r.endFor(uid, s, "", indexes...)
}

// endFor sets the state and the reason of the workers of a task that have the given indexes.
func (r *rig) endFor(uid string, s model.WorkerState, reason fault.Reason, indexes ...int32) {
	r.changeWorkers(uid, indexes, func(w *model.TaskWorker) {
		w.State, w.Since, w.Reason = s, model.InstantOf(r.now), reason
	})
}

// changeWorkers changes the workers of a task that have the given indexes.
func (r *rig) changeWorkers(uid string, indexes []int32, change func(*model.TaskWorker)) {
	for ref, k := range maps.Clone(r.keys) {
		if ref.Kind != model.KindTaskChunk || ref.ID != uid {
			continue
		}
		next := *k.record.(*model.TaskChunk)
		next.Workers = slices.Clone(next.Workers)
		changed := false
		for i := range next.Workers {
			if slices.Contains(indexes, next.Workers[i].ID.Index) {
				change(&next.Workers[i])
				changed = true
			}
		}
		if changed {
			r.write(&next)
		}
	}
}

func cpu(n int64) constraint.Constraints {
	return constraint.Constraints{Resources: resource.Vector{"cpu": n}}
}

func small(id string, cpu, slots int64) Register {
	return Register{ID: id, SKU: "small", Resources: resource.Vector{"cpu": cpu, "slots": slots}}
}

func expectGranted(t *testing.T, outcomes []model.Outcome) {
	t.Helper()
	for _, o := range outcomes {
		if o.Result != model.Granted || o.Lease == 0 {
			t.Fatalf("want GRANTED with a lease, got %+v", o)
		}
	}
}

// disableRecord returns the record of a request to disable, or nil.
func (c *Core) disableRecord(id string) *model.Disable {
	return recordOf[*model.Disable](c.records[model.Ref{Kind: model.KindDisable, ID: id}])
}
