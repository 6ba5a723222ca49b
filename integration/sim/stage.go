package sim

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/gateway"
	"berth.dev/services/registry/queue"
)

// Stage is a world in which only the faults happen that its caller requests: no message
// is lost, no worker ends by itself, and time passes only while the caller waits. A Stage
// implements a connection to a gateway, so the generated clients of the public services
// can use it.
type Stage struct {
	*leaders
	// composed has the handlers of the gateway itself.
	composed endpoint
}

// Config configures the cluster of a Stage.
type Config struct {
	// Replicas is the number of replicas of each service.
	Replicas  int
	Queue     queue.Config
	Inventory inventory.Config
}

// NewStage returns a world without executors. The world writes its transcript to out.
func NewStage(config Config, out io.Writer) *Stage {
	w := newWorld(1, out)
	w.faultsStopped, w.directed, w.volumes.enabled = true, true, true
	w.startReplicas(config.Replicas, config.Queue, config.Inventory)
	s := &Stage{leaders: &leaders{w: w}, composed: endpoint{}}
	gateway.Serve(s.composed, s.leaders)
	return s
}

// Until runs the world until a condition holds. It returns an error after a violation or
// a timeout.
func (s *Stage) Until(holds func() bool) error {
	if !s.w.until(holds) && s.w.failure == nil {
		return fmt.Errorf("condition not met within %v of simulated time", patience)
	}
	return s.w.failure
}

// Now returns the simulated time.
func (s *Stage) Now() time.Time { return s.w.now }

// Wait lets time pass.
func (s *Stage) Wait(d time.Duration) error {
	end := s.w.now.Add(d)
	return s.Until(func() bool { return !s.w.now.Before(end) })
}

// StartHost starts a new host and its agent. If the host exists and is stopped, StartHost
// starts it with a new description.
func (s *Stage) StartHost(h Host) {
	if a := s.agent(h.ID); a != nil {
		a.host, a.down = h, false
		return
	}
	a := newAgent(s.w, h)
	a.silent = h.Silent
	s.w.agents = append(s.w.agents, a)
}

// CopyHost starts another host whose agent has the same ID.
func (s *Stage) CopyHost(h Host) error {
	first := s.agent(h.ID)
	if first == nil {
		return fmt.Errorf("unknown agent %s", h.ID)
	}
	a := newAgent(s.w, h)
	a.address = first.address + "0"
	a.secret += " elsewhere"
	s.w.agents = append(s.w.agents, a)
	return nil
}

// RestartHost restarts the killed agent of a host. The host has a new description and its
// old disk.
func (s *Stage) RestartHost(id string, now Host) error {
	if err := s.RestartAgent(id); err != nil {
		return err
	}
	a := s.agent(id)
	a.id, a.host, a.address = now.ID, now, addressOf(now.ID)
	return nil
}

// agent returns the newest agent of an executor.
func (s *Stage) agent(id string) *agent {
	for _, a := range slices.Backward(s.w.agents) {
		if a.id == id {
			return a
		}
	}
	return nil
}

// KillAgent ends an agent's process. The agent's workers keep running. The host refuses
// connections, which proves to the control plane that the agent has ended.
func (s *Stage) KillAgent(id string) error {
	a := s.agent(id)
	if a == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	departed := inventory.Depart{ID: a.id, Incarnation: a.incarnation, EtcdLease: a.lease}
	s.w.call(id+": refused", model.ServiceExecutorState, func() bool { return true }, departed, func(any, error) {})
	a.die()
	a.partitioned = false // a killed process is no longer frozen
	a.down, a.downUntil = true, s.w.now.Add(never)
	return nil
}

// Wipe ends all workers on the host of a killed agent and deletes its disk.
func (s *Stage) Wipe(id string) error {
	a := s.agent(id)
	if a == nil || !a.down {
		return fmt.Errorf("agent %s was not killed", id)
	}
	clear(a.workers)
	clear(a.stopped)
	a.names = nil
	return nil
}

// WipeVolumes deletes the volumes of a killed agent's host.
func (s *Stage) WipeVolumes(id string) error {
	a := s.agent(id)
	if a == nil || !a.down {
		return fmt.Errorf("agent %s was not killed", id)
	}
	a.disk.volumes = map[string]bool{}
	return nil
}

// AddVolume makes a directory among the volumes of an agent's host.
func (s *Stage) AddVolume(id, name string) error {
	a := s.agent(id)
	if a == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	a.disk.volumes[name] = true
	return nil
}

