package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	_ "berth.dev/testkit/fixedseed"
)

// play is a world with agents. Its simulated network delays requests, loses answers, and
// may deliver requests twice.
type play struct {
	*world
	agents map[string]*agent
	ids    []string
	wire   []model.Action
	uids   int
	token  uint64
	// planned counts the volumes.
	planned int
	// reports maps each token to the agent that waits for the reply.
	reports map[uint64]*agent
	// members has the members of each gang as of the last check, which watches all gangs.
	// changed has those whose change the core has reported since.
	members map[model.Key]string
	changed map[model.Key]bool
	// unconfirmed has the workers that were Unconfirmed at the last check.
	unconfirmed map[placed]bool
}

func newPlay() *play {
	p := &play{
		world:  newWorld(Config{InFlight: 5, PerExecutor: 2}),
		agents: map[string]*agent{}, reports: map[uint64]*agent{},
		members: map[model.Key]string{}, changed: map[model.Key]bool{},
		unconfirmed: map[placed]bool{},
	}
	for n := range uint32(4) {
		id := fmt.Sprintf("e%d", n)
		p.ids = append(p.ids, id)
		p.agents[id] = newAgent(id)
		p.executor(n, 1, false)
		p.present(id, true)
	}
	p.registry()
	p.progress()
	p.elect()
	return p
}

// take carries out actions: it queues requests on the wire and delivers replies to agents.
func (p *play) take(actions []model.Action) {
	for _, action := range actions {
		p.checkVolumes(action)
		switch a := action.(type) {
		case Submit, Stop, DropVolumes:
			p.wire = append(p.wire, a)
		case MembersChanged:
			p.changed[a.Key] = true
			p.core.Unwatch(a.Key)
		case model.Reply:
			if reported, ok := a.Value.(Reported); ok {
				p.reports[a.Token].forget(reported)
			}
		}
	}
}

func (p *play) give(event model.Event) {
	p.take(p.step(event))
	for len(p.unsent) > 0 {
		done := p.unsent[0]
		p.unsent = p.unsent[1:]
		p.take(p.step(done))
	}
}

func (p *play) commitAll() {
	for len(p.effects) > 0 {
		if carried, ok := p.commit(len(p.effects)); ok {
			p.take(carried)
		}
		p.give(nil)
	}
}

// deliver lets an agent answer a request on the wire. The answer may be lost. Only a
// request whose answer is lost can be delivered twice.
func (p *play) deliver(i int, refuse, lost, twice bool) {
	request := p.wire[i]
	if !twice || !lost {
		p.wire = slices.Delete(p.wire, i, i+1)
	}
	switch o := request.(type) {
	case Submit:
		outcome := p.agents[o.Executor].submit(o, refuse)
		if lost {
			outcome = Unknown{"timeout"}
		}
		p.give(SubmitDone{Executor: o.Executor, UID: o.UID, WorkerID: o.Worker.ID, Attempt: o.Attempt, Call: o.Call,
			Outcome: outcome})
	case Stop:
		result := p.agents[o.Executor].stop(o, refuse)
		if lost {
			result = Unknown{"timeout"}
		}
		p.give(StopDone{Executor: o.Executor, Worker: o.Worker, UID: o.UID, Epoch: o.Epoch, Call: o.Call, Result: result})
	case DropVolumes:
		outcome := p.agents[o.Executor].drop(o, refuse)
		if lost {
			outcome = Unknown{"timeout"}
		}
		p.give(DropDone{Executor: o.Executor, Call: o.Call, Outcome: outcome})
	}
}

// volumes returns the stored volumes by the UID whose stage they belong to.
func (p *play) volumes(yield func(uid string, v model.Volume) bool) {
	for n := range p.uids {
		uid := fmt.Sprintf("u%d", n+1)
		if chunk, ok := p.records[volumeRef(uid, 0)].record.(*model.VolumeChunk); ok {
			for _, v := range chunk.Volumes {
				if !yield(uid, v) {
					return
				}
			}
		}
	}
}

