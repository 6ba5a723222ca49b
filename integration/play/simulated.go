package play

import (
	"fmt"
	"io"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/integration/sim"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// Simulated is a cluster in the simulator.
type Simulated struct {
	*sim.Stage
	killed map[string]func()
}

// NewSimulated returns a simulated cluster. The simulator writes its transcript to out.
func NewSimulated(o Options, out io.Writer) *Simulated {
	registry := queue.Config{BestEffort: o.Legacy}
	if name, value, set := strings.Cut(o.Defaults, "="); set {
		registry.DefaultAttributes = map[string]string{name: value}
	}
	if o.Readiness == "signal" {
		registry.Readiness = queue.ReadyOnSignal
	}
	return &Simulated{
		Stage:  sim.NewStage(sim.Config{Replicas: o.Replicas, Queue: registry, Inventory: inventory.DefaultConfig()}, out),
		killed: map[string]func(){},
	}
}

// Follow implements Cluster.
func (s *Simulated) Follow(job string, enough func(*berthv1.Event) bool) error {
	seen, done := 0, false
	var broken error
	err := s.Until(func() bool {
		events, err := s.Events(job)
		if broken = err; err != nil {
			return true
		}
		for ; seen < len(events) && !done; seen++ {
			done = enough(events[seen])
		}
		return done
	})
	if broken != nil {
		return broken
	}
	return err
}

// StartExecutor implements Cluster.
func (s *Simulated) StartExecutor(e Executor) error {
	s.StartHost(e.simulated())
	return nil
}

// RestartAgentAs implements Cluster.
func (s *Simulated) RestartAgentAs(id string, now Executor) error {
	return s.RestartHost(id, now.simulated())
}

// StartCopy implements Cluster.
func (s *Simulated) StartCopy(e Executor) error { return s.CopyHost(e.simulated()) }

func (e Executor) simulated() sim.Host {
	return sim.Host{ID: e.ID, SKU: e.SKU, Attributes: e.Attributes, Resources: e.Resources, Reserved: e.Reserved,
		Generation: e.Generation, Allow: e.Allow, Silent: e.Silent, Connects: e.Connects}
}

// KillLeader implements Cluster.
func (s *Simulated) KillLeader(service string) error {
	killed := func() bool {
		s.killed[service] = s.Stage.KillLeader(service)
		return s.killed[service] != nil
	}
	if err := s.Until(killed); err != nil {
		return fmt.Errorf("%s has no leader to kill: %w", service, err)
	}
	return nil
}

// Restart implements Cluster.
func (s *Simulated) Restart(service string) error {
	restart := s.killed[service]
	if restart == nil {
		return fmt.Errorf("no process of %s was killed", service)
	}
	restart()
	delete(s.killed, service)
	return nil
}

// Finish implements Cluster.
func (s *Simulated) Finish(worker model.Worker, code int32) error {
	if err := s.Until(func() bool { return s.Exit(worker, code) }); err != nil {
		return fmt.Errorf("%s is not running: %w", worker, err)
	}
	return nil
}

// Ready implements Cluster.
func (s *Simulated) Ready(worker model.Worker) error {
	if err := s.Until(func() bool { return s.Stage.Ready(worker) }); err != nil {
		return fmt.Errorf("%s does not load: %w", worker, err)
	}
	return nil
}

// Timely implements Cluster.
func (s *Simulated) Timely() bool { return true }

// Close implements Cluster.
func (s *Simulated) Close() error { return nil }
