package stream

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// follower reads events from a source into a buffer. A handler writes the events from the
// buffer to the caller.
type follower struct {
	// events is closed after the last event.
	events chan *berthv1.Event
	// ended is closed together with events, for a handler that is blocked in a write. When
	// ended is closed, err is the reason why no more events follow.
	ended chan struct{}
	err   error
	// opened is the time at which the stream began. Older events were stored.
	opened time.Time
	// end releases the resources of the stream and counts the cause of its end.
	end func(cause error)
}

// run moves events into the buffer until the source fails, the stream is stopped, or the
// buffer stays full for longer than patience.
func (f *follower) run(ctx context.Context, reader Reader, patience time.Duration) {
	defer reader.Close()
	f.err = f.move(ctx, reader, patience)
	// If the stream was canceled, the cause is more precise than the reader's error.
	if cause := context.Cause(ctx); cause != nil {
		f.err = cause
	}
	close(f.events)
	close(f.ended)
}

func (f *follower) move(ctx context.Context, reader Reader, patience time.Duration) error {
	for {
		batch, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		for _, event := range batch {
			select {
			case f.events <- event:
				continue
			default:
			}
			// The handler is slower than the source. etcd stores the events, so the reader
			// can read the rest again when the buffer has space.
			reader.Pause()
			if err := f.push(ctx, event, patience); err != nil {
				return err
			}
		}
	}
}

// push waits until the buffer has space, and adds an event. It fails with SLOW_READER after
// patience.
func (f *follower) push(ctx context.Context, event *berthv1.Event, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case f.events <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fault.New(fault.Exhausted, fault.ReasonSlowReader,
			"the stream was not read for %v; resume it with the cursor of the last event seen", patience)
	}
}

// reason returns the error that the reader of the stream gets, or nil after the last stored event.
// It must be called after the stream has ended.
func (f *follower) reason() error {
	if errors.Is(f.err, io.EOF) {
		return nil
	}
	if errors.Is(f.err, context.Canceled) {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the stream was ended by its reader")
	}
	return f.err
}

// cause returns why the stream ended, given the error of the last write. It returns nil if
// the reader disconnected, or has all stored events that it requested.
func (f *follower) cause(written error) error {
	select {
	case <-f.ended:
		if errors.Is(f.err, io.EOF) {
			return nil
		}
		return f.err
	default:
	}
	return CauseOf(written)
}

// CauseOf returns why a stream ended whose write failed. It returns nil if the reader
// disconnected.
func CauseOf(written error) error {
	if errors.Is(written, os.ErrDeadlineExceeded) {
		return fault.New(fault.Exhausted, fault.ReasonSlowReader, "a write timed out").Because(written)
	}
	return nil
}