// pinned returns the current volume of a worker index. If there is none, it plans one on the
// executor.
func (p *play) pinned(uid string, index int32, ordinal uint32) model.Volume {
	for of, v := range p.volumes {
		if key(of) == key(uid) && v.Index == index && v.State.Current() {
			return v
		}
	}
	p.planned++
	v := model.Volume{ID: fmt.Sprintf("v%d", p.planned), Index: index, Ordinal: ordinal, State: model.VolumePlanned}
	p.volume(uid, v)
	return v
}

// leased reports whether a lease has a worker on a volume.
func (p *play) leased(uid string, v model.Volume) bool {
	for _, s := range p.records {
		if chunk, ok := s.record.(*model.LeaseChunk); ok && chunk.OnVolumes && chunk.Key == key(uid) {
			for _, w := range chunk.Workers {
				if w.Worker.Index == v.Index {
					return true
				}
			}
		}
	}
	return false
}

// listVolumes applies what the agents list, as executor-state does.
func (p *play) listVolumes() {
	for uid, v := range p.volumes {
		a := p.agents[fmt.Sprintf("e%d", v.Ordinal)]
		_, has := a.volumes[v.ID]
		switch {
		case v.State == model.VolumePlanned && has:
			v.State = model.VolumeReady
		case v.State == model.VolumeDestroying && a.destroyed[v.ID]:
			v.State = model.VolumeUnset
		default:
			continue
		}
		p.volume(uid, v)
	}
	p.give(model.Progress{Revision: p.revision})
}

// destroyVolumes makes every volume DESTROYING on which no worker is leased.
func (p *play) destroyVolumes() {
	for uid, v := range p.volumes {
		if !p.leased(uid, v) {
			v.State = model.VolumeDestroying
			p.volume(uid, v)
		}
	}
	p.give(model.Progress{Revision: p.revision})
}

// checkVolumes checks that a start request that is sent names the volume of its index.
func (p *play) checkVolumes(action model.Action) {
	a, ok := action.(Submit)
	if !ok {
		return
	}
	if (a.Volume != nil) != p.onVolumes(a.UID) {
		p.fail("%+v starts on %+v", a.Worker, a.Volume)
	}
	if a.Volume != nil {
		v := append(p.volumesOf(a.Volume.ID), model.Volume{})[0]
		if !v.State.Current() || v.Index != a.Worker.ID.Index || fmt.Sprintf("e%d", v.Ordinal) != a.Executor ||
			a.Volume.Create && v.State != model.VolumePlanned {
			p.fail("%+v starts on %+v, which is %+v", a.Worker, a.Volume, v)
		}
	}
}

// exit lets an agent accept a start request whose worker exits at once. The report of the
// end arrives before the answer to the request, and the worker must not become an orphan.
func (p *play) exit(t *rapid.T, i int) {
	s, ok := p.wire[i].(Submit)
	key, _ := p.core.workerKey(s.Executor, s.UID, s.Worker.ID)
	if f := p.core.calls[callKey{workerKey: key}]; !ok || f == nil || f.attempt != s.Attempt {
		t.Skip()
	}
	p.wire = slices.Delete(p.wire, i, i+1)
	a := p.agents[s.Executor]
	outcome := a.submit(s, false)
	if _, ok := outcome.(Accepted); ok {
		a.advance(placed{s.UID, s.Worker.ID}, 0)
		a.advance(placed{s.UID, s.Worker.ID}, 0)
		p.reportOf(s.Executor)
	}
	p.give(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Outcome: outcome})
	if p.core.host(key.ordinal).orphans[instance{s.UID, s.Worker, s.Epoch}] != nil {
		t.Fatalf("%s of %s has ended on %s and is an orphan", s.Worker.ID, s.UID, s.Executor)
	}
}

func (p *play) reportOf(id string) {
	p.token++
	p.reports[p.token] = p.agents[id]
	p.give(model.Input{Token: p.token, Request: p.agents[id].report()})
}

