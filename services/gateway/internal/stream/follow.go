package stream

import (
	"context"
	"errors"
	"os"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// follower reads from a source ahead of the one who writes the events out.
type follower struct {
	// events is closed when no more come; err then says why.
	events chan *berthv1.Event
	// ended is closed with it, for who is busy writing.
	ended chan struct{}
	// err is for reading once ended is closed.
	err error
	// opened is when the stream began: what happened before was kept for it.
	opened time.Time
	// end frees what the stream holds, and counts why it ended.
	end func(why error)
}

// run moves events until the source fails, the stream is stopped, or nobody
// takes them.
func (f *follower) run(ctx context.Context, reader Reader, patience time.Duration) {
	defer reader.Close()
	f.err = f.move(ctx, reader, patience)
	// Of a stream that was ended on purpose the cause says more than what the
	// reader made of it.
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
			// The one who takes them is slower than they come. They are kept in
			// etcd, and not here: what is not taken yet is read when it is.
			reader.Pause()
			if err := f.push(ctx, event, patience); err != nil {
				return err
			}
		}
	}
}

// push waits for room in the buffer.
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

// reason is why the stream ended, as its reader is to be told.
func (f *follower) reason() error {
	if errors.Is(f.err, context.Canceled) {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the stream was ended by its reader")
	}
	return f.err
}

// why the stream ended, given what became of the last write: no error when its
// reader has gone.
func (f *follower) why(written error) error {
	select {
	case <-f.ended:
		return f.err
	default:
	}
	if errors.Is(written, os.ErrDeadlineExceeded) {
		return fault.New(fault.Exhausted, fault.ReasonSlowReader, "a write was not taken").Because(written)
	}
	return nil
}
