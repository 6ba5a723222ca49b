package request

import (
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
// reservation. Workers, priority, labels and expireAt are not compared.
func SameBody(u *model.Upsert, r *model.Reservation) bool {
	latest := r.Requested()
	return u.Spec.TargetSize == LatestTarget(r) && u.Spec.Shrink == latest.Shrink &&
		Differences(SpecFor(u, r), latest)&^InPlace == 0
}

// SpecFor returns the spec of an upsert as it counts for a version. The request for a hold may be
// repeated after the bind, so the task that it had stands for that of the bind, or for another one that
// was requested since. Berth versions that did not record that task compared none.
func SpecFor(u *model.Upsert, r *model.Reservation) *model.Spec {
	if r.BoundAt.IsZero() || r.RequestedTask != 0 && r.RequestedTask != TaskFingerprint(u.Spec.Task) {
		return &u.Spec
	}
	spec := u.Spec
	spec.Task = r.Requested().Task
	return &spec
}

// LatestTarget returns the target size of the latest request for a reservation.
func LatestTarget(r *model.Reservation) int32 {
	if r.LatestTarget != nil {
		return *r.LatestTarget
	}
	return r.Requested().TargetSize
}

// SameConstraints reports whether constraints are equal in the way in which matching
// compares them: without regard to case and to the order of sets.
func SameConstraints(a, b constraint.Constraints) bool {
	if a.SKU == b.SKU && a.Role == b.Role && a.SameShape == b.SameShape && a.Spread == b.Spread && a.Pack == b.Pack &&
		a.Cells == b.Cells && maps.Equal(a.Resources, b.Resources) && maps.Equal(a.Attributes, b.Attributes) &&
		slices.Equal(a.Pools, b.Pools) && slices.Equal(a.Avoid, b.Avoid) {
		return true // the usual case, without the canonical forms
	}
	return a.Canonical() == b.Canonical() && a.SameShape == b.SameShape && a.Spread == b.Spread && a.Pack == b.Pack &&
		slices.Equal(slices.Sorted(slices.Values(a.Avoid)), slices.Sorted(slices.Values(b.Avoid)))
}

// NextNumber is the number of a listed worker for which the request names none: it is the worker of
// its index, like an index of a count.
const NextNumber = 0

// AnyByIndex reports whether an upsert requests a worker whatever its number.
func AnyByIndex(u model.Upsert) bool {
	return u.Count > 0 || slices.ContainsFunc(u.Workers, func(w model.WorkerID) bool { return w.Number == NextNumber })
}

// numbered returns the workers that an upsert lists. Those without a number have that of a set.
func numbered(u model.Upsert, from model.WorkerSet) model.WorkerSet {
	if !AnyByIndex(u) {
		return model.WorkerSetOf(u.Workers)
	}
	list := slices.Clone(u.Workers)
	for i, w := range list {
		if w.Number == NextNumber {
			list[i].Number, _ = from.Number(w.Index)
		}
	}
	return model.WorkerSetOf(list)
}

// SameWorkers reports whether an upsert requests exactly these workers. A count requests
// the worker indexes 0 to count-1, whatever their numbers. So does a listed worker without a
// number.
func SameWorkers(u model.Upsert, workers model.WorkerSet) bool {
	switch {
	case u.Count == 0:
		return workers.Equal(numbered(u, workers))
	case len(workers) == 0:
		return false
	}
	return workers[0].First == 0 && workers[len(workers)-1].Last == u.Count-1 && workers.Len() == int(u.Count)
}
