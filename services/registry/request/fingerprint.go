package request

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Fingerprint returns a number that identifies the content of a request; 0 means that
// there is none. Repeats of a request have the same fingerprint, and different requests
// almost certainly have different ones. An upsert must have its defaults filled in. Two
// ways to express one request have the same fingerprint, and the trace does not count.
//
// Later versions of Berth read and compare stored fingerprints. So a field that is added
// later may be hashed only if it is set.
func Fingerprint(request any) uint64 {
	switch r := request.(type) {
	case model.Upsert:
		if r.RequestID == "" {
			return 0
		}
		s, c := r.Spec, r.Spec.Constraints
		return hash(append([]any{
			"upsert", r.Key, int64(r.Count), r.Workers, r.IfEpoch, int64(s.TargetSize),
			c.Resources, c.SKU, c.Attributes, c.Pools, c.Role, c.SameShape, c.Spread.By, int64(c.Spread.Max), c.Pack, c.Avoid,
			int64(s.Priority.Class), int64(s.Priority.Tier), s.Priority.Order,
			s.Task.Command, s.Task.Args, s.Task.Env, string(s.Task.Payload), int64(s.Task.StopGrace),
			int64(s.Batch), int64(StartOf(s)), int64(OnFailureOf(s)), int64(s.MaxAttempts), int64(s.QueueTimeout), s.Labels,
		}, life(s)...)...)
	case Cancel:
		return hash(withGrace(r.Grace, "cancel", r.Key, r.IfEpoch)...)
	case Bind:
		values := []any{"bind", r.Key, r.IfEpoch}
		if t := r.Task; t != nil {
			values = append(values, task(*t)...)
		}
		if r.Pool != "" || r.KeepHeld {
			values = append(values, "pool", r.Pool, r.KeepHeld)
		}
		return hash(values...)
	case CancelJob:
		return hash(withGrace(r.Grace, "cancel-job", r.Job)...)
	case CancelWorkers:
		return hash(withGrace(r.Grace, "cancel-workers", r.Job, r.Stage, r.Workers)...)
	case Flush:
		return hash("flush", r.Job, r.Group)
	}
	return 0
}

// task returns the values to hash of a task.
func task(t model.Task) []any {
	values := []any{t.Command, t.Args, t.Env, string(t.Payload), int64(t.StopGrace), int64(t.StartLimit()),
		t.Readiness == model.ReadyReported}
	if t.StopSignal != "" {
		values = append(values, "stopSignal", string(t.StopSignal))
	}
	return values
}

// withGrace appends the grace of a cancel, if it has one.
func withGrace(grace *time.Duration, values ...any) []any {
	if grace != nil {
		values = append(values, "grace", int64(*grace))
	}
	return values
}

// life returns the values to hash of the fields of a request that say when the reservation
// and its workers begin, end and are restarted, and where they keep their data. It omits a field that is not set.
func life(s model.Spec) (values []any) {
	add := func(isSet bool, name string, value ...any) {
		if isSet {
			values = append(append(values, name), value...)
		}
	}
	add(!s.ExpireAt.IsZero(), "expireAt", s.ExpireAt.Unix(), int64(s.ExpireAt.Nanosecond()))
	add(!s.NotBefore.IsZero(), "notBefore", s.NotBefore.Unix(), int64(s.NotBefore.Nanosecond()))
	add(s.Lifetime != model.Lifetime{}, "lifetime", int64(s.Lifetime.For), int64(s.Lifetime.From))
	add(s.Restart != model.RestartNever, "restart", int64(s.Restart))
	add(s.OnWorkerLoss != model.OnLossNotify, "onWorkerLoss", int64(s.OnWorkerLoss))
	add(s.RestartLimit() != s.MaxAttempts-1, "maxRestarts", int64(s.RestartLimit()))
	add(s.Requeue != model.RequeueFirst, "requeue", int64(s.Requeue))
	add(s.Task.StartLimit() != 0, "startTimeout", int64(s.Task.StartLimit()))
	add(s.Task.Readiness == model.ReadyReported, "readiness", int64(s.Task.Readiness))
	add(s.Task.StopSignal != "", "stopSignal", string(s.Task.StopSignal))
	add(s.Hold, "hold")
	add(s.Constraints.Cells, "cells")
	add(s.HoldLimit() != model.DefaultHoldTimeout, "holdTimeout", int64(s.HoldLimit()))
	add(s.OnWorkerFailure != model.OnFailedNotify, "onWorkerFailure", int64(s.OnWorkerFailure))
	add(s.Shrink != model.ShrinkNever, "shrink", int64(s.Shrink))
	add(len(s.CompletesWith) > 0, "completesWith", fmt.Sprint(slices.Sorted(slices.Values(s.CompletesWith))))
	if e := s.ExitCodes; e != nil {
		add(true, "restartExitCodes", fmt.Sprint(slices.Sorted(slices.Values(e.Retry)), slices.Sorted(slices.Values(e.Fail))))
	}
	if v := s.Volume; v != nil {
		add(true, "volume", v.Resource, int64(v.OnLoss))
		if v.KeepFor != nil {
			add(true, "volume.keepFor", int64(*v.KeepFor))
		}
	}
	return values
}

// hash returns a hash of a list of values. It also hashes lengths, so moving bytes from
// one value to the next changes the hash.
func hash(values ...any) uint64 {
	sum := fnv.New64a()
	var buf [8]byte
	number := func(n int64) {
		binary.BigEndian.PutUint64(buf[:], uint64(n))
		sum.Write(buf[:])
	}
	var add func(value any)
	add = func(value any) {
		switch v := value.(type) {
		case int64:
			number(v)
		case bool:
			if v {
				number(1)
			} else {
				number(0)
			}
		case *int64:
			add(v != nil)
			if v != nil {
				number(*v)
			}
		case string:
			number(int64(len(v)))
			sum.Write([]byte(v))
		case []string:
			number(int64(len(v)))
			for _, text := range v {
				add(text)
			}
		case map[string]string:
			number(int64(len(v)))
			for _, name := range slices.Sorted(maps.Keys(v)) {
				add(name)
				add(v[name])
			}
		case resource.Vector:
			number(int64(len(v)))
			for _, name := range v.Names() {
				add(name)
				number(v[name])
			}
		case model.Key:
			add(v.Job)
			add(v.Stage)
			add(v.Name)
		case []model.WorkerID:
			number(int64(len(v)))
			for _, workerID := range slices.SortedFunc(slices.Values(v), model.WorkerID.Compare) {
				number(int64(workerID.Index)<<32 | int64(workerID.Number))
			}
		default:
			panic(fmt.Sprintf("request: a %T has no hash", v))
		}
	}
	for _, value := range values {
		add(value)
	}
	return max(sum.Sum64(), 1)
}

// OtherUnderID returns the error for a request whose ID was used for an earlier,
// different request.
func OtherUnderID(id string) error {
	err := fault.BadField(fault.ReasonDuplicate, "requestId", "%q was used for another call", id)
	err.Kind = fault.Conflict
	return err
}
