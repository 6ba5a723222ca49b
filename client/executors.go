package client

import (
	"context"
	"iter"

	berthv1 "berth.dev/api/berth/v1"
)

// Executors returns the executors that the request selects, ordered by ID. It reads the
// next page when the loop gets there. It ends at the first error.
func (c *Client) Executors(ctx context.Context, request *berthv1.ListExecutorsRequest) iter.Seq2[*berthv1.Executor,
	error] {
	return items(request, func(q *berthv1.ListExecutorsRequest, token string) ([]*berthv1.Executor, string, error) {
		q.PageToken = token
		page, err := c.ExecutorsPage(ctx, q)
		return page.GetExecutors(), page.GetNextPageToken(), err
	})
}

// ExecutorsPage returns one page of Executors.
func (c *Client) ExecutorsPage(ctx context.Context,
	request *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.ListExecutors, request)
}

// Executor reads one executor. The error is NotFound if it does not exist.
func (c *Client) Executor(ctx context.Context, id string) (*berthv1.Executor, error) {
	return invoke(ctx, c, c.executors.GetExecutor, &berthv1.GetExecutorRequest{Id: id})
}

// Disable takes executors out of allocation until the request expires or is undone. It
// also applies to executors that register later. Workers on them keep running. The
// answer has the ID of the request, with which Enable undoes it: that of the message,
// or a new one.
func (c *Client) Disable(ctx context.Context,
	request *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.DisableExecutors, identified(request))
}

// Enable undoes requests to disable or drain, and returns how many it undid, completely
// or in part. It succeeds if there is no such request.
func (c *Client) Enable(ctx context.Context, request *berthv1.EnableExecutorsRequest) (int, error) {
	answer, err := invoke(ctx, c, c.executors.EnableExecutors, identified(request))
	return int(answer.GetUndone()), err
}

// Drain disables one executor until the request expires or is undone, and evicts its
// workers. It returns at once with the executor as it is then; `workers` is the number
// of workers left. The error is NotFound if there is no such executor.
func (c *Client) Drain(ctx context.Context, request *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	return invoke(ctx, c, c.executors.DrainExecutor, identified(request))
}
