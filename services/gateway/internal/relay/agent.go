package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

const (
	// requestLimit bounds what an agent sends at a time, bytes.
	requestLimit = 4<<20 - 64<<10
	// answerBacklog is how many answers may wait for an agent to take them.
	answerBacklog = 128
)

// present is the answer to most heartbeats, as it stands on the wire.
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
	// sent has one element once the agent's request has been sent.
	sent chan struct{}
	// beating says that a beat waits to be sent, gone that the stream has ended, asked
	// when it last sent more than a beat; of the relay.
	beating, gone bool
	asked         time.Time
	// wake has one element when answers wait, or when the stream is to end.
	wake chan struct{}

	mu      sync.Mutex
	answers [][]byte
}

// Register has the relays serve agents on the gateway's server, which must use
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
	// Told apart from the end of this call, which waits for a deaf agent to take the
	// answer that is under way.
	context.AfterFunc(ctx, func() {
		a.relay.remove(a)
		a.stir()
	})
	go func() { end(rpc.Recover(func() error { return a.receive(in, r.pace) })) }() // the end of the handler ends it
	// Waiting for one channel takes half of what waiting for two does.
	for range a.wake {
		ended := ctx.Err() != nil // whatever came before the end is there now
		for _, frame := range a.waiting() {
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
	return nil // one side has said all
}

// receive takes what the agent sends. Until a request has been sent the next one is
// not read: an agent that sends more than it may is slowed down by itself, and whoever
// bounds the memory of what is read knows of all that waits here.
func (a *agent) receive(in grpc.ServerStream, pace pacer) error {
	var last []byte // that had no report
	for {
		var frame rpc.Frame
		if err := in.RecvMsg(&frame); err != nil {
			return err
		}
		switch {
		case last != nil && bytes.Equal(frame.Bytes, last):
			a.relay.beat(a)
			continue
		case len(frame.Bytes) > requestLimit:
			return fault.New(fault.Invalid, fault.ReasonTooLarge, "the request has %d bytes; at most %d are allowed", len(frame.Bytes), requestLimit)
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

// bare says whether a HeartbeatRequest has no report.
func bare(frame []byte) bool {
	for len(frame) > 0 {
		field, _, n := protowire.ConsumeField(frame)
		if n < 0 || field == reportField {
			return false
		}
		frame = frame[n:]
	}
	return true
}

// answer has the agent answered. It does not wait: what an agent does not take is
// dropped where it says nothing new, and else ends its stream.
func (a *agent) answer(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := len(a.answers)
	switch {
	case waiting > 0 && bytes.Equal(a.answers[waiting-1], frame):
		return
	case waiting >= answerBacklog:
		a.end(fault.New(fault.Exhausted, fault.ReasonOverloaded, "%d answers have not been taken", answerBacklog))
		return
	}
	a.answers = append(a.answers, frame)
	a.stir()
}

// stir has the agent answered what waits, and its stream ended if it is to be.
func (a *agent) stir() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *agent) waiting() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	answers := a.answers
	a.answers = nil
	return answers
}
