package dispatch

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// agent simulates an executor's agent. It starts each (uid, worker ID) at most once and
// refuses to start a worker after a request to stop that worker. It remembers the end of a
// worker until the assigner acknowledges the end.
type agent struct {
	id          string
	incarnation int64
	sequence    int64
	workers     map[placed]*played
	promised    map[placed]bool
	// volumes has the volumes of the executor, with the worker that used each last.
	volumes map[string]placed
	// destroyed has the volumes that the executor never has again.
	destroyed map[string]bool
}

type played struct {
	status WorkerStatus
}

func newAgent(id string) *agent {
	return &agent{id: id, incarnation: 1, workers: map[placed]*played{}, promised: map[placed]bool{},
		volumes: map[string]placed{}, destroyed: map[string]bool{}}
}

func (a *agent) next() int64 { a.sequence++; return a.sequence }

// restart begins a new incarnation of the agent, which keeps only the chosen workers. It
// also forgets its promises, because the new incarnation refuses all requests to the former
// one.
func (a *agent) restart(incarnation int64, keep func(placed) bool) {
	a.incarnation, a.sequence = incarnation, 0
	a.promised = map[placed]bool{}
	maps.DeleteFunc(a.workers, func(p placed, _ *played) bool { return !keep(p) })
}

func (a *agent) submit(s Submit, refuse bool) any {
	p := placed{s.UID, s.Worker.ID}
	switch w := a.workers[p]; {
	case s.Incarnation != a.incarnation:
		return Refused{Reason: fault.ReasonOtherIncarnation}
	case w != nil:
		return Accepted{Status: w.status.Status, Incarnation: a.incarnation, Sequence: a.next()}
	case a.promised[p]:
		return Refused{Reason: fault.ReasonStopped}
	case refuse:
		return Refused{Reason: fault.ReasonNotAllowed}
	}
	if s.Volume != nil {
		last, has := a.volumes[s.Volume.ID]
		switch {
		case has && a.runs(last):
			return Refused{Reason: fault.ReasonVolumeInUse}
		case a.destroyed[s.Volume.ID]:
			return Refused{Reason: fault.ReasonVolumeDestroyed}
		case !has && !s.Volume.Create:
			return Refused{Reason: fault.ReasonVolumeMissing}
		}
		a.volumes[s.Volume.ID] = p
	}
	a.workers[p] = &played{WorkerStatus{Worker: s.Worker, Epoch: s.Epoch, UID: s.UID,
		Status: Status{State: model.WorkerStarting}}}
	return Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: a.incarnation, Sequence: a.next()}
}

func (a *agent) stop(s Stop, slow bool) any {
	p := placed{s.UID, s.Worker.ID}
	if s.Incarnation != a.incarnation {
		return Unknown{"other incarnation"}
	}
	a.promised[p] = true
	w := a.workers[p]
	switch {
	case w == nil:
		return Ended{State: model.WorkerEvicted}
	case w.status.State.Terminal():
	case slow:
		w.status.State = model.WorkerEvicting
		return Stopping{}
	default:
		w.status.State = model.WorkerEvicted
	}
	return Ended(w.status.Status)
}

// runs reports whether the agent has a worker that has not ended.
func (a *agent) runs(p placed) bool {
	return a.workers[p] != nil && !a.workers[p].status.State.Terminal()
}

// drop destroys volumes, unless a worker on one of them has not ended.
func (a *agent) drop(d DropVolumes, refuse bool) any {
	switch {
	case d.Incarnation != a.incarnation:
		return Refused{Reason: fault.ReasonOtherIncarnation}
	case refuse, slices.ContainsFunc(d.IDs, func(id string) bool { return a.runs(a.volumes[id]) }):
		return Refused{Reason: fault.ReasonVolumeInUse}
	}
	for _, id := range d.IDs {
		delete(a.volumes, id)
		a.destroyed[id] = true
	}
	return Dropping{}
}

// neverReady is a code for advance: the worker misses its start timeout.
const neverReady = 2

// advance moves a worker to its next state.
func (a *agent) advance(p placed, code int32) {
	switch w := a.workers[p]; w.status.State {
	case model.WorkerStarting:
		w.status.State = model.WorkerRunning
		if code == neverReady {
			w.status.State, w.status.Reason = model.WorkerFailed, fault.ReasonStartTimeout
		}
	case model.WorkerRunning:
		w.status.State, w.status.ExitCode = model.WorkerCompleted, &code
		if code != 0 {
			w.status.State = model.WorkerFailed
		}
	case model.WorkerEvicting:
		w.status.State = model.WorkerEvicted
	}
}

func (a *agent) report() Report {
	r := Report{Executor: a.id, Incarnation: a.incarnation, Sequence: a.next(), Complete: true}
	for _, p := range a.list() {
		r.Workers = append(r.Workers, a.workers[p].status)
	}
	return r
}

// forget removes the workers whose ends were acknowledged. The agent promises not to start
// any of them again.
func (a *agent) forget(r Reported) {
	for _, status := range r.Ended {
		p := placed{status.UID, status.Worker.ID}
		delete(a.workers, p)
		a.promised[p] = true
	}
}

func (a *agent) list() []placed {
	return slices.SortedFunc(maps.Keys(a.workers), func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.uid, y.uid), x.workerID.Compare(y.workerID))
	})
}
