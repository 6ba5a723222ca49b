package internal

import (
	"context"
	"strconv"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// ReportVolumes implements control.v1.Agents.
func (s *Agents) ReportVolumes(ctx context.Context,
	req *controlv1.ReportVolumesRequest) (*controlv1.ReportVolumesAnswer, error) {
	value, err := s.do(ctx, inventory.ReportVolumes{
		Executor: req.GetExecutor(), Incarnation: req.GetIncarnation(), Sequence: req.GetVolumes().GetSequence(),
		IDs: req.GetVolumes().GetIds(), Gone: req.GetVolumes().GetGone(),
	})
	if err != nil {
		return nil, err
	}
	return &controlv1.ReportVolumesAnswer{Term: value.(inventory.VolumesReported).Term}, nil
}

// Volumes implements berth.v1.Volumes over the loop.
type Volumes struct {
	berthv1.UnimplementedVolumesServer
	loop loop.Owner[*inventory.Core]
}

// NewVolumes returns a server that uses the loop's core.
func NewVolumes(l loop.Owner[*inventory.Core]) *Volumes { return &Volumes{loop: l} }

// ListVolumes implements berth.v1.Volumes.
func (s *Volumes) ListVolumes(ctx context.Context,
	req *berthv1.ListVolumesRequest) (*berthv1.ListVolumesAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	state, err := wire.ListedState[model.VolumeState](req.GetState())
	if err != nil {
		return nil, err
	}
	if req.GetStage() != "" && req.GetJob() == "" {
		return nil, fault.BadField(fault.ReasonRequired, "job", "is required with stage")
	}
	after, err := placeOf(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	filter := inventory.VolumeFilter{Job: req.GetJob(), Stage: req.GetStage(), Executor: req.GetExecutor(), State: state}
	answer := &berthv1.ListVolumesAnswer{}
	err = s.loop.Read(ctx, false, func(c *inventory.Core) {
		answer.Revision = c.Revision()
		list, more := c.Volumes(filter, after, size)
		answer.Volumes = replica.Page(list, replica.PageBytes, volume)
		if n := len(answer.Volumes); more || n < len(list) {
			answer.NextPageToken = tokenOf(list[n-1].Place())
		}
	})
	return answer, err
}

// tokenOf returns the token of the page after a place.
func tokenOf(p inventory.VolumePlace) string {
	return strings.Join([]string{p.Job, p.Stage, strconv.Itoa(int(p.Index)), p.ID}, "/")
}

// placeOf is the inverse of tokenOf. The empty token is before all places.
func placeOf(token string) (p inventory.VolumePlace, err error) {
	if token == "" {
		return inventory.VolumePlace{Index: -1}, nil
	}
	parts := strings.Split(token, "/")
	if len(parts) == 4 {
		index, failure := strconv.ParseInt(parts[2], 10, 32)
		if failure == nil {
			return inventory.VolumePlace{Job: parts[0], Stage: parts[1], Index: int32(index), ID: parts[3]}, nil
		}
	}
	return p, fault.BadField(fault.ReasonInvalid, "pageToken", "%.64q is not the token of a page", token)
}

func volume(v inventory.VolumeView) *berthv1.Volume {
	return &berthv1.Volume{
		Id: v.ID, Job: v.Job, Stage: v.Stage, Index: v.Index, Resource: v.Resource, Amount: v.Amount(),
		Executor: v.Executor, State: berthv1.Volume_State(v.State), Since: wire.Timestamp(v.Since), Role: v.Role,
		Held: v.Holds(), Worker: v.Worker, Wanted: v.Wanted, Message: v.Message, DeleteRequested: v.Delete,
		KeptUntil: wire.Timestamp(v.KeptUntil),
	}
}

// DeleteVolumes implements berth.v1.Volumes.
func (s *Volumes) DeleteVolumes(ctx context.Context,
	req *berthv1.DeleteVolumesRequest) (*berthv1.DeleteVolumesAnswer, error) {
	value, err := s.loop.Do(ctx, inventory.DeleteVolumes{IDs: req.GetIds(), Executor: req.GetExecutor(),
		Job: req.GetJob()})
	if err != nil {
		return nil, err
	}
	return &berthv1.DeleteVolumesAnswer{Count: int32(value.(inventory.VolumesChanged).Count)}, nil
}

// AbandonVolumes implements berth.v1.Volumes.
func (s *Volumes) AbandonVolumes(ctx context.Context,
	req *berthv1.AbandonVolumesRequest) (*berthv1.AbandonVolumesAnswer, error) {
	value, err := s.loop.Do(ctx, inventory.AbandonVolumes{IDs: req.GetIds()})
	if err != nil {
		return nil, err
	}
	return &berthv1.AbandonVolumesAnswer{Count: int32(value.(inventory.VolumesChanged).Count)}, nil
}