// reservationsIn returns the UIDs of the reservations in the given state.
func (p *play) reservationsIn(state model.State) []string {
	var uids []string
	for ref, s := range p.records {
		if r, ok := s.record.(*model.Reservation); ok && r.State == state {
			uids = append(uids, ref.ID)
		}
	}
	slices.Sort(uids)
	return uids
}

// unassign deletes the leases of ended tasks, as executor-state does.
func (p *play) unassign() {
	var ended []string
	for ref, s := range p.records {
		header, ok := s.record.(*model.TaskHeader)
		if _, leased := p.records[leaseRef(ref.ID)]; ok && header.Ended && leased && !p.mayRun(ref.ID) {
			ended = append(ended, ref.ID)
		}
	}
	slices.Sort(ended)
	for _, uid := range ended {
		p.world.write(leaseRef(uid), nil)
	}
}

// mayRun reports whether a worker of a uid is Unconfirmed.
func (p *play) mayRun(uid string) bool {
	chunk, ok := p.records[model.Ref{Kind: model.KindTaskChunk, ID: uid}].record.(*model.TaskChunk)
	return ok && slices.ContainsFunc(chunk.Workers, func(w model.TaskWorker) bool { return w.Unconfirmed })
}

// invariants checks the invariants that hold after every step.
func (p *play) invariants(t *rapid.T) {
	if len(p.failed) > 0 {
		t.Fatal(p.failed)
	}
	if l, ok := p.core.lifetimes.First(); ok {
		if next := p.core.NextDeadline(); next.IsZero() || next.After(l.end) && next.After(p.now) {
			t.Fatalf("the next deadline is %v, after the end of a lifetime at %v", next, l.end)
		}
	}
	p.checkMembers(t)
	for _, s := range p.records {
		chunk, ok := s.record.(*model.TaskChunk)
		if !ok {
			continue
		}
		p.checkSpec(t, chunk)
		// A worker that has ended does not run and is not started again, unless the worker is
		// LOST.
		for _, worker := range chunk.Workers {
			a := p.agents[fmt.Sprintf("e%d", worker.Ordinal)]
			at := placed{chunk.UID, worker.ID}
			running := a.workers[at] != nil && !a.workers[at].status.State.Terminal()
			if worker.Unconfirmed {
				p.unconfirmed[at] = true
			} else if p.unconfirmed[at] {
				delete(p.unconfirmed, at)
				if running && worker.Cleared == (model.Interned{}) && !p.core.hosts[worker.Ordinal].lost() {
					t.Fatalf("%s/%s is confirmed and runs", chunk.UID, worker.ID)
				}
			}
			if h := p.core.hosts[worker.Ordinal]; worker.State.Terminal() && worker.State != model.WorkerLost && running &&
				!h.lost() {
				t.Fatalf("%s/%s is %s (%s) and runs", chunk.UID, worker.ID, worker.State, worker.Reason)
			}
		}
	}
}

