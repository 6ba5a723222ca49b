package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	agentlib "berth.dev/pkg/agent"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/executor-state/inventory"
)

// Host describes an executor.
type Host struct {
	ID, SKU    string
	Attributes map[string]string
	Resources  resource.Vector
	// Reserved has the shares of Resources that the executor reserves, by role.
	Reserved   map[string]resource.Vector
	Generation int64
	// Cell is the number of workers for which the host, as a cell, has capacity; 0 if it is no cell.
	Cell int
	// Allow lists the commands that the agent starts; default every command.
	Allow []string
	// Silent is set if the agent sends heartbeats, and answers no request until AnswerAgent. No
	// connection to it can be made, unless Connects is set.
	Silent, Connects bool
}

// agent is a host and its agent. The workers survive a crash of the agent.
type agent struct {
	w       *World
	id      string
	address string
	host    Host
	// secret is on the host's disk. superseded is set if another agent has the ID, left if
	// the process has exited because of that.
	secret             string
	superseded, exited bool
	partitioned        bool
	// silent is set if the agent sends heartbeats, and answers no requests.
	silent bool

	// Until refusesUntil it starts no worker. It does not start a rejected worker again.
	refusesUntil time.Time
	rejected     map[instance]bool

	// rejectsLeader is set if its process rejects every leader of the assigner.
	rejectsLeader bool

	down      bool
	downUntil time.Time
	// callGeneration changes with everything that ends its calls in flight; processCount counts its
	// processes.
	callGeneration, processCount int
	// registers and reports count its registrations and its reports: only the answer to the newest
	// one counts.
	registers, reports int

	// owned is set after the agent has registered. confirmed is set if the agent was
	// superseded and has since announced that none of its workers runs.
	owned, confirmed bool

	// The state of the process, which a crash loses.
	incarnation   int64
	calling       bool      // a registration or announcement is in flight
	registerAfter time.Time // when it may register again after another agent with its ID
	lease         int64
	lastHeartbeat time.Time
	reporting     bool
	dirty         bool
	complete      bool
	sequence      int64
	// lastReport is when a report was last answered, zero for never. orphans is the number of its
	// orphaned workers in the answer; announcedOrphans is set if it was announced with any.
	lastReport time.Time
	orphans    int
	// acknowledgedTerm is the term of the assigner's leader that answered the newest complete report.
	acknowledgedTerm int64
	announcedOrphans bool
	// decisions are the decisions of a real agent.
	decisions *agentlib.Decisions

	// The state of the host, on its disk. names has the keys of workers, in order.
	workers map[instance]*worker
	names   []instance
	// stopped has the tombstones of workers. The value is true if the worker never started.
	stopped map[instance]bool
	disk    *disk
	// listing is set while a list of volumes is in flight. lists counts them, and listedTerm is
	// the term of the leader of executor-state that received the last one.
	listing    bool
	lists      int
	listedTerm int64
	// cell is what the agent of a cell knows; nil for a host.
	cell *cell
}

// instance is a worker at an epoch.
type instance struct {
	worker model.Worker
	epoch  int64
}

func (i instance) compare(o instance) int {
	return cmp.Or(
		cmp.Compare(i.worker.Job, o.worker.Job), cmp.Compare(i.worker.Stage, o.worker.Stage),
		i.worker.ID.Compare(o.worker.ID), cmp.Compare(i.epoch, o.epoch),
	)
}

type worker struct {
	instance
	uid          string
	volume       string // the ID of its volume, or "" for none
	state        model.WorkerState
	stays        bool // it ends only after its grace period
	grace        time.Duration
	exit         *int32
	acknowledged bool // its end is durable
	ready        bool // it has reported that it is ready
	queued       bool // its start was acknowledged and never begins
	reason       fault.Reason
	since        time.Time
}

// Stubborn begins the script of a worker that ignores SIGTERM.
const Stubborn = "trap '' TERM"

func addressOf(id string) string { return id + ":1" }

func newAgent(w *World, host Host) *agent {
	a := &agent{w: w, id: host.ID, address: addressOf(host.ID), host: host, secret: "secret of " + host.ID,
		workers: map[instance]*worker{}, stopped: map[instance]bool{}, rejected: map[instance]bool{}, callGeneration: 1,
		disk: newDisk()}
	if host.Cell > 0 {
		a.cell = newCell(a)
	}
	return a
}

