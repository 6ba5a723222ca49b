package request

import (
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Records have sets of fields, so a field keeps its bit.
func TestFieldsKeepTheirBits(t *testing.T) {
	want := []string{"count", "workers", "targetSize", "priority", "labels", "expireAt", "constraints.resources",
		"constraints.sku", "constraints.attributes", "constraints.pools", "constraints.role", "constraints.sameShape",
		"constraints.spread", "constraints.pack", "constraints.avoid", "constraints.cells", "task.command", "task.args",
		"task.env", "task.payload", "task.stopGrace", "task.startTimeout", "task.readiness", "batch", "start",
		"onAssignmentFailure", "maxAttempts", "queueTimeout", "notBefore", "lifetime", "restart", "onWorkerLoss",
		"maxRestarts", "volume", "hold", "holdTimeout"}
	if got := AllFields.Names(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("the fields are %q", got)
	}
}

// A version that derives from a started one takes the latest request, except for what only the
// first version of a worker can have.
func TestTake(t *testing.T) {
	spec := good().Spec
	spec.Constraints.Resources = resource.Vector{"slots": 1, "disk": 5}
	withVolume := spec
	withVolume.Volume = &model.VolumeRequest{Resource: "disk"}
	for _, c := range []struct {
		name  string
		from  model.Spec
		edit  func(*model.Spec)
		never []string
	}{
		{"task", spec, func(s *model.Spec) { s.Task.Command = "other" }, nil},
		{"constraints", spec, func(s *model.Spec) {
			s.Constraints.SKU, s.Constraints.Pools = "x", []string{"p"}
			s.Constraints.Resources = resource.Vector{"slots": 1, "disk": 6}
		}, nil},
		{"hold", spec, func(s *model.Spec) { s.Hold, s.HoldTimeout = true, new(time.Hour) }, []string{"hold", "holdTimeout"}},
		{"notBefore", spec, func(s *model.Spec) { s.NotBefore = time.Unix(1, 0) }, []string{"notBefore"}},
		{"a volume", spec, func(s *model.Spec) { s.Volume = &model.VolumeRequest{Resource: "disk"} }, []string{"volume"}},
		{"no volume", withVolume, func(s *model.Spec) { s.Volume = nil }, []string{"volume"}},
		{"the size of a volume", withVolume, func(s *model.Spec) {
			s.Constraints.Resources, s.Constraints.SKU = resource.Vector{"slots": 1, "disk": 6}, "x"
		}, []string{"constraints.resources"}},
		{"the loss of a volume", withVolume, func(s *model.Spec) {
			s.Volume = &model.VolumeRequest{Resource: "disk", OnLoss: model.OnVolumeLossReplace}
		}, nil},
		{"a cell", spec, func(s *model.Spec) { s.Constraints.Cells, s.Constraints.SKU, s.Restart = true, "x", 1 },
			[]string{"constraints.sku", "constraints.cells"}},
	} {
		latest := c.from
		c.edit(&latest)
		if Differences(&c.from, &latest) == 0 {
			t.Errorf("%s: no difference", c.name)
		}
		taken := Take(&c.from, &latest)
		if never := Differences(&taken, &latest).Names(); !slices.Equal(never, c.never) {
			t.Errorf("%s: does not take %q, want %q", c.name, never, c.never)
		}
	}
}