// versions returns the versions of a reservation.
func (p *play) versions(key model.Key) (all []*model.Reservation) {
	for _, s := range p.records {
		if r, ok := s.record.(*model.Reservation); ok && r.Key == key {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *model.Reservation) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// counting returns the versions of a reservation that count for its members: those that live, those
// from which they descend, and those of the same reservation that have ended with workers.
func (p *play) counting(key model.Key) map[string]bool {
	counts, living := map[string]bool{}, map[string]bool{}
	began := func(r *model.Reservation) string { return cmp.Or(r.First, r.Parent, r.UID) }
	for _, r := range p.versions(key) {
		if r.State == model.Queued || r.State == model.Active {
			counts[r.UID], living[began(r)] = true, true
		}
	}
	for _, r := range p.versions(key) {
		if r.State == model.Completed && living[began(r)] {
			counts[r.UID] = true
		}
	}
	for before := -1; before < len(counts); {
		before = len(counts)
		for _, r := range p.versions(key) {
			if slices.ContainsFunc(p.versions(key), func(o *model.Reservation) bool {
				return counts[o.UID] && o.Parent == r.UID
			}) {
				counts[r.UID] = true
			}
		}
	}
	return counts
}

// expectedMembers returns the members of a reservation as they follow from all records.
func (p *play) expectedMembers(key model.Key) *model.Members {
	counts := p.counting(key)
	wanted, highest := map[int32]bool{}, map[int32]model.TaskWorker{}
	for _, r := range p.versions(key) {
		if !counts[r.UID] {
			continue
		}
		for id := range r.Workers.All() {
			if !r.Unwanted.Has(id) {
				wanted[id.Index] = true
			}
		}
		for id := range pastWorkers(r).All() {
			wanted[id.Index] = true
		}
		header, _ := p.own[model.Ref{Kind: model.KindTaskHeader, ID: r.UID}].(*model.TaskHeader)
		chunk, _ := p.own[model.Ref{Kind: model.KindTaskChunk, ID: r.UID}].(*model.TaskChunk)
		if header == nil || !header.Complete || chunk == nil {
			continue
		}
		for _, w := range chunk.Workers {
			if r.Unwanted.Has(w.ID) {
				continue // nor does a later one count that descends from it
			}
			if w.Later.Number > 0 {
				w.ID.Number, w.Ordinal, w.Requeue = w.Later.Number, w.Later.Ordinal, false
			}
			if !w.Requeue && w.ID.Number > highest[w.ID.Index].ID.Number {
				highest[w.ID.Index] = w
			}
		}
	}
	var list []model.Member
	for _, index := range slices.Sorted(maps.Keys(highest)) {
		w := highest[index]
		e := p.records[executorRef(fmt.Sprintf("e%d", w.Ordinal))].record.(*model.Executor)
		list = append(list, model.Member{ID: w.ID, Executor: e.ID, Host: strings.TrimSuffix(e.Address, ":7200")})
	}
	// Each index is placed or exactly one of these.
	workers, unplaced := len(wanted), p.core.Members(key).Unplaced
	for _, indexes := range []model.Indexes{unplaced.Waiting, unplaced.Ended, unplaced.GaveUp} {
		for _, r := range indexes {
			for index := r.First; index <= r.Last; index++ {
				if !wanted[index] { // twice, or not of the gang
					return model.NewMembers(-1, nil, unplaced)
				}
				delete(wanted, index)
			}
		}
	}
	for index := range wanted {
		if highest[index].State == model.WorkerUnset {
			return model.NewMembers(-1, nil, unplaced)
		}
	}
	return model.NewMembers(workers, list, unplaced)
}

// checkMembers compares the members of each gang with those that follow from the records.
// If they differ from those of the last check, the core must have reported the change once
// it is durable.
func (p *play) checkMembers(t *rapid.T) {
	if len(p.effects) > 0 && rapid.Bool().Draw(t, "skip the members") {
		return
	}
	var twin *Core
	if len(p.effects) == 0 {
		twin = p.rebuilt()
	}
	for n := range p.uids {
		key := key(fmt.Sprintf("u%d", n+1))
		got, want := p.core.Members(key), p.expectedMembers(key)
		if got.Cursor != want.Cursor {
			t.Fatalf("members of %s: %+v, want %+v", key, got, want)
		}
		if twin == nil {
			continue
		}
		if read := twin.Members(key); read.Cursor != got.Cursor {
			t.Fatalf("members of %s: %+v, but a new leader reads %+v", key, got, read)
		}
		if last, watched := p.members[key]; watched && last != want.Cursor && !p.changed[key] {
			t.Fatalf("the change of the members of %s to %+v was not reported", key, want)
		}
		p.members[key] = want.Cursor
		delete(p.changed, key)
		p.core.Watch(key, func(model.Key) bool { return true })
	}
}

// checkSpec compares a durable task with its reservation. No worker of a gang starts if
// another worker cannot start or must be restarted. No worker of a withdrawn gang is queued
// again by itself.
func (p *play) checkSpec(t *rapid.T, chunk *model.TaskChunk) {
	r, _ := p.records[reservationRef(chunk.UID)].record.(*model.Reservation)
	header := p.records[model.Ref{Kind: model.KindTaskHeader, ID: chunk.UID}].record.(*model.TaskHeader)
	if header.Withdrawn && (!header.Stopping || header.Message == "" || r.Spec.Start != model.StartTogether) {
		t.Fatalf("withdrawn: %+v", header)
	}
	starting, broken := false, false
	for _, w := range chunk.Workers {
		if header.Withdrawn && w.Requeue {
			t.Fatalf("marked, of a withdrawn gang: %+v", w)
		}
		ended := w.State == model.WorkerFailed || w.State == model.WorkerCompleted && r.Spec.Restart == model.RestartAlways
		wanted := !r.Unwanted.Has(w.ID) && r.Spec.Lifetime.For == 0
		broken = broken || w.Requeue ||
			ended && wanted && r.Spec.Restart != model.RestartNever && r.Spec.RestartsExit(w.ExitCode)
		switch w.State {
		case model.WorkerAssigned, model.WorkerStarting:
			starting = true
		case model.WorkerFailed:
			// A cancelled worker may fail while it stops.
			broken = broken || w.Reason != fault.ReasonExited && w.Reason != fault.ReasonKilled && !r.Unwanted.Has(w.ID)
		case model.WorkerEvict, model.WorkerEvicting, model.WorkerEvicted:
			broken = broken || w.Reason != fault.ReasonCancelled && w.Reason != fault.ReasonLifetime
		}
	}
	together := r.Spec.Start == model.StartTogether && r.Origin != model.OriginRequeue // of a gang that has run
	if starting && broken && together && r.State == model.Queued && !header.Stopping {
		t.Fatalf("some start, some cannot: %+v", chunk)
	}
}

func TestInvariantsUnderAnyFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay()
		pick := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		coin := rapid.Bool()
		t.Repeat(map[string]func(*rapid.T){
			"dispatch": func(t *rapid.T) {
				if p.uids > 6 {
					t.Skip()
				}
				p.uids++
				uid := fmt.Sprintf("u%d", p.uids)
				if p.uids > 1 && coin.Draw(t, "same key") {
					uid = fmt.Sprintf("u%d+%d", 1+pick(p.uids-1, "key"), p.uids)
				}
				ordinals := make([]uint32, 1+pick(4, "workers"))
				p.reservation(uid, model.Queued, int32(1+pick(3, "attempts")), func(r *model.Reservation) {
					first := int32(pick(3, "first"))
					r.Workers = model.WorkerSet{{First: first, Last: first + int32(len(ordinals)) - 1, Number: int32(p.uids)}}
					others := p.versions(r.Key)
					if len(others) > 0 && coin.Draw(t, "has a parent") {
						r.Parent = others[pick(len(others), "parent")].UID
					}
					r.Failures = int32(pick(2, "failures"))
					if r.Parent != "" && coin.Draw(t, "requeue") {
						r.Origin = model.OriginRequeue
					}
					// Older Berth versions do not store with which version the reservation began.
					if len(others) > 0 && coin.Draw(t, "began with") {
						o := others[pick(len(others), "another")]
						r.First = cmp.Or(o.First, o.UID)
					}
					r.Spec.Restart = model.Restart(pick(3, "restart"))
					r.Spec.OnWorkerLoss = model.OnWorkerLoss(pick(2, "onWorkerLoss"))
					if pick(4, "exit codes") == 0 {
						r.Spec.ExitCodes = &model.ExitCodes{Fail: []int32{1}}
					}
					if pick(2, "lives") == 0 {
						r.Spec.Lifetime = model.Lifetime{For: 10 * time.Second, From: model.FromLive}
					}
					r.Spec.Start = model.Start(pick(3, "start"))
					r.Spec.OnFailure = model.OnFailure(pick(3, "onFailure"))
					if pick(3, "on volumes") == 0 {
						r.Spec.Volume = &model.VolumeRequest{Resource: "disk"}
					}
				})
				for i := range ordinals {
					ordinals[i] = uint32(pick(4, "ordinal"))
					if p.onVolumes(uid) {
						r := p.records[reservationRef(uid)].record.(*model.Reservation)
						ordinals[i] = p.pinned(uid, r.Workers[0].First+int32(i), ordinals[i]).Ordinal
					}
				}
				p.lease(uid, ordinals...)
				p.give(model.Progress{Revision: p.revision})
				p.token++
				p.take(p.dispatch(p.token, uid))
			},
			"cancel": func(t *rapid.T) {
				uids := p.reservationsIn(model.Queued)
				if len(uids) == 0 {
					t.Skip()
				}
				p.reservation(uids[pick(len(uids), "uid")], model.Cancelling, 3, func(r *model.Reservation) {
					if coin.Draw(t, "expired") {
						r.Reason = fault.ReasonExpired
					}
				})
				p.give(model.Progress{Revision: p.revision})
			},
			"cancelWorkers": func(t *rapid.T) {
				uids := p.reservationsIn(model.Queued)
				if len(uids) == 0 {
					t.Skip()
				}
				p.reservation(uids[pick(len(uids), "uid")], model.Queued, 3, func(r *model.Reservation) {
					all := r.Workers.List()
					r.Unwanted = model.WorkerSetOf(append(r.Unwanted.List(), all[pick(len(all), "workerID")]))
				})
				p.give(model.Progress{Revision: p.revision})
			},
			"drain": func(t *rapid.T) {
				var grace *time.Duration
				draining := coin.Draw(t, "draining")
				if draining && coin.Draw(t, "hastened") {
					grace = new(time.Second)
				}
				p.drain(p.ids[pick(4, "agent")], draining, grace)
				p.give(model.Progress{Revision: p.revision})
			},
			"silent": func(t *rapid.T) {
				p.silence(p.ids[pick(4, "agent")], pick(3, "answers") > 0)
				p.give(model.Progress{Revision: p.revision})
			},
			"undelivered": func(t *rapid.T) {
				if len(p.wire) == 0 {
					t.Skip()
				}
				i := pick(len(p.wire), "request")
				if o, ok := p.wire[i].(Submit); ok {
					p.wire = slices.Delete(p.wire, i, i+1)
					p.give(o.Done(Undelivered{"no connection"}))
				}
			},
			"deliver": func(t *rapid.T) {
				if len(p.wire) == 0 {
					t.Skip()
				}
				p.deliver(pick(len(p.wire), "request"), coin.Draw(t, "refuse"), pick(4, "lost") == 0, pick(4, "twice") == 0)
			},
			"exit": func(t *rapid.T) {
				if len(p.wire) == 0 {
					t.Skip()
				}
				p.exit(t, pick(len(p.wire), "request"))
			},
			"timeOut": func(t *rapid.T) {
				if len(p.wire) == 0 {
					t.Skip()
				}
				switch o := p.wire[pick(len(p.wire), "request")].(type) {
				case Submit:
					p.give(SubmitDone{Executor: o.Executor, UID: o.UID, WorkerID: o.Worker.ID, Attempt: o.Attempt, Call: o.Call,
						Outcome: Unknown{"timeout"}})
				case Stop:
					p.give(StopDone{Executor: o.Executor, Worker: o.Worker, UID: o.UID, Epoch: o.Epoch, Call: o.Call,
						Result: Unknown{"timeout"}})
				case DropVolumes:
					p.give(DropDone{Executor: o.Executor, Call: o.Call, Outcome: Unknown{"timeout"}})
				}
			},
			"advance": func(t *rapid.T) {
				a := p.agents[p.ids[pick(4, "agent")]]
				if list := a.list(); len(list) > 0 {
					a.advance(list[pick(len(list), "worker")], int32(pick(3, "code")))
				}
			},
			// run lets every worker that can run become RUNNING, so that the other actions find
			// more than starts.
			"run": func(t *rapid.T) {
				for range 3 {
					p.commitAll()
					for len(p.wire) > 0 {
						p.deliver(0, false, false, false)
						p.commitAll()
					}
				}
				for _, id := range p.ids {
					a := p.agents[id]
					for _, at := range a.list() {
						if a.workers[at].status.State == model.WorkerStarting {
							a.advance(at, 0)
						}
					}
					p.reportOf(id)
				}
				p.commitAll()
			},
			"report": func(t *rapid.T) { p.reportOf(p.ids[pick(4, "agent")]) },
			// end ends a version whose task has ended. Its task is kept until the lease is deleted.
			"end": func(t *rapid.T) {
				for _, uid := range p.reservationsIn(model.Queued) {
					if task := p.core.tasks[uid]; task != nil && task.header.Ended && len(p.effects) == 0 {
						p.reservation(uid, model.Completed, 3)
						break
					}
				}
				if coin.Draw(t, "unassign") {
					p.unassign()
				}
				p.give(model.Progress{Revision: p.revision})
			},
			// forget deletes the record of a version that has ended. Another one keeps its workers.
			"forget": func(t *rapid.T) {
				for _, uid := range p.reservationsIn(model.Completed) {
					ref := reservationRef(uid)
					r := p.records[ref].record.(*model.Reservation)
					if p.core.tasks[uid] != nil || len(p.effects) > 0 {
						continue
					}
					others := slices.DeleteFunc(p.versions(r.Key), func(o *model.Reservation) bool { return o.UID == uid })
					if len(others) > 0 && coin.Draw(t, "keep the workers") {
						o := others[pick(len(others), "another")]
						p.reservation(o.UID, o.State, 3, func(o *model.Reservation) {
							past := pastWorkers(o).Raise(pastWorkers(r)).Raise(r.Workers)
							o.Ends = &model.Ends{Past: []model.End{{State: model.WorkerCompleted, Workers: past}}}
						})
					}
					p.world.write(ref, nil)
					break
				}
				p.give(model.Progress{Revision: p.revision})
			},
			"move": func(t *rapid.T) {
				e := *p.records[executorRef(p.ids[pick(4, "agent")])].record.(*model.Executor)
				e.Address = fmt.Sprintf("host-%d:7200", pick(3, "host"))
				p.write(e.Ref(), &e)
				p.give(model.Progress{Revision: p.revision})
			},
			"restart": func(t *rapid.T) {
				n := pick(4, "agent")
				a := p.agents[p.ids[n]]
				a.restart(a.incarnation+1, func(placed) bool { return coin.Draw(t, "keep") })
				p.executor(uint32(n), a.incarnation, false)
				p.give(model.Progress{Revision: p.revision})
			},
			"listVolumes":    func(*rapid.T) { p.listVolumes() },
			"destroyVolumes": func(*rapid.T) { p.destroyVolumes() },
			"presence": func(t *rapid.T) {
				p.present(p.ids[pick(4, "agent")], coin.Draw(t, "there"))
				p.give(model.Progress{Revision: p.revision})
			},
			"lost": func(t *rapid.T) {
				if pick(4, "rarely") > 0 {
					t.Skip()
				}
				n := pick(4, "agent")
				p.executor(uint32(n), p.agents[p.ids[n]].incarnation, true)
				p.give(model.Progress{Revision: p.revision})
			},
			"time": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(pick(8000, "ms")) * time.Millisecond)
				if pick(8, "stable") == 0 {
					p.now = p.now.Add(model.StableAfter)
				}
				p.give(nil)
			},
			"commit": func(t *rapid.T) {
				if len(p.effects) == 0 {
					t.Skip()
				}
				if carried, ok := p.commit(1 + pick(len(p.effects), "effects")); ok {
					p.take(carried)
				} else {
					p.give(nil)
				}
			},
			"abandon": func(t *rapid.T) {
				p.abandon()
				twin := p.rebuilt()
				twin.elected(model.Elected{Term: p.core.term})
				if got, want := dump(p.core), dump(twin); got != want {
					t.Fatalf("after a rollback the core has\n%s\nthe records have\n%s", got, want)
				}
				p.give(nil)
			},
			"succeed": func(t *rapid.T) {
				clear(p.members) // callers that wait learn that the term has ended
				p.take(p.succeed())
			},
			"": p.invariants,
		})
		p.settleAll(t)
	})
}