func (a *agent) up() bool { return !a.exited && (!a.down || !a.w.now.Before(a.downUntil)) }

// crash ends the agent's process. The agent's workers keep running.
func (a *agent) crash() {
	a.w.logf("%s: the agent crashes", a.id)
	a.die()
	a.down, a.downUntil = true, a.w.now.Add(time.Duration(a.w.rng.IntN(11*int(a.w.pause.Milliseconds())))*time.Millisecond)
}

// die ends the agent's process.
func (a *agent) die() {
	a.restart()
	a.processCount++
	a.rejectsLeader = false
	a.registerAfter = time.Time{}
	a.superseded = false
	if a.cell != nil {
		a.cell.forget()
	}
}

// restart drops the state of the process. The agent ignores the answers to calls in flight.
func (a *agent) restart() {
	a.callGeneration++
	a.incarnation, a.calling, a.lease, a.reporting, a.sequence = 0, false, 0, false, 0
	a.decisions = nil
	a.lastReport, a.orphans, a.announcedOrphans, a.acknowledgedTerm = time.Time{}, 0, false, 0
	a.listing, a.listedTerm = false, 0
	a.lists++ // the answer to an earlier list does not count
	if a.cell != nil {
		a.cell.leaveStream()
	}
}

// nonce returns the nonce of the registrations of the process.
func (a *agent) nonce() string { return fmt.Sprintf("%s-%d", a.address, a.processCount) }

// permit checks the nonce of a start or stop request.
func (a *agent) permit(nonce dispatch.Nonce) error {
	if a.rejectsLeader {
		nonce = ""
	}
	return a.decisions.Permit(string(nonce))
}

// recover restores the state of a new process from the state of the host.
func (a *agent) recover() {
	a.decisions = agentlib.NewDecisions(a.id, a.nonce())
	a.names = slices.DeleteFunc(a.names, func(k instance) bool {
		forgotten := a.workers[k].queued && !a.workers[k].state.Terminal()
		if forgotten {
			delete(a.workers, k)
		}
		return forgotten
	})
	for _, k := range slices.SortedFunc(maps.Keys(a.stopped), instance.compare) {
		a.decisions.Bury(k.worker, k.epoch, a.stopped[k], a.w.now)
	}
	for _, k := range a.names {
		w := a.workers[k]
		if w.ready && w.state == model.WorkerStarting {
			w.state = model.WorkerRunning // it became ready while no agent ran
		}
		if !w.state.Terminal() {
			a.decisions.Adopt(k.worker, k.epoch, w.uid, w.state, w.since)
			a.decisions.AdoptOn(k.worker, k.epoch, w.volume)
		}
	}
	a.recoverVolumes()
}

// call sends a call of the agent to a service.
func (a *agent) call(what, service string, request any, done func(any, error)) {
	if a.partitioned {
		return
	}
	callGeneration := a.callGeneration
	a.w.call(a.id+": "+what, service, func() bool { return a.callGeneration == callGeneration && !a.partitioned },
		request, done)
}

func (a *agent) turn() {
	if a.cell != nil {
		a.cell.expire()
	}
	if !a.up() {
		return
	}
	a.down = false
	for _, k := range a.names {
		if a.w.lives && a.w.faultsStopped {
			break // a worker that is always restarted would never come to rest
		}
		if w := a.workers[k]; w.state == model.WorkerRunning && !a.w.directed && a.w.rng.IntN(60) == 0 {
			code := int32(a.w.rng.IntN(2))
			a.end(w, endState(code), &code)
		}
	}
	if a.mayExit() {
		a.w.logf("%s: the agent at %s exits", a.id, a.address)
		a.exited = true
		a.w.exits++
		return
	}
	if a.partitioned {
		return
	}
	switch {
	case a.superseded && a.incarnation == 0:
		return // without an incarnation it cannot report, and waits until its workers end
	case a.incarnation == 0:
		a.register()
	case a.w.now.Sub(a.lastHeartbeat) >= presenceTTL/3, a.lease != 0 && a.announcedOrphans != a.doubtful():
		a.heartbeat()
	}
	if a.orphans > 0 && a.w.now.Sub(a.lastReport) > presenceTTL {
		a.complete = true // a leader of the assigner since then may not know the workers
	}
	if a.mustList() {
		a.list()
	}
	if a.cell != nil {
		a.cell.turn()
	}
	if a.incarnation != 0 && (a.dirty || a.complete) && !a.reporting && !a.superseded {
		a.report()
	}
}

