package request

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// Fields is a set of fields of an upsert. Records contain such sets, so a field keeps its bit:
// later versions of Berth only append to the list.
type Fields uint64

// The fields that are not part of a body.
const (
	FieldCount Fields = 1 << iota
	FieldWorkers
	FieldTargetSize
	FieldPriority
	FieldLabels
	FieldExpireAt
)

// fields has each field of an upsert at the place of its bit, and how two specs differ in it.
// The functions of constraints are called only if the constraints differ.
var fields = [...]struct {
	name    string
	differs func(a, b *model.Spec) bool
}{
	{"count", nil},
	{"workers", nil},
	{"targetSize", func(a, b *model.Spec) bool { return a.TargetSize != b.TargetSize }},
	{"priority", func(a, b *model.Spec) bool { return !a.Priority.Equal(b.Priority) }},
	{"labels", func(a, b *model.Spec) bool { return !maps.Equal(a.Labels, b.Labels) }},
	{"expireAt", func(a, b *model.Spec) bool { return !a.ExpireAt.Equal(b.ExpireAt) }},
	{"constraints.resources", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Resources: c.Resources}
	})},
	{"constraints.sku", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{SKU: c.SKU}
	})},
	{"constraints.attributes", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Attributes: c.Attributes}
	})},
	{"constraints.pools", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Pools: c.Pools}
	})},
	{"constraints.role", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Role: c.Role}
	})},
	{"constraints.sameShape", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{SameShape: c.SameShape}
	})},
	{"constraints.spread", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Spread: c.Spread}
	})},
	{"constraints.pack", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Pack: c.Pack}
	})},
	{"constraints.avoid", constraintDiffers(func(c constraint.Constraints) constraint.Constraints {
		return constraint.Constraints{Avoid: c.Avoid}
	})},
	{"constraints.cells", func(a, b *model.Spec) bool { return a.Constraints.Cells != b.Constraints.Cells }},
	{"task.command", func(a, b *model.Spec) bool { return a.Task.Command != b.Task.Command }},
	{"task.args", func(a, b *model.Spec) bool { return !slices.Equal(a.Task.Args, b.Task.Args) }},
	{"task.env", func(a, b *model.Spec) bool { return !maps.Equal(a.Task.Env, b.Task.Env) }},
	{"task.payload", func(a, b *model.Spec) bool { return !bytes.Equal(a.Task.Payload, b.Task.Payload) }},
	{"task.stopGrace", func(a, b *model.Spec) bool { return a.Task.StopGrace != b.Task.StopGrace }},
	{"task.startTimeout", func(a, b *model.Spec) bool { return a.Task.StartLimit() != b.Task.StartLimit() }},
	{"task.readiness", func(a, b *model.Spec) bool {
		return (a.Task.Readiness == model.ReadyReported) != (b.Task.Readiness == model.ReadyReported)
	}},
	{"batch", func(a, b *model.Spec) bool { return a.Batch != b.Batch }},
	{"start", func(a, b *model.Spec) bool { return StartOf(*a) != StartOf(*b) }},
	{"onAssignmentFailure", func(a, b *model.Spec) bool { return OnFailureOf(*a) != OnFailureOf(*b) }},
	{"maxAttempts", func(a, b *model.Spec) bool { return a.MaxAttempts != b.MaxAttempts }},
	{"queueTimeout", func(a, b *model.Spec) bool { return a.QueueTimeout != b.QueueTimeout }},
	{"notBefore", func(a, b *model.Spec) bool { return !a.NotBefore.Equal(b.NotBefore) }},
	{"lifetime", func(a, b *model.Spec) bool { return a.Lifetime != b.Lifetime }},
	{"restart", func(a, b *model.Spec) bool { return a.Restart != b.Restart }},
	{"onWorkerLoss", func(a, b *model.Spec) bool { return a.OnWorkerLoss != b.OnWorkerLoss }},
	{"maxRestarts", func(a, b *model.Spec) bool { return a.RestartLimit() != b.RestartLimit() }},
	{"volume", func(a, b *model.Spec) bool { return !a.Volume.Equal(b.Volume) }},
	{"hold", func(a, b *model.Spec) bool { return a.Hold != b.Hold }},
	{"holdTimeout", func(a, b *model.Spec) bool { return a.HoldLimit() != b.HoldLimit() }},
	{"requeue", func(a, b *model.Spec) bool { return a.Requeue != b.Requeue }},
	{"onWorkerFailure", func(a, b *model.Spec) bool { return a.OnWorkerFailure != b.OnWorkerFailure }},
	{"completesWith", func(a, b *model.Spec) bool { return !a.CompletesWithSame(b) }},
	{"restartExitCodes", func(a, b *model.Spec) bool { return !a.ExitCodes.Equal(b.ExitCodes) }},
	{"task.stopSignal", func(a, b *model.Spec) bool { return a.Task.StopSignal != b.Task.StopSignal }},
	{"shrink", func(a, b *model.Spec) bool { return a.Shrink != b.Shrink }},
}