// settleAll cancels everything, lets every agent answer, and checks that no work remains.
func (p *play) settleAll(t *rapid.T) {
	for n, id := range p.ids {
		p.executor(uint32(n), p.agents[id].incarnation, false)
		p.present(id, true)
	}
	for _, uid := range p.reservationsIn(model.Queued) {
		p.reservation(uid, model.Cancelling, 3)
	}
	p.give(model.Progress{Revision: p.revision})
	for range 60 {
		p.commitAll()
		for len(p.wire) > 0 {
			p.deliver(0, false, false, false)
			p.commitAll()
		}
		for _, id := range p.ids {
			p.reportOf(id)
			p.commitAll()
		}
		p.unassign()
		p.listVolumes()
		p.destroyVolumes()
		for _, uid := range p.reservationsIn(model.Cancelling) {
			if _, there := p.records[model.Ref{Kind: model.KindTaskHeader, ID: uid}]; !there ||
				p.core.tasks[uid].header.Ended && !p.mayRun(uid) {
				p.reservation(uid, model.Cancelled, 3)
				p.world.write(leaseRef(uid), nil) // executor-state deletes leases that were not dispatched
			}
		}
		p.give(model.Progress{Revision: p.revision})
		p.now = p.now.Add(11 * time.Second)
		p.give(nil)
		p.invariants(t)
	}
	if stats := p.core.Stats(); stats != (Stats{}) {
		t.Fatalf("not empty: %+v\n%s", stats, dump(p.core))
	}
	for _, a := range p.agents {
		if len(a.workers)+len(a.volumes) > 0 {
			t.Fatalf("%s still has %v and %v", a.id, a.list(), a.volumes)
		}
	}
}