// busy reports whether a turn would do something.
func (a *agent) busy() bool {
	switch {
	case !a.up() || a.partitioned:
		return false
	case a.w.now.Before(a.registerAfter):
		return false
	case a.mayExit():
		return true
	case a.superseded && a.incarnation == 0:
		return false
	case a.incarnation == 0 || a.w.now.Sub(a.lastHeartbeat) >= presenceTTL/3 || a.lease != 0 &&
		a.announcedOrphans != a.doubtful():
		return !a.calling
	case a.mustList(), a.cell != nil && a.cell.replies():
		return true
	}
	return (a.dirty || a.complete) && !a.reporting && !a.superseded
}

// hasUnreported reports whether something on the host is not reported yet.
func (a *agent) hasUnreported() bool {
	return !a.superseded && !a.exited && (a.dirty || a.reporting || a.mustList())
}

// mayExit reports whether a superseded agent has nothing left to stop or report.
func (a *agent) mayExit() bool {
	return a.superseded && a.living() == 0 && (a.confirmed || a.incarnation == 0)
}

// supersede makes the agent stop its workers after a while, because another agent has
// taken over the ID. The agent sends heartbeats until it has announced that no worker
// runs.
func (a *agent) supersede() {
	if a.superseded {
		return
	}
	a.w.logf("%s: the agent at %s is superseded", a.id, a.address)
	a.superseded = true
	a.stopAll()
}

// stopAll stops the workers of the host without a request.
func (a *agent) stopAll() {
	for _, k := range a.names {
		if w := a.workers[k]; !w.state.Terminal() {
			w.state = model.WorkerEvicting
			a.w.later(time.Duration(a.w.rng.IntN(10_000))*time.Millisecond, func() { a.end(w, model.WorkerEvicted, nil) })
			a.dirty = a.dirty || a.incarnation != 0
		}
	}
}

// status returns what the agent reports of a worker at a time.
func (w *worker) status(now time.Time) dispatch.Status {
	s := dispatch.Status{State: w.state, ExitCode: w.exit, Reason: w.reason}
	if w.state.Terminal() {
		s.NeverStarted, s.EndedFor = w.queued, now.Sub(w.since)
	}
	return s
}

func endState(code int32) model.WorkerState {
	if code == 0 {
		return model.WorkerCompleted
	}
	return model.WorkerFailed
}

func (a *agent) register() {
	if a.calling || a.w.now.Before(a.registerAfter) {
		return
	}
	a.calling = true
	if a.decisions == nil {
		a.recover()
	}
	request := inventory.Register{
		ID: a.id, Address: a.address, SKU: a.host.SKU, Host: a.id, Attributes: a.host.Attributes,
		Resources: a.host.Resources.WithSlots(), Reserved: a.host.Reserved, Generation: a.host.Generation, Nonce: a.nonce(),
		SecretHash: a.secret, AllowLists: fmt.Sprintf("%#v", a.host.Allow),
	}
	if a.cell != nil {
		request.Resources, request.Cell = nil, true
	}
	a.registers++
	number := a.registers
	a.call("register", model.ServiceExecutorState, request, func(value any, err error) {
		if number != a.registers {
			return // the agent has sent another registration since
		}
		a.calling = false
		switch {
		case fault.Is(err, fault.ReasonOtherIncarnation):
			a.registerAfter = a.w.now.Add(registerInterval)
		case fault.Is(err, fault.ReasonOtherAgent):
			a.registerAfter = a.w.now.Add(registerInterval / 10)
			a.w.refusals++
			if a.owned || a.living() > 0 {
				a.supersede()
			}
		}
		if err != nil {
			return
		}
		r := value.(inventory.Registered)
		a.incarnation, a.owned = r.Incarnation, true
		a.decisions.Begin(r.Incarnation, r.AssignerTerm)
		a.complete, a.lastHeartbeat = true, time.Time{}
	})
	a.w.later(3*time.Second, a.callInFlight())
}

