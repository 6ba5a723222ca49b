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
	// requestLimit bounds a request of an agent, bytes.
	requestLimit = 4<<20 - 64<<10
	// answerBacklog bounds the answers that wait for an agent to read them.
	answerBacklog = 128
)

// present is the encoded answer to most heartbeats.
var present = func() []byte {
	frame, err := proto.Marshal(&controlv1.HeartbeatAnswer{Present: true})
	if err != nil {
		panic(err) // it has no text
	}
	return frame
}()

// agent is the stream of one agent.
type agent struct {
	relay  *relay
	number uint32
	ctx    context.Context
	// end ends the stream with an error, or with io.EOF for none.
	end context.CancelCauseFunc
	// sent has one element after the agent's request has been sent.
	sent chan struct{}
	// The relay's lock guards these. queued: a heartbeat without news waits to be sent.
	// ended: the stream has ended. requested is the time of the last request.
	queued, ended bool
	requested     time.Time
	// wake has one element if answers wait, or if the stream has to end.
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

// heartbeat carries the stream of an agent until one side ends it.
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
	// The replica learns of the end at once. This handler may return later: it waits for an
	// agent that does not read the answer that is being sent.
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

// receive reads the agent's requests. It does not read the next one before a request has been
// sent. So flow control slows down an agent that sends too much, and the guard counts the
// memory of each request that waits here.
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

// answer queues an answer. It does not wait: if the agent does not read its answers, answer
// drops one that repeats the last, and otherwise ends the stream.
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