// TestRequestToDestroyAVolumeThatIsGone checks a request that waits for an effect before it while
// the executor confirms the end of its volume: it is sent late, destroys nothing, and is not
// repeated.
func TestRequestToDestroyAVolumeThatIsGone(t *testing.T) {
	p := newPlay()
	p.uids = 2
	p.reservation("u1", model.Queued, 3)
	p.lease("u1", 1)
	p.give(model.Progress{Revision: p.revision})
	p.take(p.dispatch(1, "u1"))
	p.commitAll()
	p.deliver(0, false, false, false)
	p.commitAll()
	p.volume("u2", model.Volume{ID: "v", State: model.VolumeDestroying})
	p.agents["e0"].destroyed["v"] = true // by a request of an earlier leader
	p.reservation("u1", model.Cancelling, 3)
	p.take(p.succeed()) // stops u1 and requests the end of v
	if len(p.effects) != 1 || len(of[DropVolumes](p.held)) != 1 {
		t.Fatalf("effects %+v, held %+v", p.effects, p.held)
	}
	p.listVolumes()
	if len(p.volumesOf("v")) > 0 {
		t.Fatal("the list did not delete the volume")
	}
	p.commitAll()
	sent := of[DropVolumes](p.wire)
	for len(p.wire) > 0 {
		p.deliver(0, false, false, false)
	}
	p.commitAll()
	p.now = p.now.Add(repeatDrop)
	p.give(nil)
	if len(sent) != 1 || len(of[DropVolumes](p.wire)) > 0 || len(p.failed) > 0 {
		t.Errorf("sent %+v, repeated %+v, failed %v", sent, of[DropVolumes](p.wire), p.failed)
	}
}
