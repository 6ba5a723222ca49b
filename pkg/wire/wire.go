// Package wire decodes a stored record only if the record is safe to calculate with, and
// never panics on a stored value. It converts between the types of pkg/model and the
// generated protobuf types, and no other package converts them.
//
// Decode reads everything that Encode wrote, in this version or in an earlier one,
// because versions only add fields. A request with a field that Berth does not support
// yet is refused with an error that names the field.
package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// Timestamp converts a time to protobuf. It returns nil for the zero time.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Time converts a time from protobuf. It returns the zero time for nil.
func Time(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Key converts the key of a reservation to protobuf.
func Key(k model.Key) *berthv1.ReservationKey {
	return &berthv1.ReservationKey{Job: k.Job, Stage: k.Stage, Name: k.Name}
}

// KeyOf converts the key of a reservation from protobuf.
func KeyOf(k *berthv1.ReservationKey) model.Key {
	return model.Key{Job: k.GetJob(), Stage: k.GetStage(), Name: k.GetName()}
}

// WorkerIDs converts a set of workers to a list in protobuf.
func WorkerIDs(workers model.WorkerSet) []*berthv1.WorkerID {
	list := make([]*berthv1.WorkerID, 0, workers.Len())
	for id := range workers.All() {
		list = append(list, &berthv1.WorkerID{Index: id.Index, Number: id.Number})
	}
	return list
}

// Runs converts a set of workers to runs in protobuf.
func Runs(workers model.WorkerSet) []*recordv1.WorkerRun {
	runs := make([]*recordv1.WorkerRun, len(workers))
	for i, r := range workers {
		runs[i] = &recordv1.WorkerRun{First: r.First, Last: r.Last, Number: r.Number}
	}
	return runs
}

// WorkerSet converts runs in protobuf to a set of workers. It does not check the runs.
func WorkerSet(runs []*recordv1.WorkerRun) model.WorkerSet {
	if len(runs) == 0 {
		return nil
	}
	workers := make(model.WorkerSet, len(runs))
	for i, r := range runs {
		workers[i] = model.Run{First: r.GetFirst(), Last: r.GetLast(), Number: r.GetNumber()}
	}
	return workers
}

func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// IfTrue returns the value of an optional field that answers have only if it is true.
func IfTrue(b bool) *bool { return optional(b) }
