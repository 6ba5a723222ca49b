package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// quietPause is the pause after a part without data. A gateway answers such a call of a
// reader that follows only after it has waited for output, but it need not wait.
const quietPause = 200 * time.Millisecond

// Output returns the output of a worker in parts, in order. It reads one worker: if Berth
// replaces the worker, it does not continue with the next worker of the index. The first
// part begins where the request says, and each further part follows the one before, unless
// the executor has removed the output in between: then Offset is higher.
//
// The sequence ends when the worker has ended and all of its output was returned; the last
// part is Complete. If Follow is not set in the request, the sequence also ends at the
// position that was the end of the output when Output read the first part. With Follow, it
// continues while no gateway answers, while the executor is not connected and while the
// tenant of the job exceeds its rate of requests, and ends without an error when ctx ends. It
// ends with any definite error, such as NotFound if no executor is known to have the output.
func (c *Client) Output(ctx context.Context,
	request *berthv1.ReadOutputRequest) iter.Seq2[*berthv1.ReadOutputAnswer, error] {
	return func(yield func(*berthv1.ReadOutputAnswer, error) bool) {
		next, end := proto.CloneOf(request), int64(-1)
		for attempt := 0; ; {
			part, err := invoke(ctx, c, c.outputs.ReadOutput, next)
			switch {
			case fault.Is(err, fault.ReasonTenantLimit) && end >= 0:
				c.onRetry(err)
				c.wait(ctx, attempt)
				attempt++
				continue
			case err != nil && request.GetFollow() && ctx.Err() != nil:
				return
			case err != nil:
				yield(nil, err)
				return
			}
			attempt = 0
			if end < 0 {
				end = part.GetEnd()
			}
			position := part.GetOffset() + int64(len(part.GetData()))
			if !yield(part, nil) || part.GetComplete() || !request.GetFollow() && position >= end {
				return
			}
			next.Executor, next.Number, next.Epoch = part.GetExecutor(), part.GetNumber(), part.GetEpoch()
			next.Tail, next.Offset = nil, &position
			if len(part.GetData()) == 0 {
				c.rest(ctx, quietPause)
			}
		}
	}
}