// registerInterval is how often an agent tries to register while another one has its ID.
const registerInterval = 30 * time.Second

// callInFlight returns a function that drops a call without an answer.
func (a *agent) callInFlight() func() {
	callGeneration := a.callGeneration
	return func() {
		if a.callGeneration == callGeneration {
			a.calling = false
		}
	}
}

// heartbeat keeps the presence, as a replica of executor-state does for a heartbeat stream: it
// puts the key if it is missing, if its etcd lease has no owner, or if what it says about
// the workers has changed.
func (a *agent) heartbeat() {
	if a.calling {
		return
	}
	if a.superseded {
		a.announce(0)
		return
	}
	ctx := context.Background()
	if a.lease != 0 {
		_, err := a.w.store.KeepAlive(ctx, a.lease)
		kv, present, _ := a.w.store.Get(ctx, a.w.space.Key(model.Ref{Kind: model.KindLive, ID: a.id}))
		if err == nil && present && kv.Lease == a.lease {
			a.lastHeartbeat = a.w.now
			if a.cell != nil {
				a.cell.confirm()
			}
			a.complete = a.complete || !a.reporting && a.lacks(a.w.leaderTerm(model.ServiceAssigner))
			record := a.record()
			if record != nil {
				a.announcedOrphans = record.Orphans // as in the replica's view
			}
			if a.announcedOrphans != a.doubtful() || a.living() == 0 && record != nil && record.Returning {
				a.announce(a.lease)
			}
			return
		}
		if err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
			return
		}
		a.lease = 0
	}
	lease, err := a.w.store.Grant(ctx, presenceTTL)
	if err != nil {
		return
	}
	a.announce(lease.ID)
}

// announce requests that the presence is attached to an etcd lease and contains the state
// of the workers.
func (a *agent) announce(lease int64) {
	a.calling = true
	announcedOrphans := a.doubtful()
	request := inventory.Announce{ID: a.id, Incarnation: a.incarnation, EtcdLease: lease, Workers: a.living(),
		Orphans: announcedOrphans, Nonce: a.nonce()}
	number := a.registers
	a.call("announce", model.ServiceExecutorState, request, func(value any, err error) {
		if number != a.registers {
			return // the agent has registered again since then
		}
		a.calling = false
		switch f := fault.Of(err); {
		case err == nil && value.(inventory.Announced).Superseded:
			a.lastHeartbeat, a.lease = a.w.now, 0
			a.confirmed = a.superseded && request.Workers == 0
			a.supersede()
		case err == nil:
			a.complete = a.complete || a.lease != lease
			a.lease, a.lastHeartbeat, a.announcedOrphans = lease, a.w.now, announcedOrphans
		case f.Reason == fault.ReasonOtherIncarnation || f.Reason == fault.ReasonNotFound ||
			f.Reason == fault.ReasonOtherAgent:
			a.restart() // the next turn registers again
		}
	})
	a.w.later(3*time.Second, a.callInFlight())
}

// living returns the number of running workers.
func (a *agent) living() int {
	n := 0
	for _, worker := range a.workers {
		if !worker.state.Terminal() {
			n++
		}
	}
	return n
}

// doubtful reports whether the agent has orphaned workers, or workers that no answer of
// the assigner has confirmed yet.
func (a *agent) doubtful() bool {
	if a.lastReport.IsZero() {
		return a.living() > 0
	}
	return a.orphans > 0
}

// lacks reports whether the assigner's leader of a term needs a complete report, because
// the last complete report went to an earlier leader.
func (a *agent) lacks(term int64) bool {
	return term > a.acknowledgedTerm && (a.living() > 0 || a.orphans > 0)
}

// record returns the executor record in the store, or nil if there is none.
func (a *agent) record() *model.Executor {
	ref := model.Ref{Kind: model.KindExecutor, ID: a.id}
	kv, present, err := a.w.store.Get(context.Background(), a.w.space.Key(ref))
	if err != nil || !present {
		return nil
	}
	record, err := wire.Decode(ref, kv.Value, kv.Create, kv.Mod, kv.Lease)
	if err != nil {
		a.w.fail("%v", err)
		return nil
	}
	return record.(*model.Executor)
}

