package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

const (
	// requestLimit is the maximum size of a request of an agent, in bytes.
	requestLimit = 4<<20 - 64<<10
	// answerBacklog is the maximum number of answers that an agent has not read.
	answerBacklog = 128
)

// present is the encoded answer to most heartbeats.
var present = func() []byte {
	frame, err := proto.Marshal(&controlv1.HeartbeatAnswer{Present: true})
	if err != nil {
		panic(err) // only text can fail to encode, and this message has none
	}
	return frame
}()

// agent is the stream of one agent.
type agent struct {
	relay  *relay
	number uint32
	ctx    context.Context
	// end ends the stream with an error. With io.EOF, the stream ends without an error.
	end context.CancelCauseFunc
	// sent has one element after the agent's request has been sent.
	sent chan struct{}
	// The relay's lock guards queued, ended and requested. queued is true while a
	// heartbeat of the agent that has no report is queued to be sent. ended is true when
	// the stream has ended. requested is the time of the agent's last request.
	queued, ended bool
	requested     time.Time
	// wake has one element if answers are queued, or if the stream must end.
	wake chan struct{}

	mu      sync.Mutex
	answers [][]byte
}

// Register registers the heartbeat service at the gateway's server, which must use
// rpc.FrameCodec.
func (r *Relays) Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: controlv1.Heartbeats_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Heartbeat", ServerStreams: true, ClientStreams: true,
			Handler: func(srv any, in grpc.ServerStream) error { return srv.(*Relays).heartbeat(in) },
		}},
	}, r)
}

// heartbeat serves the stream of an agent until one side ends the stream.
func (r *Relays) heartbeat(in grpc.ServerStream) error {
	ctx, end := context.WithCancelCause(in.Context())
	defer end(nil)
	a := &agent{ctx: ctx, end: end, sent: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	for added := false; !added; added = a.relay.add(a) {
		var err error
		if a.relay, err = r.choose(ctx); err != nil {
			return err
		}
	}
	// The replica learns at once that the stream has ended. This handler may return later,
	// because it may be blocked in sending an answer that the agent does not read.
	context.AfterFunc(ctx, func() {
		a.relay.remove(a)
		notify(a.wake)
	})
	go func() { end(rpc.Recover(func() error { return a.receive(in, r.pace) })) }() // ends with the handler
	// Receiving from one channel costs half as much as selecting from two.
	for range a.wake {
		ended := ctx.Err() != nil // before the answers are taken: none arrives after the end
		for _, frame := range a.takeAnswers() {
			if err := in.SendMsg(&rpc.Frame{Bytes: frame}); err != nil {
				return err
			}
		}
		if ended {
			break
		}
	}
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return cause
	}
	return nil // one side has closed the stream
}

// receive reads the agent's requests. It reads the next request only when the last one has
// been sent to the replica. So flow control slows down an agent that sends too much, and the
// guard counts the memory of each request that waits here.
func (a *agent) receive(in grpc.ServerStream, pace pacer) error {
	var last []byte // the last request without a report
	for {
		var frame rpc.Frame
		if err := in.RecvMsg(&frame); err != nil {
			return err
		}
		switch {
		case last != nil && bytes.Equal(frame.Bytes, last):
			a.relay.heartbeat(a)
			continue
		case len(frame.Bytes) > requestLimit:
			return fault.New(fault.Invalid, fault.ReasonTooLarge, "the request has %d bytes; at most %d are allowed",
				len(frame.Bytes), requestLimit)
		case bare(frame.Bytes):
			last = frame.Bytes
		}
		if err := pace.wait(a.ctx, frame.Bytes); err != nil {
			return err
		}
		a.relay.request(a, frame.Bytes)
		select {
		case <-a.sent:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
	}
}

// answer queues an answer and never waits. It drops an answer that repeats the last queued
// answer. If answerBacklog answers are queued already, it ends the stream.
func (a *agent) answer(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	queued := len(a.answers)
	switch {
	case queued > 0 && bytes.Equal(a.answers[queued-1], frame):
		return
	case queued >= answerBacklog:
		a.end(fault.New(fault.Exhausted, fault.ReasonOverloaded, "the agent has not read %d answers", answerBacklog))
		return
	}
	a.answers = append(a.answers, frame)
	notify(a.wake)
}

// takeAnswers removes and returns the queued answers.
func (a *agent) takeAnswers() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	answers := a.answers
	a.answers = nil
	return answers
}
