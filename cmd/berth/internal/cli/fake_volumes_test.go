package cli

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

func (f *fake) ListVolumes(_ context.Context, q *berthv1.ListVolumesRequest) (*berthv1.ListVolumesAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items, next := page(f.volumes, q.PageToken, func(v *berthv1.Volume) bool {
		return (q.Job == "" || q.Job == v.Job) && (q.Stage == "" || q.Stage == v.Stage) &&
			(q.Executor == "" || q.Executor == v.Executor) && (q.State == 0 || q.State == v.State)
	})
	return proto.CloneOf(&berthv1.ListVolumesAnswer{Volumes: items, NextPageToken: next, Revision: f.revision}), nil
}

// DeleteVolumes deletes the volumes on the executor ex-1 at once. All others stay. An
// executor that the request names has each of the volumes.
func (f *fake) DeleteVolumes(_ context.Context, q *berthv1.DeleteVolumesRequest) (*berthv1.DeleteVolumesAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.DeleteVolumesAnswer{}
	if q.Executor != "" {
		answer.Count = int32(len(q.Ids))
	}
	f.volumes = slices.DeleteFunc(f.volumes, func(v *berthv1.Volume) bool {
		if !slices.Contains(q.Ids, v.Id) {
			return false
		}
		answer.Count++
		v.State, v.DeleteRequested = berthv1.Volume_DESTROYING, true
		v.Message = "executor " + v.Executor + " is LOST: it destroys the volume once it is READY"
		return v.Executor == "ex-1"
	})
	return answer, nil
}

func (f *fake) AbandonVolumes(_ context.Context, q *berthv1.AbandonVolumesRequest) (*berthv1.AbandonVolumesAnswer,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.AbandonVolumesAnswer{}
	for _, v := range f.volumes {
		if slices.Contains(q.Ids, v.Id) {
			if v.State == berthv1.Volume_PLANNED {
				return nil, fault.New(fault.Precondition, fault.ReasonVolumeInUse, "volume %s has a worker", v.Id)
			}
			v.State = berthv1.Volume_ABANDONED
			answer.Count++
		}
	}
	return answer, nil
}
