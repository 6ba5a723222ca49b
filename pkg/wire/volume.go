package wire

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// VolumeRequest converts the request for a volume to protobuf; nil to nil.
func VolumeRequest(v *model.VolumeRequest) *berthv1.VolumeRequest {
	if v == nil {
		return nil
	}
	m := &berthv1.VolumeRequest{Resource: v.Resource, KeepFor: optionalDuration(v.KeepFor)}
	if v.OnLoss != model.OnVolumeLossWait {
		m.OnLoss = proto.String(v.OnLoss.String())
	}
	return m
}

// VolumeRequestOf converts the request for a volume from protobuf; nil to nil.
func VolumeRequestOf(m *berthv1.VolumeRequest) (*model.VolumeRequest, error) {
	if m == nil {
		return nil, nil
	}
	v := &model.VolumeRequest{Resource: m.GetResource()}
	var err error
	if m.OnLoss != nil {
		v.OnLoss, err = wordOf("volume.onLoss", m.GetOnLoss(), model.OnVolumeLossWait, model.OnVolumeLossReplace)
		if err != nil {
			return nil, err
		}
	}
	v.KeepFor, err = optionalDurationOf("volume.keepFor", m.GetKeepFor())
	return v, err
}

func optionalDuration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func optionalDurationOf(field string, m *durationpb.Duration) (*time.Duration, error) {
	if m == nil {
		return nil, nil
	}
	d, err := durationOf(field, m)
	return &d, err
}

func encodeVolumes(c *model.VolumeChunk) *recordv1.VolumeChunk {
	m := &recordv1.VolumeChunk{Volumes: make([]*recordv1.Volume, len(c.Volumes))}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		m.Volumes[i] = &recordv1.Volume{
			Id: v.ID, Index: v.Index, Ordinal: v.Ordinal, State: recordv1.Volume_State(v.State), Since: Timestamp(v.Since),
			Each: v.Each, Resource: v.Resource, Role: v.Role, Whole: v.Whole, UnwantedSince: Timestamp(v.UnwantedSince),
			KeepFor: optionalDuration(v.KeepFor), Used: v.Used, Delete: v.Delete, Incarnation: v.Incarnation,
			Sequence: v.Sequence,
		}
	}
	return m
}

func decodeVolumes(ref model.Ref, m *recordv1.VolumeChunk) (*model.VolumeChunk, error) {
	c := &model.VolumeChunk{Job: ref.Key.Job, Stage: ref.Key.Stage, Chunk: ref.Chunk,
		Volumes: make([]model.Volume, len(m.GetVolumes()))}
	for i, v := range m.GetVolumes() {
		keep, err := optionalDurationOf("keepFor", v.GetKeepFor())
		if err != nil {
			return nil, err
		}
		c.Volumes[i] = model.Volume{
			ID: v.GetId(), Index: v.GetIndex(), Ordinal: v.GetOrdinal(), State: enum[model.VolumeState](v.GetState()),
			Since: Time(v.GetSince()), Each: v.GetEach(), Resource: v.GetResource(), Role: v.GetRole(), Whole: v.GetWhole(),
			UnwantedSince: Time(v.GetUnwantedSince()), KeepFor: keep, Used: v.GetUsed(), Delete: v.GetDelete(),
			Incarnation: v.GetIncarnation(), Sequence: v.GetSequence(),
		}
	}
	return c, nil
}

// volumes checks that the volumes are in order, that each belongs to the chunk, and that no
// index has two current volumes.
func (c *checks) volumes(r *model.VolumeChunk) {
	c.within("the key's chunk", int64(r.Chunk), 0, maxVolumeChunk)
	c.within("volumes", int64(len(r.Volumes)), 1, model.MaxChunkVolumes)
	first := int64(r.Chunk) * model.VolumeChunkSize
	current := int32(-1)
	for i := range r.Volumes {
		v := &r.Volumes[i]
		c.that(v.ID != "", "volumes[%d].id: is required", i)
		c.within("volumes.index", int64(v.Index), first, first+model.VolumeChunkSize-1)
		c.within("volumes.ordinal", int64(v.Ordinal), 1, math.MaxUint32)
		c.within("volumes.state", int64(v.State), int64(model.VolumePlanned), int64(model.VolumeDestroying))
		c.amounts("volumes.each", v.Each)
		c.that(v.Amount() > 0, "volumes[%d].resource: %q must be a resource in each", i, v.Resource)
		c.keepFor("volumes.keepFor", v.KeepFor)
		c.within("volumes.incarnation", v.Incarnation, 0, maxRevision)
		c.within("volumes.sequence", v.Sequence, 0, maxSequence)
		c.that(i == 0 || r.Volumes[i-1].Compare(v) < 0, "volumes[%d]: is not in order", i)
		if v.State.Current() {
			c.that(v.Index != current, "volumes[%d]: index %d has two volumes", i, v.Index)
			current = v.Index
		}
		c.that(!v.Whole || v.UnwantedSince.IsZero() && v.State <= model.VolumeReady,
			"volumes[%d].whole: must not be set, because the volume is %s or not wanted", i, v.State)
		c.that(v.State.Current() || !v.UnwantedSince.IsZero(), "volumes[%d].unwantedSince: is required", i)
	}
}

func (c *checks) keepFor(field string, d *time.Duration) {
	if d != nil {
		c.within(field, int64(*d), 0, math.MaxInt64)
	}
}
