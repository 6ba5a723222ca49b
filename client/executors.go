package client

import (
	"context"
	"iter"

	berthv1 "berth.dev/api/berth/v1"
)

// Executors returns the executors that the request selects, ordered by ID. It reads each
// page only when the loop needs it. The sequence ends at the first error.
func (c *Client) Executors(ctx context.Context, request *berthv1.ListExecutorsRequest) iter.Seq2[*berthv1.Executor,
	error] {
	return items(request, func(q *berthv1.ListExecutorsRequest, token string) ([]*berthv1.Executor, string, error) {
		q.PageToken = token
		page, err := c.ExecutorsPage(ctx, q)
		return page.GetExecutors(), page.GetNextPageToken(), err
	})
}

// ExecutorsPage returns one page of Executors, with the number of executors on all pages.
func (c *Client) ExecutorsPage(ctx context.Context,
	request *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.ListExecutors, request)
}

// Executor reads one executor with its leases. The error is NotFound if the executor does not exist.
func (c *Client) Executor(ctx context.Context, id string) (*berthv1.Executor, error) {
	return invoke(ctx, c, c.executors.GetExecutor, &berthv1.GetExecutorRequest{Id: id})
}

// Disable takes executors out of allocation until the request expires or is undone. The
// request also applies to executors that register later. Workers on the executors keep
// running. The answer has the ID with which Enable undoes the request. It is the request
// ID in the message, or a new ID if the message has none.
func (c *Client) Disable(ctx context.Context,
	request *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	return invoke(ctx, c, c.executors.DisableExecutors, identified(request))
}

// Enable undoes requests to disable or drain, and returns the number of requests that it
// undid completely or partly. It succeeds if there is no such request.
func (c *Client) Enable(ctx context.Context, request *berthv1.EnableExecutorsRequest) (int, error) {
	answer, err := invoke(ctx, c, c.executors.EnableExecutors, identified(request))
	return int(answer.GetUndone()), err
}

// Drain disables one executor until the request expires or is undone, and evicts its
// workers. It does not wait for the end of the workers: it returns the current executor,
// in which `workers` is the number of remaining workers. The error is NotFound if the
// executor does not exist.
func (c *Client) Drain(ctx context.Context, request *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	return invoke(ctx, c, c.executors.DrainExecutor, identified(request))
}
