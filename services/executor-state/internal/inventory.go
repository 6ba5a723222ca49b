// Package internal keeps an executor present while its agent sends heartbeats, and lets
// no agent fill the core's inbox. It implements the gRPC API of executor-state around its
// core: the sessions of agents, their reports, and the calls of clients and other
// services.
package internal

import (
	"context"
	"fmt"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// NoActions implements loop.Config. It panics, because the inventory has no actions of
// its own.
func NoActions(_ *loop.Term, _ *inventory.Core, action model.Action) {
	panic(fmt.Sprintf("executor-state: unknown action %T", action))
}

// Inventory implements control.v1.Inventory over the loop.
type Inventory struct {
	controlv1.UnimplementedInventoryServer
	loop loop.Owner[*inventory.Core]
}

// NewInventory returns a server that uses the loop's core.
func NewInventory(l loop.Owner[*inventory.Core]) *Inventory { return &Inventory{loop: l} }

// candidateOf converts a candidate of a cycle.
func candidateOf(e *controlv1.Candidate) model.Candidate {
	if e.GetUnchanged() != 0 {
		return model.Candidate{UID: e.GetUid(), Mod: e.GetUnchanged(), Group: e.GetGroup(), Unchanged: true,
			NextAt: e.GetNextAt(), Splits: e.GetSplits()}
	}
	constraints := wire.ConstraintsOf(e.GetConstraints())
	constraints.AvoidFailed, constraints.RefusedBy = e.GetAvoidFailed(), e.GetRefusedBy()
	volume, err := wire.VolumeRequestOf(e.GetVolume())
	if err != nil {
		volume = &model.VolumeRequest{} // the core refuses it as invalid
	}
	return model.Candidate{
		Key: wire.KeyOf(e.GetKey()), UID: e.GetUid(), Epoch: e.GetEpoch(), Mod: e.GetMod(), Group: e.GetGroup(),
		Constraints: constraints, Workers: wire.WorkerSet(e.GetWorkers()), Trace: model.Trace(e.GetTrace()),
		Volume: volume, Hold: e.GetHold(), Chosen: e.GetChosen(), NextAt: e.GetNextAt(),
		Splits: e.GetSplits(),
	}
}

// TryAllocateAndLease implements control.v1.Inventory.
func (s *Inventory) TryAllocateAndLease(ctx context.Context, req *controlv1.CycleRequest) (*controlv1.CycleAnswer,
	error) {
	cycle := model.Cycle{Term: req.GetTerm(), Number: req.GetCycle(), Cut: req.GetCut()}
	for _, e := range req.GetCandidates() {
		cycle.Candidates = append(cycle.Candidates, candidateOf(e))
	}
	ctx, granted := traceCycle(ctx, req)
	value, err := s.loop.Do(ctx, cycle)
	if err != nil {
		return nil, err
	}
	answer := &controlv1.CycleAnswer{}
	for _, o := range value.([]model.Outcome) {
		answer.Outcomes = append(answer.Outcomes, &controlv1.CandidateOutcome{
			Uid: o.UID, Result: controlv1.CandidateOutcome_Result(o.Result), Lease: o.Lease,
			Reason: string(o.Reason), Message: o.Message, Fitting: int32(o.Fitting),
		})
		if o.Result == model.Granted {
			granted()
		}
	}
	return answer, nil
}

// Executors implements berth.v1.Executors over the loop.
type Executors struct {
	berthv1.UnimplementedExecutorsServer
	loop loop.Owner[*inventory.Core]
}

// NewExecutors returns a server that uses the loop's core.
func NewExecutors(l loop.Owner[*inventory.Core]) *Executors { return &Executors{loop: l} }

// ListExecutors implements berth.v1.Executors.
func (s *Executors) ListExecutors(ctx context.Context,
	req *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	state, err := wire.ListedState[model.ExecutorState](req.GetState())
	if err != nil {
		return nil, err
	}
	var wrong model.Violations
	if wrong.Attributes("attributes", req.GetAttributes()); wrong.Err() != nil {
		return nil, wrong.Err()
	}
	filter := inventory.Filter{SKU: req.GetSku(), Pool: req.GetPool(), State: state, Attributes: req.GetAttributes()}
	answer := &berthv1.ListExecutorsAnswer{}
	err = s.loop.Read(ctx, false, func(c *inventory.Core) {
		answer.Revision, answer.TotalSize = c.Revision(), int32(c.CountExecutors(filter))
		list, more := c.Executors(filter, req.GetPageToken(), size)
		answer.Executors = replica.Page(list, replica.PageBytes, executor)
		if n := len(answer.Executors); more || n < len(list) {
			answer.NextPageToken = list[n-1].ID
		}
	})
	return answer, err
}

// GetExecutor implements berth.v1.Executors.
func (s *Executors) GetExecutor(ctx context.Context, req *berthv1.GetExecutorRequest) (*berthv1.Executor, error) {
	view, err := find(ctx, s.loop, (*inventory.Core).Executor, req.GetId(), "there is no executor %s")
	if err != nil {
		return nil, err
	}
	e := executor(view)
	for _, l := range view.Leases {
		e.Leases = append(e.Leases, &berthv1.ExecutorLease{Job: l.Key.Job, Stage: l.Key.Stage, Reservation: l.Key.Name,
			Uid: l.UID, Workers: int32(l.Workers), Held: l.Held})
	}
	return e, nil
}

// find reads the value with a name from the core. If there is none, the message of the
// error contains the name.
func find[T any](ctx context.Context, owner loop.Owner[*inventory.Core], get func(*inventory.Core, string) (T, bool),
	name, missing string) (value T, err error) {
	found := false
	if err := owner.Read(ctx, true, func(c *inventory.Core) { value, found = get(c, name) }); err != nil {
		return value, err
	}
	if !found {
		return value, fault.New(fault.NotFound, fault.ReasonNotFound, missing, name)
	}
	return value, nil
}

func executor(v inventory.ExecutorView) *berthv1.Executor {
	e := &berthv1.Executor{
		Id: v.ID, Address: v.Address, Sku: v.SKU, Host: v.Host, Attributes: v.Attributes, Resources: v.Resources,
		Used:     v.Used,
		Reserved: wire.Shares(v.Reserved), Generation: v.Generation, Incarnation: v.Incarnation,
		State:   berthv1.Executor_State(v.State),
		Workers: int32(v.Workers), Volumes: int32(v.Volumes), Since: wire.Timestamp(v.StateSince), Draining: v.Draining,
		SkippedUntil: wire.Timestamp(v.SkippedUntil), Kind: wire.ExecutorKind(v.Cell),
	}
	if len(v.Pools) > 0 {
		e.Pool = v.Pools[0]
	}
	for _, d := range v.Disabled {
		e.Disabled = append(e.Disabled, &berthv1.DisableMark{RequestId: d.ID, Reason: d.Reason,
			ExpireTime: wire.Timestamp(d.ExpireAt)})
	}
	return e
}
