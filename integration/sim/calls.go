package sim

import (
	"strconv"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// performRegistry sends the calls of the queue to the other services, as the registry's
// shell does.
func (w *World) performRegistry(t term, core *queue.Core, action model.Action) {
	switch a := action.(type) {
	case model.Cycle:
		cycle := model.Cycle{Term: a.Term, Number: a.Number, Cut: a.Cut}
		for _, e := range a.Candidates {
			if e.Unchanged {
				cycle.Candidates = append(cycle.Candidates, model.Candidate{UID: e.UID, Mod: e.Mod, Group: e.Group,
					Unchanged: true, NextAt: e.NextAt, Splits: e.Splits})
				continue
			}
			cycle.Candidates = append(cycle.Candidates, model.Candidate{
				Key: e.Key, UID: e.UID, Epoch: e.Epoch, Mod: e.Mod, Group: e.Group, Constraints: e.Constraints, Workers: e.Workers,
				Volume: e.Volume, Hold: e.Hold, Chosen: e.Chosen, NextAt: e.NextAt, Splits: e.Splits,
			})
		}
		queues := queuesOf(core, a)
		w.call("cycle", model.ServiceExecutorState, t.lives, cycle, func(value any, err error) {
			done := scheduler.CycleDone{Cycle: a.Number}
			if err != nil {
				for _, e := range a.Candidates {
					done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.Behind,
						Reason: fault.Of(err).Reason})
				}
				if newest, err2 := strconv.ParseInt(fault.Of(err).Meta[fault.MetaNewestCycle], 10, 64); err2 == nil {
					done.Newest, done.TooHigh = newest, !fault.Is(err, fault.ReasonLowerCycle)
				}
				t.post(done)
				return
			}
			w.checkGlobalOrder(queues, value.([]model.Outcome))
			for _, o := range value.([]model.Outcome) {
				done.Outcomes = append(done.Outcomes, model.Outcome{
					UID: o.UID, Result: model.Result(o.Result), Lease: o.Lease, Reason: o.Reason, Message: o.Message,
					Fitting: o.Fitting,
				})
			}
			t.post(done)
		})
	case model.Dispatch:
		create := model.Dispatch{Term: a.Term}
		for _, task := range a.Tasks {
			create.Tasks = append(create.Tasks, model.DispatchTask{Key: task.Key, UID: task.UID, Mod: task.Mod,
				Lease: task.Lease})
		}
		w.call("dispatch", model.ServiceAssigner, t.lives, create, func(value any, err error) {
			done := queue.DispatchDone{}
			if err != nil {
				for _, task := range a.Tasks {
					done.Outcomes = append(done.Outcomes, model.DispatchOutcome{UID: task.UID, Reason: fault.Of(err).Reason})
				}
				t.post(done)
				return
			}
			for _, o := range value.([]model.DispatchOutcome) {
				done.Outcomes = append(done.Outcomes, model.DispatchOutcome{UID: o.UID, Accepted: o.Accepted, Reason: o.Reason})
			}
			t.post(done)
		})
	default:
		w.fail("registry: unknown action %T", action)
	}
}

// performAssigner sends each start and stop request to its agent once, as the assigner's
// shell does. If no answer arrives in time, the outcome is an Unknown.
func (w *World) performAssigner(t term, core *dispatch.Core, action model.Action) {
	switch a := action.(type) {
	case dispatch.Submit:
		done := func(outcome any) {
			t.post(a.Done(outcome))
		}
		if !core.Wanted(a) {
			done(dispatch.NotSent{})
			return
		}
		if w.submitting != nil {
			w.submitting(a)
		}
		w.submit(a, done)
	case dispatch.Stop:
		done := func(result any) {
			t.post(a.Done(result))
		}
		w.order(a.Address, func(ag *agent) any { return ag.stop(a) }, a.Timeout, done)
	case dispatch.DropVolumes:
		done := func(result any) {
			t.post(a.Done(result))
		}
		w.order(a.Address, func(ag *agent) any { return ag.drop(a) }, a.Timeout, done)
	case dispatch.MembersChanged:
		core.Unwatch(a.Key)
	default:
		w.fail("assigner: unknown action %T", action)
	}
}
