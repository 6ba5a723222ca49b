package internal

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
)

// Heartbeat serves the stream of one agent that is connected without a gateway.
func (h *Heartbeats) Heartbeat(stream grpc.BidiStreamingServer[controlv1.HeartbeatRequest,
	controlv1.HeartbeatAnswer]) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	back := &single{answers: make(chan *controlv1.HeartbeatAnswer, 256), ended: end}
	s := h.begin(ctx, first, back)
	go func() {
		for m, err := first, error(nil); ; m, err = stream.Recv() {
			if errors.Is(err, io.EOF) {
				err = context.Canceled // the agent has closed its side of the stream
			}
			if err != nil {
				s.leave()
				end(err)
				return
			}
			s.handle(m)
		}
	}()
	for {
		select {
		case <-h.loop.Ended():
			return errStopping
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case answer := <-back.answers:
			if err := stream.Send(answer); err != nil {
				end(err)
			}
		}
	}
}

// single is the stream of an agent that is connected without a relay.
type single struct {
	answers chan *controlv1.HeartbeatAnswer
	ended   context.CancelCauseFunc
}

func (l *single) end(err error) { l.ended(err) }

func (l *single) answer(a *controlv1.HeartbeatAnswer) {
	select {
	case l.answers <- a:
	default:
		l.end(errors.New("the test does not take the answers"))
	}
}
