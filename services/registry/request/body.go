package request

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// StartOf returns the start mode of a request, or the default if the request has none.
// The batch mode has no such function: if it is unset, the cluster's current mode
// applies.
func StartOf(s model.Spec) model.Start { return cmp.Or(s.Start, model.StartProgressive) }

// OnFailureOf returns the failure mode of a request, or the default if the request has
// none.
func OnFailureOf(s model.Spec) model.OnFailure { return cmp.Or(s.OnFailure, model.OnFailureRequeue) }

// SameBody reports whether an upsert requests the same as the latest request for a
// reservation. Workers, priority, labels and expireAt are not compared. Neither is the task of
// a bound version, which is that of the bind: the request for the hold may be repeated.
func SameBody(u model.Upsert, r *model.Reservation) bool {
	a, b := u.Spec, r.Spec
	return a.TargetSize == LatestTarget(r) && a.MaxAttempts == b.MaxAttempts && a.QueueTimeout == b.QueueTimeout &&
		a.Batch == b.Batch && StartOf(a) == StartOf(b) && OnFailureOf(a) == OnFailureOf(b) &&
		a.NotBefore.Equal(b.NotBefore) && a.Lifetime == b.Lifetime && a.Restart == b.Restart &&
		a.OnWorkerLoss == b.OnWorkerLoss && a.RestartLimit() == b.RestartLimit() && a.Volume.Equal(b.Volume) &&
		a.Requeue == b.Requeue && a.Hold == b.Hold && a.HoldLimit() == b.HoldLimit() && (sameTask(a.Task, b.Task) || !r.BoundAt.IsZero()) &&
		SameConstraints(a.Constraints, b.Constraints)
}

// LatestTarget returns the target size of the latest request for a reservation.
func LatestTarget(r *model.Reservation) int32 {
	if r.LatestTarget != nil {
		return *r.LatestTarget
	}
	return r.Spec.TargetSize
}

func sameTask(a, b model.Task) bool {
	return a.Command == b.Command && a.StopGrace == b.StopGrace && slices.Equal(a.Args, b.Args) &&
		a.StartLimit() == b.StartLimit() && (a.Readiness == model.ReadyReported) == (b.Readiness == model.ReadyReported) &&
		maps.Equal(a.Env, b.Env) && bytes.Equal(a.Payload, b.Payload)
}

// SameConstraints reports whether constraints are equal in the way in which matching
// compares them: without regard to case and to the order of sets.
func SameConstraints(a, b constraint.Constraints) bool {
	return a.Canonical() == b.Canonical() && a.SameShape == b.SameShape && a.Spread == b.Spread && a.Pack == b.Pack &&
		slices.Equal(slices.Sorted(slices.Values(a.Avoid)), slices.Sorted(slices.Values(b.Avoid)))
}

// SameWorkers reports whether an upsert requests exactly these workers. A count requests
// the worker indexes 0 to count-1, whatever their numbers.
func SameWorkers(u model.Upsert, workers model.WorkerSet) bool {
	switch {
	case u.Count == 0:
		return workers.Equal(model.WorkerSetOf(u.Workers))
	case len(workers) == 0:
		return false
	}
	return workers[0].First == 0 && workers[len(workers)-1].Last == u.Count-1 && workers.Len() == int(u.Count)
}
