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

// Events returns the events of a job in order: first the events after the cursor since,
// and then each new event. If since is empty, it starts with the oldest event that still
// exists. If the connection to a gateway is lost, it reconnects and continues after the
// last event.
//
// The sequence ends without an error when ctx ends. It ends with an error of kind
// Unavailable when the client is closed, and with any definite error, such as TENANT_LIMIT
// if the first connection exceeds the tenant's limit of event streams. If events after
// since were deleted, the error is OutOfRange with reason EVENTS_COMPACTED. The Meta of
// this error has the cursor from which the caller can continue. The caller must then list
// the reservations to learn the state.
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
			f := c.faultOf(err)
			// After a lost connection, the gateway may still count the earlier stream of this
			// reader.
			counted := cursor != since && f.Reason == fault.ReasonTenantLimit
			if !resumable(f) && !counted {
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

// stream reads the events of one connection. It returns nil if yield returns false. A
// server ends a stream only when the server stops; then stream returns an error of kind
// Unavailable.
func (c *Client) stream(ctx context.Context, job, since string, yield func(*berthv1.Event) bool) error {
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
		if !yield(event) {
			return nil
		}
	}
}

// resumable reports whether the client can continue the stream over another connection:
// the connection to the gateway was lost, or the gateway dropped this reader because it
// was too slow.
func resumable(f *fault.Error) bool {
	return f.Kind == fault.Unavailable || f.Reason == fault.ReasonSlowReader
}
