package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Executors gives the executors that the request selects, ordered by id, page
// after page as they are asked for. It ends at the first error.
func (c *Client) Executors(ctx context.Context, request *berthv1.ListExecutorsRequest) iter.Seq2[*berthv1.Executor, error] {
	return items(request, func(q *berthv1.ListExecutorsRequest, token string) ([]*berthv1.Executor, string, error) {
		q.PageToken = token
		page, err := c.ExecutorsPage(ctx, q)
		return page.GetExecutors(), page.GetNextPageToken(), err
	})
}

// ExecutorsPage gives one page of Executors.
func (c *Client) ExecutorsPage(ctx context.Context, request *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.ListExecutors, request)
}

// Executor reads one executor. The error is NotFound when there is none.
func (c *Client) Executor(ctx context.Context, id string) (*berthv1.Executor, error) {
	return invoke(ctx, c, c.executors.GetExecutor, &berthv1.GetExecutorRequest{Id: id})
}

// Disable takes executors out of allocation until the request expires or is
// undone: those there are, and those that come later. Workers on them stay. The
// answer has the id of the request, which undoes it: that of the message, or a
// new one.
func (c *Client) Disable(ctx context.Context, request *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	q := proto.CloneOf(request)
	if q.RequestId == "" {
		q.RequestId = requestID()
	}
	return invoke(ctx, c, c.executors.DisableExecutors, q)
}

// Enable undoes requests to disable or drain, and answers how many it undid,
// wholly or in part. Undoing what is not there succeeds.
func (c *Client) Enable(ctx context.Context, request *berthv1.EnableExecutorsRequest) (int, error) {
	q := proto.CloneOf(request)
	if q.RequestId == "" {
		q.RequestId = requestID()
	}
	answer, err := invoke(ctx, c, c.executors.EnableExecutors, q)
	return int(answer.GetUndone()), err
}

// Drain disables one executor until the request expires or is undone, and tells
// its workers to go. It answers at once with the executor as it is then; `workers`
// counts those that are left. The error is NotFound when there is no such executor.
func (c *Client) Drain(ctx context.Context, request *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	q := proto.CloneOf(request)
	if q.RequestId == "" {
		q.RequestId = requestID()
	}
	return invoke(ctx, c, c.executors.DrainExecutor, q)
}