func constraintDiffers(only func(constraint.Constraints) constraint.Constraints) func(a, b *model.Spec) bool {
	return func(a, b *model.Spec) bool { return !SameConstraints(only(a.Constraints), only(b.Constraints)) }
}

// Has reports whether the set has all fields of another one.
func (f Fields) Has(all Fields) bool { return f&all == all }

// Names returns the paths of the fields, in the order of the list.
func (f Fields) Names() (names []string) {
	for i := range fields {
		if f.Has(1 << i) {
			names = append(names, fields[i].name)
		}
	}
	return names
}

// All returns each field of the set as a set of its own, in the order of the list.
func (f Fields) All() iter.Seq[Fields] {
	return func(yield func(Fields) bool) {
		for i := range fields {
			if f.Has(1<<i) && !yield(1<<i) {
				return
			}
		}
	}
}

// AllFields has all fields, Constraints and Task those of the constraints and of the task.
// FieldVolume is the volume, and FieldShrink what happens to the workers beyond the target size.
var (
	AllFields   = Fields(1)<<len(fields) - 1
	Constraints = named("constraints.")
	Task        = named("task.")
	FieldVolume = named("volume")
	FieldShrink = named("shrink")
)

// named returns the fields whose names begin with a prefix.
func named(prefix string) (set Fields) {
	for i := range fields {
		if strings.HasPrefix(fields[i].name, prefix) {
			set |= 1 << i
		}
	}
	return set
}

// InPlace are the fields that an upsert changes in all living versions at once: no worker has
// them.
var InPlace = FieldTargetSize | FieldPriority | FieldLabels | FieldExpireAt | FieldShrink

// Differences returns the fields in which two specs differ.
func Differences(a, b *model.Spec) (different Fields) {
	same := SameConstraints(a.Constraints, b.Constraints)
	for i := range fields {
		differs := fields[i].differs
		if differs == nil || same && Constraints.Has(1<<i) {
			continue
		}
		if differs(a, b) {
			different |= 1 << i
		}
	}
	return different
}

// WorkersOf returns the field with which an upsert names its workers.
func WorkersOf(u model.Upsert) Fields {
	if u.Count > 0 {
		return FieldCount
	}
	return FieldWorkers
}

// Take returns the request of a version that derives from a version with a spec, after another
// request for the reservation. It is the latest request, except for what only the first version
// of a worker can have:
//
//   - notBefore: the workers were granted or started already.
//   - hold and holdTimeout: the reservation is past its hold.
//   - volume, and what it takes of the resources: Berth resizes no volume, and starts no worker
//     without its data. Other values of onLoss and keepFor are taken.
//   - all constraints if cells differ: a reservation is not split between cells and hosts.
//   - the task, if constraints other than cells or a first volume are not taken: the task may need
//     them.
func Take(spec, latest *model.Spec) model.Spec {
	next := *latest
	next.NotBefore, next.Hold, next.HoldTimeout = spec.NotBefore, spec.Hold, spec.HoldTimeout
	if latest.Constraints.Cells != spec.Constraints.Cells {
		next.Constraints = spec.Constraints
	}
	if !sameVolume(spec, &next) {
		next.Volume = spec.Volume
		if spec.Volume != nil {
			next.Constraints.Resources = spec.Constraints.Resources
		}
	}
	requested := latest.Constraints
	requested.Cells = next.Constraints.Cells
	if !SameConstraints(requested, next.Constraints) || latest.Volume != nil && next.Volume == nil {
		next.Task = spec.Task
	}
	return next
}

// sameVolume reports whether two specs request volumes of the same size, or none.
func sameVolume(a, b *model.Spec) bool {
	if a.Volume == nil || b.Volume == nil {
		return a.Volume == b.Volume
	}
	size := func(s *model.Spec) int64 { return s.Constraints.Resources[s.Volume.Resource] }
	return a.Volume.Resource == b.Volume.Resource && size(a) == size(b)
}

// LifetimeEnd returns the end of a lifetime from FromCreated that began at a time, or the zero
// time.
func LifetimeEnd(l model.Lifetime, begin time.Time) time.Time {
	if l.From != model.FromCreated {
		return time.Time{}
	}
	return begin.Add(l.For)
}

// TaskFingerprint returns a number that identifies a task, which is never 0.
func TaskFingerprint(t model.Task) uint64 { return hash(append([]any{"task"}, task(t)...)...) }
