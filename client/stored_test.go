package client

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// readStored returns the cursors of the stored events, and the error at their end.
func readStored(ctx context.Context, c *Client, since string) (cursors []string, end error) {
	for e, err := range c.StoredEvents(ctx, "a", since) {
		if err != nil {
			end = err
			continue
		}
		cursors = append(cursors, e.GetCursor())
	}
	return cursors, end
}

// The stored events end without an error only if a gateway says so. A lost connection does not end
// them.
func TestStoredEventsEnd(t *testing.T) {
	events := newLog()
	for range 4 {
		events.add()
	}
	var calls atomic.Int32
	g := &gateway{watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		call := calls.Add(1)
		if call == 2 {
			return unavailable() // it cannot read the events now
		}
		if err := stream.SendHeader(rpc.StoredHeader(q.GetStored())); err != nil {
			return err
		}
		if call == 1 {
			return events.follow(q.Since, stream, 2, unavailable())
		}
		time.Sleep(2 * endOfStored) // a slow gateway
		for _, e := range events.events[3:] {
			if err := stream.Send(e); err != nil {
				return err
			}
		}
		return nil
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	got, err := readStored(limited(t, time.Minute), c, "1")
	if want := []string{"2", "3", "4"}; err != nil || !slices.Equal(got, want) || calls.Load() != 3 {
		t.Errorf("%q, %v, %d calls", got, err, calls.Load())
	}
}

// If no gateway can read the events, nothing is known about them, which is an error with the reason.
func TestStoredEventsThatCannotBeReadAreAnError(t *testing.T) {
	serving := func(answer error) *Client {
		g := &gateway{watch: func(_ *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
			if answer != nil {
				return answer
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}}
		g.serve(t, hold(t))
		return dial(t, nil, g)
	}
	reset := status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
	for answer, reason := range map[error]string{unavailable(): "no leader", nil: "the gateway has not answered",
		reset: "the gateway has not answered"} {
		c := serving(answer)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		got, err := readStored(ctx, c, "")
		cancel()
		if len(got) > 0 || fault.Of(err).Kind != fault.Unavailable || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %q, %v", reason, got, err)
		}
	}
	c := serving(fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "gone"))
	if _, err := readStored(limited(t, time.Minute), c, "1"); !fault.Is(err, fault.ReasonEventsCompacted) {
		t.Errorf("a definite error: %v", err)
	}
}

// A gateway of version 0.1 does not end the stream. Its stored events are complete when it is silent.
func TestStoredEventsOfAnOldGateway(t *testing.T) {
	events := newLog()
	for range 3 {
		events.add()
	}
	g := &gateway{watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		return events.follow(q.Since, stream, -1, nil)
	}}
	g.serve(t, hold(t))
	got, err := readStored(limited(t, time.Minute), dial(t, nil, g), "")
	if want := []string{"1", "2", "3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}
