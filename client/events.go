package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Events gives the events of a job in order: those behind the cursor `since`,
// or from the oldest kept when it is empty, then each as it happens. It comes
// back by itself when a gateway goes, behind the last event it gave.
//
// The sequence has no end of its own. It ends without an error when ctx ends,
// with one of kind Unavailable when the client is closed, and with one that is
// definite: OutOfRange with reason EVENTS_COMPACTED when `since` is older than
// what is kept (its Meta names the cursor to go on from; list the reservations
// to learn what was missed).
func (c *Client) Events(ctx context.Context, job, since string) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		cursor, started := since, time.Now()
		for attempt := 0; ; attempt++ {
			err := c.stream(ctx, job, cursor, func(event *berthv1.Event) bool {
				cursor, attempt = event.GetCursor(), 0
				return yield(event, nil)
			})
			if err == nil || ctx.Err() != nil {
				return
			}
			f := faultOf(err)
			if !resumable(f) {
				yield(nil, f)
				return
			}
			c.onRetry(f)
			if !c.wait(ctx, attempt) {
				if ctx.Err() == nil {
					yield(nil, c.gaveUp(ctx, f, started))
				}
				return
			}
		}
	}
}

// stream follows one connection's events. The error is nil when the one who
// listens has had enough. The server never ends a stream on purpose but when it
// stops: that is Unavailable too.
func (c *Client) stream(ctx context.Context, job, since string, give func(*berthv1.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.events.WatchEvents(ctx, &berthv1.WatchEventsRequest{Job: job, Since: since})
	if err != nil {
		return err
	}
	for {
		event, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the gateway ended the stream")
		}
		if err != nil {
			return err
		}
		if !give(event) {
			return nil
		}
	}
}

// resumable says whether the stream goes on elsewhere: the gateway went, or it
// dropped a reader that fell behind, who is to come back behind its cursor.
func resumable(f *fault.Error) bool {
	return f.Kind == fault.Unavailable || f.Reason == fault.ReasonSlowReader
}
