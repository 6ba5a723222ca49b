package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/wire"
)

// This file has the fake's methods for operators. In the fake, one worker fits on an
// executor.

func notReady() error {
	return fault.New(fault.Unavailable, fault.ReasonRegistryNotReady,
		"the registry waits for the job services to repeat their requests, and for markReady")
}

func (f *fake) executor(id string) *berthv1.Executor {
	i := slices.IndexFunc(f.executors, func(e *berthv1.Executor) bool { return e.Id == id })
	if i < 0 {
		return nil
	}
	return f.executors[i]
}

// leases returns the leases on an executor. Those of a reservation are on the first executors,
// one worker on each.
func (f *fake) leases(id string) (leases []*berthv1.ExecutorLease) {
	at := slices.IndexFunc(f.executors, func(e *berthv1.Executor) bool { return e.Id == id })
	for _, r := range f.reservations {
		held := r.State == berthv1.Reservation_HELD && !r.GetConstraints().GetCells()
		if (held || r.State == berthv1.Reservation_ACTIVE) && at < int(r.Count) {
			leases = append(leases, &berthv1.ExecutorLease{Job: r.Job, Stage: r.Stage, Reservation: r.Name, Uid: r.Uid,
				Workers: 1, Held: held})
		}
	}
	return leases
}

// obey removes one worker from a draining executor. If the agent is reachable, it stops
// the workers one by one.
func (f *fake) obey(e *berthv1.Executor) {
	if e.Draining && e.Workers > 0 && e.State == berthv1.Executor_READY {
		e.Workers--
	}
}

func (f *fake) CancelWorkers(_ context.Context, q *berthv1.CancelWorkersRequest) (*berthv1.CancelWorkersAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.CancelWorkersAnswer{}
	for _, r := range f.reservations {
		if r.Job != q.Job || r.Stage != q.Stage {
			continue
		}
		before := len(r.Workers)
		r.Workers = slices.DeleteFunc(r.Workers, func(s *berthv1.WorkerID) bool {
			return slices.ContainsFunc(q.Workers, func(w *berthv1.WorkerID) bool { return proto.Equal(s, w) })
		})
		r.Count = int32(len(r.Workers))
		answer.Cancelled += int32(before) - r.Count
	}
	// All workers of the fake have the number 1.
	answer.Unknown = ifTrue(answer.Cancelled == 0 && slices.ContainsFunc(q.Workers,
		func(w *berthv1.WorkerID) bool { return w.Number > 1 || w.Index > 2 || q.Job != "train" }))
	return answer, nil
}

// SignalWorkers signals the workers of a reservation. The executors that are not READY do not get it.
func (f *fake) SignalWorkers(_ context.Context, q *berthv1.SignalWorkersRequest) (*berthv1.SignalWorkersAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := wire.SignalOf("signal", q.Signal); err != nil {
		return nil, err
	}
	answer := &berthv1.SignalWorkersAnswer{}
	fails := func(w *berthv1.WorkerID, executor string, reason fault.Reason, message string) {
		answer.FailedCount++
		answer.Failed = append(answer.Failed, &berthv1.UnsignalledWorker{Worker: w, Executor: executor,
			Reason: string(reason), Message: message})
	}
	named := slices.Clone(q.Workers)
	for _, r := range f.reservations {
		if r.Job != q.Job || r.Stage != q.Stage || r.State != berthv1.Reservation_ACTIVE {
			continue
		}
		for _, w := range r.Workers {
			i := slices.IndexFunc(named, func(n *berthv1.WorkerID) bool { return n.Index == w.Index })
			if i < 0 && len(q.Workers) > 0 {
				continue
			}
			if i >= 0 {
				named = slices.Delete(named, i, i+1)
			}
			if e := f.executors[w.Index]; e.State != berthv1.Executor_READY {
				fails(w, e.Id, fault.ReasonExecutorUnreachable, "the executor "+e.Id+" is not connected")
				continue
			}
			answer.Signalled++
		}
	}
	for _, n := range named {
		fails(n, "", fault.ReasonNotFound, fmt.Sprintf("no such worker of %s/%s is RUNNING", q.Job, q.Stage))
	}
	return answer, nil
}

