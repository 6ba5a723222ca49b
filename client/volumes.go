package client

import (
	"context"
	"iter"

	berthv1 "berth.dev/api/berth/v1"
)

// Volumes returns the volumes that the request selects, in order of job, stage, index and
// ID. It reads each page only when the loop needs it. The sequence ends at the first error.
func (c *Client) Volumes(ctx context.Context, request *berthv1.ListVolumesRequest) iter.Seq2[*berthv1.Volume, error] {
	return items(request, func(q *berthv1.ListVolumesRequest, token string) ([]*berthv1.Volume, string, error) {
		q.PageToken = token
		page, err := c.VolumesPage(ctx, q)
		return page.GetVolumes(), page.GetNextPageToken(), err
	})
}

// VolumesPage returns one page of Volumes.
func (c *Client) VolumesPage(ctx context.Context, request *berthv1.ListVolumesRequest) (*berthv1.ListVolumesAnswer,
	error) {
	return invoke(ctx, c, c.volumes.ListVolumes, request)
}

// DeleteVolumes requests that volumes are destroyed with their data, at most 1,000 in a
// call, and returns how many of them are known. The request is durable when the call
// returns. A volume is destroyed once no worker is on it and its executor is present; until
// then it is listed with DeleteRequested. Deleting an unknown volume succeeds.
func (c *Client) DeleteVolumes(ctx context.Context, request *berthv1.DeleteVolumesRequest) (int, error) {
	answer, err := invoke(ctx, c, c.volumes.DeleteVolumes, request)
	return int(answer.GetCount()), err
}

// AbandonVolumes declares that the executors or disks of volumes are lost for good, and
// returns how many of the volumes are known. At most 1,000 are allowed in a call. The worker
// indexes start elsewhere, with new and empty volumes. The error is VOLUME_IN_USE while a
// worker is on one of the volumes.
func (c *Client) AbandonVolumes(ctx context.Context, ids ...string) (int, error) {
	answer, err := invoke(ctx, c, c.volumes.AbandonVolumes, &berthv1.AbandonVolumesRequest{Ids: ids})
	return int(answer.GetCount()), err
}
