package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/inventory"
)

var largeFleet = Workload{
	Name:  "fleet",
	Shows: "the inventory by fleet size: a batch of 100, memory, usage",
	Run: func(ctx context.Context, r *Run) error {
		for _, n := range []int{smallestFleet, 10_000, fleetSize} {
			s := &sizedFleet{r: r, n: r.Sized(n, 10), largest: n == fleetSize}
			if err := s.fitBatches(); err != nil {
				return err
			}
			if err := r.World(ctx, fleet.Config{Seed: seedExecutors("many", s.n)}, s.measure); err != nil {
				return err
			}
		}
		return nil
	},
}

// smallestFleet is the size of the smallest fleet, whose figures are the baselines of the
// larger fleets.
const smallestFleet = 1000

// sizedFleet measures a fleet of n executors. Only the largest fleet has targets.
type sizedFleet struct {
	r       *Run
	n       int
	largest bool
}

// add adds a figure of the fleet. The baseline is the figure of the smallest fleet. The
// target is a median of at most atMost. If atMost is 0, the figure has no target.
func (s *sizedFleet) add(what, unit string, samples []float64, atMost float64) {
	name := func(n int) string { return fmt.Sprintf("%s, %d executors", what, n) }
	f := Figure{Name: name(s.n), Unit: unit, Samples: samples}
	if smallest := s.r.Sized(smallestFleet, 10); s.n > smallest {
		f.Against = name(smallest)
	}
	if s.largest && atMost > 0 {
		f.Target = &Target{Of: Median, AtMost: atMost}
	}
	s.r.Add(f)
}

// fitBatches measures, in this process, the step of the inventory core that chooses
// executors for a batch of 100 and decides the lease. Then it abandons the lease.
func (s *sizedFleet) fitBatches() error {
	s.r.Say("fitting batches of 100 on %d executors, in this process", s.n)
	core, now := inventory.New(inventory.DefaultConfig()), time.Now()
	revision := int64(1)
	store := func(record model.Record) {
		revision++
		core.Step(now, model.Changed{Ref: record.Ref(), Record: record, Create: revision, Mod: revision})
	}
	for i := range s.n {
		e := seededExecutor("many", i, now)
		store(e)
		store(&model.Live{ID: e.ID, Incarnation: e.Incarnation})
	}
	revision++
	core.Step(now, model.Changed{Ref: model.LeaderRef(model.ServiceRegistry), Record: &model.Leader{}, Create: 1, Mod: 1})
	core.Step(now, model.Elected{Term: revision, Revision: revision})
	candidate := model.Candidate{
		Key: model.Key{Job: "fit", Stage: "s", Name: "main"}, UID: "fit", Group: "g", Mod: revision + 1,
		Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1, "cpu": 100}},
		Workers:     model.WorkerSet{{First: 0, Last: 99, Number: 1}},
	}
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []float64
	for range s.r.Sized(500, 10) {
		begun := time.Now()
		actions := core.Step(now, model.Input{Token: 1, Request: model.Cycle{Term: 1, Number: 1,
			Candidates: []model.Candidate{candidate}}})
		took = append(took, millis(time.Since(begun)))
		if len(actions) != 1 {
			return fault.New(fault.Internal, fault.ReasonInternal, "a batch of 100 does not fit on %d executors", s.n)
		}
		core.Step(now, model.Abandoned{})
	}
	s.add("fit 100", "ms", took, 1)
	return nil
}

// measure measures the usage call and the memory of the services.
func (s *sizedFleet) measure(ctx context.Context, w *World) error {
	l, err := w.load(ctx, fmt.Sprintf("usage, %d executors", s.n), 1, bounds{most: s.r.Sized(200, 5)},
		func(ctx context.Context, _, _ int) error {
			answer, err := w.Client.Usage(ctx, "")
			if rows := answer.GetSkus(); err == nil && (len(rows) != 1 || rows[0].GetIdle() != int32(s.n)) {
				err = fault.New(fault.Internal, fault.ReasonInternal, "usage of %d idle executors returns %v", s.n, rows)
			}
			return err
		})
	if err != nil {
		return err
	}
	s.add("usage", "ms", l.Took, 20)
	u, err := measureUsage(w.pids())
	if err != nil {
		return err
	}
	atMost := map[string]float64{model.ServiceExecutorState: 600}
	for _, service := range services {
		s.add("memory of "+service, "MB", []float64{u.memory[service]}, atMost[service])
	}
	return nil
}