// HasVolume reports whether a host has the directory of a volume.
func (s *Stage) HasVolume(id, volume string) bool {
	a := s.agent(id)
	return a != nil && a.disk.volumes[volume]
}

// Written returns which workers have started on a volume since it was made, in order.
func (s *Stage) Written(id, volume string) ([]string, error) {
	if !s.HasVolume(id, volume) {
		return nil, fmt.Errorf("%s does not have volume %s", id, volume)
	}
	return s.agent(id).disk.written[volume], nil
}

// RestartAgent starts a killed agent.
func (s *Stage) RestartAgent(id string) error {
	a := s.agent(id)
	if a == nil || !a.down {
		return fmt.Errorf("agent %s was not killed", id)
	}
	a.down = false
	return nil
}

// FreezeAgent stops all messages from and to an agent until ThawAgent.
func (s *Stage) FreezeAgent(id string) error { return s.setPartitioned(id, true) }

// ThawAgent ends FreezeAgent.
func (s *Stage) ThawAgent(id string) error { return s.setPartitioned(id, false) }

func (s *Stage) setPartitioned(id string, partitioned bool) error {
	a := s.agent(id)
	if a == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	a.partitioned = partitioned
	return nil
}

// AnswerAgent makes a silent agent answer requests.
func (s *Stage) AnswerAgent(id string) error {
	a := s.agent(id)
	if a == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	a.silent = false
	return nil
}

// Ready makes a worker that loads report that it is ready, and reports whether it loaded.
func (s *Stage) Ready(w model.Worker) bool {
	for _, a := range s.w.agents {
		for _, k := range a.names {
			if worker := a.workers[k]; k.worker == w && worker.state == model.WorkerStarting {
				a.ready(worker)
				return true
			}
		}
	}
	return false
}

// Exit ends a worker's process, which may not be ready, and reports whether it existed.
func (s *Stage) Exit(w model.Worker, code int32) bool {
	for _, a := range s.w.agents {
		for _, k := range a.names {
			switch worker := a.workers[k]; {
			case k.worker != w:
			case worker.state == model.WorkerStarting, worker.state == model.WorkerRunning:
				a.end(worker, endState(code), &code)
				return true
			case worker.state == model.WorkerEvicting:
				a.end(worker, model.WorkerEvicted, &code)
				return true
			}
		}
	}
	return false
}

// KillLeader ends the process of a service's leader and returns a function that restarts
// the process. It returns nil if the service has no leader.
func (s *Stage) KillLeader(service string) (restart func()) {
	for _, r := range s.w.replicas[service] {
		if r.leads() {
			r.down()
			return r.up
		}
	}
	return nil
}

// Events returns the events of a job in the order of its stream.
func (s *Stage) Events(job string) ([]*berthv1.Event, error) {
	var events []*berthv1.Event
	for _, r := range s.w.store.History() {
		from := len(events)
		for _, c := range r.Changes {
			if e, ok := s.w.space.ParseEvent(c.Key); c.Deleted || !ok || e.Job != job || e.Segment == 0 {
				continue
			}
			event := &berthv1.Event{}
			if err := proto.Unmarshal(c.Value, event); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Key, err)
			}
			event.Revision = r.Revision
			events = append(events, event)
		}
		slices.SortFunc(events[from:], func(a, b *berthv1.Event) int { return index(a) - index(b) })
	}
	return events, nil
}

// index returns the index of an event in its transaction, which is the stored cursor.
func index(e *berthv1.Event) int {
	n, _ := strconv.Atoi(e.GetCursor())
	return n
}

// Store returns the store and the key space of the cluster.
func (s *Stage) Store() (store.Store, keyspace.Space) { return s.w.store, s.w.space }

// Programs returns the number of running worker programs on all hosts.
func (s *Stage) Programs() (int, error) {
	programs := 0
	for _, a := range s.w.agents {
		programs += a.living()
	}
	return programs, nil
}

// Rest waits until nothing is in flight. It returns an error if that does not happen in
// time or the world has found a violation.
func (s *Stage) Rest() error {
	if err := s.Until(func() bool { return len(s.w.audit.Quiesced()) == 0 }); err != nil {
		left := s.w.audit.Quiesced()
		return fmt.Errorf("%w: %d violations: %v", err, len(left), left)
	}
	return nil
}
