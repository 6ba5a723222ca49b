package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/inventory"
)

var largeFleet = Workload{
	Name:  "fleet",
	Shows: "the inventory: a batch of 100, memory, usage, by the fleet",
	Worlds: func(ctx context.Context, r *Run) error {
		against := sizedNames{}
		for _, n := range []int{1000, 10_000, fleetSize} {
			n = r.Sized(n, 10)
			var targets sizedTargets
			if n == fleetSize {
				targets = sizedTargets{
					fit: &Target{Of: Median, AtMost: 1}, memory: &Target{Of: Median, AtMost: 600}, usage: &Target{Of: Median, AtMost: 20},
				}
			}
			if err := fitBatches(r, n, against, targets.fit); err != nil {
				return err
			}
			err := r.World(ctx, setup{seed: seedExecutors("many", n)}, func(ctx context.Context, w *World) error {
				return lookAt(ctx, w, n, against, targets)
			})
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// sizedTargets are those of the largest fleet.
type sizedTargets struct{ fit, memory, usage *Target }

// sizedNames are the figures of the smallest fleet, which the others are compared
// with, by what they are about.
type sizedNames map[string]string

// add adds a figure of a fleet of n.
func (s sizedNames) add(r *Run, what, unit string, n int, samples []float64, target *Target) {
	f := Figure{Name: fmt.Sprintf("%s, %d executors", what, n), Unit: unit, Samples: samples, Against: s[what], Target: target}
	if f.Against == "" {
		s[what] = f.Name
	}
	r.Add(f)
}

// fitBatches measures what the core takes to choose executors for a batch of 100,
// to decide its lease, and to take both back: the step itself, in this process.
func fitBatches(r *Run, n int, against sizedNames, target *Target) error {
	r.Say("batches of 100 are fitted among %d executors, in this process", n)
	core, now := inventory.New(inventory.DefaultConfig()), time.Now()
	revision := int64(1)
	tell := func(record model.Record) {
		revision++
		core.Step(now, model.Changed{Ref: record.Ref(), Record: record, Create: revision, Mod: revision})
	}
	for i := range n {
		e := seededExecutor("many", i, now)
		tell(e)
		tell(&model.Live{ID: e.ID, Incarnation: e.Incarnation})
	}
	revision++
	core.Step(now, model.Changed{Ref: model.LeaderRef(model.ServiceRegistry), Record: &model.Leader{}, Create: 1, Mod: 1})
	core.Step(now, model.Elected{Term: revision, Revision: revision})
	entry := model.Candidate{
		Key: model.Key{Job: "fit", Stage: "s", Name: "main"}, UID: "fit", Group: "g", Mod: revision + 1,
		Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1, "cpu": 100}},
		Workers:     model.WorkerSet{{First: 0, Last: 99, Number: 1}},
	}
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []float64
	for range r.Sized(500, 10) {
		begun := time.Now()
		actions := core.Step(now, model.Input{Token: 1, Request: model.Cycle{Term: 1, Number: 1, Candidates: []model.Candidate{entry}}})
		took = append(took, millis(time.Since(begun)))
		if len(actions) != 1 {
			return fault.New(fault.Internal, fault.ReasonInternal, "a batch of 100 does not fit among %d executors", n)
		}
		core.Step(now, model.Abandoned{})
	}
	against.add(r, "fit 100", "ms", n, took, target)
	return nil
}

// lookAt measures what executor-state keeps of a fleet, and the usage call.
func lookAt(ctx context.Context, w *World, n int, against sizedNames, targets sizedTargets) error {
	r := w.run
	took, err := w.timed(ctx, fmt.Sprintf("usage, %d executors", n), r.Sized(200, 5), func(int) error {
		answer, err := w.Client.Usage(ctx, "")
		if rows := answer.GetSkus(); err == nil && (len(rows) != 1 || rows[0].GetIdle() != int32(n)) {
			err = fault.New(fault.Internal, fault.ReasonInternal, "usage of %d idle executors returns %v", n, rows)
		}
		return err
	})
	if err != nil {
		return err
	}
	against.add(r, "usage", "ms", n, took, targets.usage)
	memory, err := w.memory()
	if err != nil {
		return err
	}
	for _, kind := range []string{model.ServiceExecutorState, model.ServiceRegistry, model.ServiceAssigner, model.ServiceGateway} {
		target := targets.memory
		if kind != model.ServiceExecutorState {
			target = nil
		}
		against.add(r, "memory of "+kind, "MB", n, []float64{memory[kind]}, target)
	}
	return nil
}
