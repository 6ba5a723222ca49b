package internal

import (
	"context"
	"net"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/porttest"
)

// A start request that was never written to a connection has certainly not reached its agent. A
// request that was written may have, if the agent does not answer.
func TestRequestsThatWereNeverSentAreUndelivered(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody says anything
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var giveUp context.CancelFunc
	hang := func(ctx context.Context) error {
		giveUp()
		<-ctx.Done()
		return ctx.Err()
	}
	hung := serve(t, &agent{
		submit: func(ctx context.Context, _ *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
			return nil, hang(ctx)
		},
		several: func(ctx context.Context, _ *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
			return nil, hang(ctx)
		},
	})
	for _, c := range []struct {
		name, address string
		timeout       time.Duration
		sent          bool
	}{
		{"refused", porttest.Hold(t), time.Minute, false},
		{"silent", silent.Addr().String(), 50 * time.Millisecond, false},
		{"hung", hung.address, time.Minute, true},
	} {
		one := submitTo(&agent{address: c.address})
		one.Timeout = c.timeout
		two := one
		two.Worker.ID.Index++
		for _, b := range []bundle{{one}, {one, two}} {
			var ctx context.Context
			ctx, giveUp = context.WithCancel(t.Context())
			for _, outcome := range newSender(t).submitAll(ctx, b) {
				u, undelivered := outcome.(dispatch.Undelivered)
				if undelivered == c.sent || undelivered && u.Message == "" {
					t.Errorf("%s: %#v", c.name, outcome)
				}
			}
			giveUp()
		}
	}
}