func (f *fake) FlushReservations(_ context.Context, q *berthv1.FlushReservationsRequest) (*berthv1.CancelAnswer,
	error) {
	answer := f.cancelWhere(func(r *berthv1.Reservation) bool {
		return r.State == berthv1.Reservation_QUEUED && (q.Job == r.Job || q.Group == "g-7f3a")
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	answer.Unknown = ifTrue(!slices.ContainsFunc(f.reservations, func(r *berthv1.Reservation) bool {
		return r.Job == q.Job || q.Group == "g-7f3a"
	}))
	return answer, nil
}

func (f *fake) MarkReady(context.Context, *berthv1.MarkReadyRequest) (*berthv1.MarkReadyAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notReady = false
	return &berthv1.MarkReadyAnswer{ReadySince: timestamppb.New(f.now)}, nil
}

func (f *fake) ExplainReservation(_ context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(q.Job, q.Stage, q.Name)
	if r == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s/%s/%s", q.Job, q.Stage,
			q.Name)
	}
	e := &berthv1.Explanation{
		Reservation: proto.CloneOf(r), Position: r.Position, Needed: r.Count, Reason: r.GetReason(), Message: r.GetMessage(),
	}
	if r.Position == 0 {
		return e, nil
	}
	e.Group, e.Age = "g-7f3a", durationpb.New(f.now.Sub(r.CreatedAt.AsTime()))
	for _, other := range f.reservations {
		if other.State != berthv1.Reservation_QUEUED {
			continue
		}
		e.Queued++
		if other.Position == 1 {
			e.Head = &berthv1.ReservationKey{Job: other.Job, Stage: other.Stage, Name: other.Name}
			e.HeadAge = durationpb.New(f.now.Sub(other.CreatedAt.AsTime()))
			e.Tried = timestamppb.New(f.now.Add(-3 * time.Second))
		}
	}
	if f.blind {
		e.Message += "; the number of workers that fit now is not known: executor-state has no leader"
		return e, nil
	}
	f.fit(e)
	return e, nil
}

// fit evaluates the executors as executor-state does.
func (f *fake) fit(e *berthv1.Explanation) {
	sku, failed := e.Reservation.GetConstraints().GetSku(), map[string]*berthv1.FailedCheck{}
	for _, x := range f.executors {
		check := &berthv1.FailedCheck{Check: "free.memory", Want: "4294967296", Have: "1610612736"}
		switch {
		case sku != "" && sku != x.Sku:
			check = &berthv1.FailedCheck{Check: "sku", Want: sku, Have: x.Sku}
		case x.Draining:
			check = &berthv1.FailedCheck{Check: "draining", Want: "false", Have: "true"}
		case x.Workers == 0:
			e.Fitting = min(e.Needed, e.Fitting+1)
			continue
		}
		key := check.String()
		if failed[key] == nil {
			failed[key] = check
		}
		failed[key].Count++
	}
	for _, key := range slices.Sorted(maps.Keys(failed)) {
		e.Checks = append(e.Checks, failed[key])
	}
	e.Missing, e.ExecutorRevision = e.Needed-e.Fitting, f.revision
}

func (f *fake) DisableExecutors(_ context.Context,
	q *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.DisableExecutorsAnswer{RequestId: q.RequestId}
	for _, e := range f.chosen(q.Selector) {
		e.Disabled = append(e.Disabled, &berthv1.DisableMark{RequestId: q.RequestId, Reason: q.Reason,
			ExpireTime: q.ExpireTime})
		answer.Executors++
	}
	for _, id := range q.GetSelector().GetIds() {
		if !slices.ContainsFunc(f.executors, func(e *berthv1.Executor) bool { return e.Id == id }) {
			answer.Unknown = append(answer.Unknown, id)
		}
	}
	return answer, nil
}

func (f *fake) chosen(s *berthv1.ExecutorSelector) []*berthv1.Executor {
	var list []*berthv1.Executor
	for _, e := range f.executors {
		if slices.Contains(s.GetIds(), e.Id) || len(s.GetAttributes()) > 0 && maps.Equal(s.GetAttributes(), e.Attributes) {
			list = append(list, e)
		}
	}
	return list
}

func (f *fake) EnableExecutors(_ context.Context, q *berthv1.EnableExecutorsRequest) (*berthv1.EnableExecutorsAnswer,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	undone := map[string]bool{}
	chosen := f.chosen(q.Selector)
	for _, e := range f.executors {
		e.Disabled = slices.DeleteFunc(e.Disabled, func(m *berthv1.DisableMark) bool {
			hit := m.RequestId == q.DisableRequestId || slices.Contains(chosen, e)
			if hit {
				undone[m.RequestId] = true
			}
			return hit
		})
		e.Draining = e.Draining && len(e.Disabled) > 0
	}
	return &berthv1.EnableExecutorsAnswer{Undone: int32(len(undone))}, nil
}

func (f *fake) DrainExecutor(_ context.Context, q *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.executor(q.Id)
	if e == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", q.Id)
	}
	e.Draining = true
	e.Disabled = append(e.Disabled, &berthv1.DisableMark{RequestId: "drain-of-" + q.Id, Reason: q.Reason,
		ExpireTime: q.ExpireTime})
	return proto.CloneOf(e), nil
}

// ClearQuarantine clears the given workers without a check.
func (f *fake) ClearQuarantine(_ context.Context, q *berthv1.ClearQuarantineRequest) (*berthv1.ClearQuarantineAnswer,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.ClearQuarantineAnswer{}
	for _, a := range f.assignments {
		if a.Executor == q.Executor && slices.ContainsFunc(q.Workers, func(w *berthv1.AssignedWorker) bool {
			return w.Job == a.Job && w.Stage == a.Stage && w.Index == a.Index && w.Number == a.Number && w.Epoch == a.Epoch
		}) {
			a.State = berthv1.Assignment_LOST
			answer.Cleared++
		}
	}
	f.found = nil
	return answer, nil
}

func (f *fake) ListSkus(context.Context, *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&berthv1.ListSkusAnswer{Skus: f.skus}), nil
}