// add adds a worker to the host.
func (a *agent) add(w *worker) {
	at, _ := slices.BinarySearchFunc(a.names, w.instance, instance.compare)
	a.names = slices.Insert(a.names, at, w.instance)
	a.workers[w.instance] = w
}

// report reports all workers whose end is not durable yet.
func (a *agent) report() {
	a.sequence++
	r := dispatch.Report{Executor: a.id, Incarnation: a.incarnation, Sequence: a.sequence, Complete: a.complete}
	for _, k := range a.names {
		w := a.workers[k]
		if w.acknowledged {
			continue
		}
		r.Workers = append(r.Workers, dispatch.WorkerStatus{
			Worker: w.worker, Epoch: w.epoch, UID: w.uid, Status: w.status(a.w.now),
		})
	}
	a.w.logf("%s: report %d with %d workers, complete: %v", a.id, r.Sequence, len(r.Workers), r.Complete)
	a.dirty, a.complete, a.reporting = false, false, true
	a.reports++
	number := a.reports
	a.call("report", model.ServiceAssigner, r, func(value any, err error) {
		if number != a.reports {
			return // the agent has given up this report, and the newer one has no answer yet
		}
		a.reporting = false
		if err != nil {
			a.complete = true
			return
		}
		answer := value.(dispatch.Reported)
		if r.Complete {
			a.acknowledgedTerm = answer.Term
		}
		if answer.Term == a.acknowledgedTerm {
			a.lastReport, a.orphans = a.w.now, answer.Orphans
		} else {
			a.orphans = max(a.orphans, answer.Orphans)
		}
		a.complete = a.complete || a.lacks(answer.Term)
		for _, ended := range answer.Ended {
			a.w.logf("%s: the end of %s at epoch %d is acknowledged", a.id, ended.Worker, ended.Epoch)
			if w := a.workers[instance{ended.Worker, ended.Epoch}]; w != nil && w.state.Terminal() {
				w.acknowledged = true
				a.decisions.Known(w.worker, w.epoch)
			}
		}
		for _, w := range a.workers {
			a.dirty = a.dirty || w.state.Terminal() && !w.acknowledged
		}
	})
	a.w.later(4*time.Second, func() {
		if number == a.reports && a.reporting {
			a.reporting, a.complete = false, true
		}
	})
}

// submit sends a start request to the agent at an address. It is like order, but without a
// connection the request is certainly not sent.
func (w *World) submit(s dispatch.Submit, done func(any)) {
	sent := true
	for _, a := range w.agents {
		sent = sent && (a.address != s.Address || !a.silent || a.host.Connects)
	}
	w.order(s.Address, func(a *agent) any { return a.submit(s) }, s.Timeout, func(outcome any) {
		if u, unknown := outcome.(dispatch.Unknown); unknown && !sent {
			outcome = dispatch.Undelivered(u)
		}
		done(outcome)
	})
}

// order sends a start or stop request to the agent at an address. It calls done once with
// the answer, or with an Unknown if no answer arrives in time.
func (w *World) order(address string, carry func(*agent) any, timeout time.Duration, done func(any)) {
	var to *agent
	for _, a := range w.agents {
		if a.address == address {
			to = a
		}
	}
	if to == nil {
		w.fail("request to the unknown executor %q", address)
		return
	}
	silent := to.silent
	answered := false
	once := func(outcome any) {
		if !answered {
			answered = true
			done(outcome)
		}
	}
	arrive := func() {
		if silent || to.partitioned || !to.up() || to.incarnation == 0 {
			return
		}
		outcome := carry(to)
		w.send("answer of "+to.id, func() {
			if !to.partitioned {
				once(outcome)
			}
		})
	}
	if what := "order to " + to.id; w.retention > 0 && w.fault(6) {
		w.releaseLateMessages(what, time.Minute, arrive)
	} else {
		w.send(what, arrive)
	}
	w.later(timeout, func() { once(dispatch.Unknown{Message: "no answer"}) })
}

