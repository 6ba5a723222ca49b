package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
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
	return c.read(ctx, job, since, false)
}

// StoredEvents returns the stored events of a job in order, and ends: the events after the
// cursor since, or all that still exist if since is empty. If the connection to a gateway is
// lost, it reconnects and continues after the last event. So it does while no gateway can read the
// events.
//
// The sequence ends without an error only after the last stored event. It ends with an error of
// kind Unavailable, which has the reason, when ctx ends before or the client is closed, and with
// any definite error like [Client.Events].
func (c *Client) StoredEvents(ctx context.Context, job, since string) iter.Seq2[*berthv1.Event, error] {
	return c.read(ctx, job, since, true)
}

// read returns the events of Events, or of StoredEvents if stored is set.
func (c *Client) read(ctx context.Context, job, since string, stored bool) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		cursor, started := since, time.Now()
		var last *fault.Error
		for attempt := 0; ; attempt++ {
			err := c.stream(ctx, &berthv1.WatchEventsRequest{Job: job, Since: cursor, Stored: stored},
				func(event *berthv1.Event) bool {
					cursor, attempt = event.GetCursor(), 0
					return yield(event, nil)
				})
			if err == nil || !stored && ctx.Err() != nil {
				return
			}
			f := c.faultOf(err)
			cut := stored && cutShort(ctx, err)
			if !cut && !resumable(f, cursor != since) {
				yield(nil, f)
				return
			}
			if last == nil || !cut {
				last = f
			}
			if !cut {
				c.onRetry(f)
			}
			if !c.wait(ctx, attempt) {
				if stored || ctx.Err() == nil {
					yield(nil, c.gaveUp(ctx, last, started))
				}
				return
			}
		}
	}
}

// endOfStored is how long the stream of a gateway of version 0.1, which does not end after the
// stored events, must be silent until these count as complete.
const endOfStored = time.Second

// stream reads the events of one connection. It returns nil if yield returns false, and after the
// stored events if only these are requested. Otherwise a server ends a stream only when the server
// stops; then stream returns an error of kind Unavailable.
func (c *Client) stream(ctx context.Context, request *berthv1.WatchEventsRequest,
	yield func(*berthv1.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.events.WatchEvents(ctx, request)
	if err != nil {
		return err
	}
	var silent atomic.Bool
	var end *time.Timer
	if request.GetStored() {
		// A gateway sends the header once it has begun to read the events.
		header, err := events.Header()
		if err != nil {
			return err
		}
		if header != nil && !rpc.EndsAfterStored(header) {
			end = time.AfterFunc(endOfStored, func() { silent.Store(true); cancel() })
			defer end.Stop()
		}
	}
	for {
		event, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF) && request.GetStored(), err != nil && silent.Load():
			return nil
		case errors.Is(err, io.EOF):
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the gateway ended the stream")
		case err != nil:
			return err
		}
		if end != nil {
			end.Stop()
		}
		if !yield(event) {
			return nil
		}
		if end != nil {
			end.Reset(endOfStored)
		}
	}
}

// resumable reports whether the client can continue the stream over another connection: the
// connection to the gateway was lost, or the gateway dropped this reader because it was too slow.
// After a lost connection, the gateway may still count the earlier stream of a reader that has
// received events.
func resumable(f *fault.Error, received bool) bool {
	return f.Kind == fault.Unavailable || f.Reason == fault.ReasonSlowReader ||
		received && f.Reason == fault.ReasonTenantLimit
}