func (f *fake) PutSku(_ context.Context, q *berthv1.PutSkuRequest) (*berthv1.Sku, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, amount := range q.Sku.Resources {
		if amount < 0 {
			return nil, fault.BadField(fault.ReasonInvalid, "resources."+name, "must not be negative")
		}
	}
	sku := wire.SKU(wire.SKUOf(q.Sku))
	sku.Resources = resource.Vector(sku.Resources).WithSlots()
	sku.UpdatedAt = timestamppb.New(f.now)
	f.skus = slices.DeleteFunc(f.skus, func(s *berthv1.Sku) bool { return s.Name == sku.Name })
	f.skus = append(f.skus, sku)
	return sku, nil
}

func (f *fake) ListPools(context.Context, *berthv1.ListPoolsRequest) (*berthv1.ListPoolsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&berthv1.ListPoolsAnswer{Pools: f.pools}), nil
}

func (f *fake) PutPool(_ context.Context, q *berthv1.PutPoolRequest) (*berthv1.Pool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pool := proto.CloneOf(q.Pool)
	pool.UpdatedAt = timestamppb.New(f.now)
	f.pools = slices.DeleteFunc(f.pools, func(p *berthv1.Pool) bool { return p.Name == pool.Name })
	f.pools = append(f.pools, pool)
	return pool, nil
}

func (f *fake) ListTenants(context.Context, *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&berthv1.ListTenantsAnswer{Tenants: f.tenants}), nil
}

func (f *fake) GetCaller(context.Context, *berthv1.GetCallerRequest) (*berthv1.Caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.caller), nil
}

func (f *fake) ListAuditEntries(context.Context,
	*berthv1.ListAuditEntriesRequest) (*berthv1.ListAuditEntriesAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&berthv1.ListAuditEntriesAnswer{Entries: f.audited, Gateway: "gateway-0",
		Since: timestamppb.New(f.now)}), nil
}

// GetUsage counts the executors of each SKU of the catalog. The demand for other SKUs is unmapped.
func (f *fake) GetUsage(_ context.Context, q *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notReady {
		select {
		case f.refused <- struct{}{}:
		default:
		}
		return nil, notReady()
	}
	answer := &berthv1.GetUsageAnswer{Revision: f.revision}
	for _, sku := range f.skus {
		if q.Sku != "" && q.Sku != sku.Name {
			continue
		}
		u := &berthv1.SkuUsage{Sku: sku.Name}
		for _, e := range f.executors {
			switch {
			case e.Sku != sku.Name:
				continue
			case e.Workers > 0:
				u.Running++
			default:
				u.Idle++
			}
			if len(e.Disabled) > 0 {
				u.Disabled++
			}
			u.Total++
		}
		for _, r := range f.reservations {
			if r.State == berthv1.Reservation_QUEUED && r.GetConstraints().GetSku() == sku.Name {
				u.PendingReservations++
				u.PendingWorkers += r.Count
				u.PendingExecutors += r.Count
				u.PendingBatches = append(u.PendingBatches, &berthv1.PendingBatch{Workers: r.Count, Count: 1})
			}
		}
		u.EffectiveIdle = max(0, u.Idle-u.PendingExecutors)
		u.WantedSize = u.Total - u.Idle + max(u.PendingExecutors, sku.GetScale().GetMinIdle())
		u.WantedReason, u.WantedMessage = string(fault.ReasonTooFewIdle), "too few executors are spare"
		if until := sku.GetScale().GetHoldUntil(); until != nil && f.now.Before(until.AsTime()) {
			u.WantedSize, u.WantedReason = u.Total, string(fault.ReasonScalingHeld)
			u.WantedMessage = "scaling is held until " + until.AsTime().Format(time.RFC3339)
		}
		answer.Skus = append(answer.Skus, u)
	}
	for _, r := range f.reservations {
		sku := r.GetConstraints().GetSku()
		if r.State == berthv1.Reservation_QUEUED && sku != "" &&
			!slices.ContainsFunc(f.skus, func(s *berthv1.Sku) bool { return s.Name == sku }) {
			answer.Unmapped = append(answer.Unmapped, &berthv1.UnmappedDemand{
				Group: "g-7f3a", Constraints: r.Constraints, Reservations: 1, Workers: r.Count,
				Reason: string(fault.ReasonNoMatchingSKU), Message: fmt.Sprintf("no SKU is named %s", sku),
			})
		}
	}
	return answer, nil
}

func (f *fake) ListFindings(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&berthv1.ListFindingsAnswer{Findings: f.found}), nil
}

func (f *fake) GetSku(_ context.Context, q *berthv1.GetSkuRequest) (*berthv1.Sku, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sku := range f.skus {
		if sku.Name == q.Name {
			return proto.CloneOf(sku), nil
		}
	}
	return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no SKU %s", q.Name)
}

func (f *fake) GetPool(_ context.Context, q *berthv1.GetPoolRequest) (*berthv1.Pool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pool := range f.pools {
		if pool.Name == q.Name {
			return proto.CloneOf(pool), nil
		}
	}
	return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no pool %s", q.Name)
}