// submit handles a start request. If a worker with the same name and a lower epoch runs,
// submit ends that worker, and the assigner must repeat the request.
func (a *agent) submit(s dispatch.Submit) any {
	if err := a.permit(s.Nonce); err != nil {
		return dispatch.Refused{Reason: fault.Of(err).Reason}
	}
	k := instance{s.Worker, s.Epoch}
	start, older, err := a.decisions.Submit(s.Term, s.Incarnation, s.Worker, s.Epoch, s.UID, a.w.now)
	switch f := fault.Of(err); {
	case older != 0:
		a.w.supersedes(a, k, older)
		a.end(a.workers[instance{s.Worker, older}], model.WorkerEvicted, nil)
		return dispatch.Inconclusive{Message: f.Message}
	case err != nil:
		return dispatch.Refused{Reason: f.Reason}
	}
	a.sequence++
	if !start {
		w := a.workers[k]
		return dispatch.Accepted{Status: w.status(a.w.now), Incarnation: a.incarnation,
			Sequence: a.sequence}
	}
	if a.cell != nil && !a.cell.begin(s.UID) {
		a.decisions.NotStarted(k.worker, k.epoch)
		return dispatch.Refused{Reason: fault.ReasonNotHeld}
	}
	if refused, ok := a.refuses(k, s.Task); ok {
		a.decisions.NotStarted(k.worker, k.epoch)
		return refused
	}
	if s.Volume != nil {
		if err := a.decisions.Occupy(k.worker, k.epoch, s.Volume.ID, s.Volume.Create); err != nil {
			a.decisions.NotStarted(k.worker, k.epoch)
			return dispatch.Refused{Reason: fault.Of(err).Reason, Message: fault.Of(err).Message}
		}
		if !a.w.faultsStopped && !a.w.directed && a.w.rng.IntN(6) == 0 {
			return a.queue(&worker{instance: k, uid: s.UID, volume: s.Volume.ID, state: model.WorkerStarting,
				queued: true, since: a.w.now})
		}
		a.useVolume(k, s.Volume.ID)
	}
	stays := s.Task.StopSignal == "" && len(s.Task.Args) > 1 && strings.HasPrefix(s.Task.Args[1], Stubborn)
	w := &worker{instance: k, uid: s.UID, stays: stays, since: a.w.now}
	if s.Volume != nil {
		w.volume = s.Volume.ID
	}
	w.state = a.decisions.Started(k.worker, k.epoch, s.Task.Readiness, a.w.now)
	a.add(w)
	a.w.started(a, k)
	if s.Task.Readiness == model.ReadyReported {
		a.load(w, s.Task.StartLimit())
	}
	a.dirty = true
	return dispatch.Accepted{Status: dispatch.Status{State: w.state}, Incarnation: a.incarnation, Sequence: a.sequence}
}

// queue acknowledges a start that never begins: the agent cannot make the volume's directory,
// or the worker is stopped before.
func (a *agent) queue(w *worker) any {
	a.w.logf("%s: the start of %s at epoch %d is queued", a.id, w.worker, w.epoch)
	a.add(w)
	a.w.later(time.Duration(a.w.rng.IntN(2000))*time.Millisecond, func() {
		if a.workers[w.instance] == w {
			a.end(w, model.WorkerFailed, nil)
		}
	})
	return dispatch.Accepted{Status: w.status(a.w.now), Incarnation: a.incarnation, Sequence: a.sequence}
}

// load makes a worker report after a while that it is ready. Some workers never do: they end
// after the limit. The workers of a Stage report when its caller says so.
func (a *agent) load(w *worker, limit time.Duration) {
	a.w.unready[unready{w.uid, w.worker.ID}] = true
	if a.w.directed || !a.w.faultsStopped && a.w.rng.IntN(6) == 0 {
		a.w.later(limit, func() {
			if w.state == model.WorkerStarting && !w.ready {
				a.w.logf("%s: %s at epoch %d was not ready in time", a.id, w.worker, w.epoch)
				w.reason = fault.ReasonStartTimeout
				a.end(w, model.WorkerFailed, new(int32(128+15))) // the agent stops it
			}
		})
		return
	}
	a.w.later(time.Duration(a.w.rng.Int64N(int64(limit))), func() { a.ready(w) })
}

// ready makes a worker report that it is ready.
func (a *agent) ready(w *worker) {
	if w.state.Terminal() {
		return
	}
	a.w.logf("%s: %s at epoch %d is ready", a.id, w.worker, w.epoch)
	delete(a.w.unready, unready{w.uid, w.worker.ID})
	w.ready = true
	if a.decisions != nil && a.decisions.Ready(w.worker, w.epoch, a.w.now) && w.state == model.WorkerStarting {
		w.state, a.dirty = model.WorkerRunning, true
	}
}

// refuses returns the reason why a task is not started, if there is one. The hosts of a Stage can
// start only the command sh. No host allows the variable LD_PRELOAD.
func (a *agent) refuses(k instance, task *model.Task) (dispatch.Refused, bool) {
	// Some workers never start on some hosts. Berth must come to rest nevertheless.
	if !a.w.directed && a.w.rng.IntN(8) == 0 {
		a.rejected[k] = true
	}
	switch {
	case a.host.Allow != nil && !slices.Contains(a.host.Allow, task.Command):
		return dispatch.Refused{Reason: fault.ReasonNotAllowed, Message: "command is not on the allow-list",
			BadTask: true}, true
	case task.Env["LD_PRELOAD"] != "":
		return dispatch.Refused{Reason: fault.ReasonNotAllowed, Message: "variable is not on the allow-list",
			BadTask: true}, true
	case a.rejected[k], !a.w.faultsStopped && a.w.now.Before(a.refusesUntil), a.w.directed && task.Command != "sh":
		return dispatch.Refused{Reason: fault.ReasonStartFailed, Message: "command not found", BadTask: true}, true
	}
	return dispatch.Refused{}, false
}

// stop handles a stop request. If the answer is Ended, the host promises that it will
// never start the worker again.
func (a *agent) stop(s dispatch.Stop) any {
	if err := a.permit(s.Nonce); err != nil {
		return dispatch.Refused{Reason: fault.Of(err).Reason}
	}
	k := instance{s.Worker, s.Epoch}
	present, neverStarted, err := a.decisions.Stop(s.Term, s.Incarnation, s.Worker, s.Epoch, a.w.now)
	if err != nil {
		return dispatch.Refused{Reason: fault.Of(err).Reason}
	}
	a.sequence++
	if !present {
		a.stopped[k] = neverStarted
		a.w.promises(a, k)
		return dispatch.Ended{State: model.WorkerEvicted, NeverStarted: neverStarted}
	}
	w := a.workers[k]
	if !w.state.Terminal() && w.stays {
		if w.state != model.WorkerEvicting || s.Grace < w.grace {
			w.state, w.grace = model.WorkerEvicting, s.Grace
			a.w.later(s.Grace, func() { a.end(w, model.WorkerEvicted, nil) })
		}
		return dispatch.Stopping{}
	}
	if !w.state.Terminal() && a.w.rng.IntN(2) == 0 {
		w.state = model.WorkerEvicting
		slowest := 3000
		if a.w.directed {
			slowest = 500 // its files have limits of time
		}
		a.w.later(time.Duration(a.w.rng.IntN(slowest))*time.Millisecond, func() { a.end(w, model.WorkerEvicted, nil) })
		return dispatch.Stopping{}
	}
	if !w.state.Terminal() {
		a.end(w, model.WorkerEvicted, nil)
	}
	a.w.promises(a, k)
	return dispatch.Ended(w.status(a.w.now))
}

// end records the end of a worker's process.
func (a *agent) end(w *worker, state model.WorkerState, exit *int32) {
	if w.state.Terminal() {
		return
	}
	w.state, w.exit, w.since = state, exit, a.w.now
	a.w.logf("%s: %s at epoch %d ends %s", a.id, w.worker, w.epoch, state)
	a.stopped[w.instance] = w.queued
	if a.decisions != nil {
		a.decisions.Ended(w.worker, w.epoch, agentlib.Exit{Code: exit, Stopped: state == model.WorkerEvicted}, w.since)
	}
	a.dirty = true
}
