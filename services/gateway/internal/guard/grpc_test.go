package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// serveCalls serves gRPC behind a guard. It also returns a function that connects to the
// server, and the log of the server.
func serveCalls(t *testing.T, limits Limits, handler grpc.StreamHandler) (*Guard, func() *grpc.ClientConn,
	*bytes.Buffer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, log := New(limits), &bytes.Buffer{}
	s := rpc.NewServer(rpc.ServerOptions{
		Log: slog.New(slog.NewTextHandler(log, nil)), More: append(g.ServerOptions(), grpc.UnknownServiceHandler(handler)),
	})
	var done sync.WaitGroup
	done.Go(func() { s.Serve(g.Listener(l)) })
	t.Cleanup(func() { s.Stop(); done.Wait() })
	return g, func() *grpc.ClientConn {
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDisableRetry())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}, log
}

// open starts a call with a message and waits for the first answer.
func open(ctx context.Context, conn *grpc.ClientConn, message any) error {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/a.B/C")
	if err != nil {
		return err
	}
	// EOF means that the call has already ended. RecvMsg then returns the error of the call.
	if err := s.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return s.RecvMsg(&wrapperspb.StringValue{})
}

// hold answers one message and keeps the call open until the caller cancels.
func hold(_ any, s grpc.ServerStream) error {
	if err := s.RecvMsg(&wrapperspb.StringValue{}); err != nil {
		return err
	}
	if err := s.SendMsg(&wrapperspb.StringValue{}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// large returns a context with 27 KB of headers.
func large(ctx context.Context) context.Context {
	md := metadata.MD{}
	for range 9 {
		md.Append("x-bin", strings.Repeat("x", 3000))
	}
	return metadata.NewOutgoingContext(ctx, md)
}

func isOverloaded(err error) bool {
	return err != nil && rpc.FromStatus(err).Kind == fault.Unavailable &&
		rpc.FromStatus(err).Reason == fault.ReasonOverloaded
}

func awaitNoMemory(t *testing.T, g *Guard) {
	t.Helper()
	for g.Memory() > 0 {
		runtime.Gosched()
	}
}

// A decoded message uses as much of the memory limit as its frame while its call is open.
func TestLargeMessagesTakeMemoryWhileTheCallIsOpen(t *testing.T) {
	g, connect, _ := serveCalls(t, Limits{Connections: 10, Streams: 100, Memory: 256 << 10}, hold)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn, message := connect(), wrapperspb.String(strings.Repeat("x", 150<<10))
	if err := open(ctx, conn, message); err != nil {
		t.Fatal(err)
	}
	if used := g.Memory(); used < 150<<10 {
		t.Errorf("%d bytes are in use", used)
	}
	// The connection may be closed before the message is complete.
	if err := open(ctx, conn, message); err == nil || rpc.FromStatus(err).Kind != fault.Unavailable {
		t.Errorf("a second call was answered %v", err)
	}
	cancel()
	awaitNoMemory(t, g)
}

func TestLargeHeadersTakeMemoryWhileTheCallIsOpen(t *testing.T) {
	g, connect, log := serveCalls(t, Limits{Connections: 10, Streams: 100, Memory: 256 << 10}, hold)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := connect()
	for n := range 2 {
		if err := open(large(ctx), conn, &wrapperspb.StringValue{}); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	if used := g.Memory(); used < 54_000 {
		t.Errorf("%d bytes are in use", used)
	}
	for _, ctx := range []context.Context{ctx, t.Context()} {
		if err := open(large(ctx), conn, &wrapperspb.StringValue{}); !isOverloaded(err) {
			t.Errorf("a third call was answered %v", err)
		}
	}
	// Headers have a memory budget of their own and use none of the memory for messages.
	if err := open(ctx, conn, wrapperspb.String(strings.Repeat("x", 150<<10))); err != nil {
		t.Errorf("a call with small headers: %v", err)
	}
	cancel()
	awaitNoMemory(t, g)
	if log.Len() > 0 {
		t.Errorf("the log contains %s", log.String())
	}
}

// The timer of a rejected call runs until its connection ends. A connection may therefore
// have only a few of these timers.
func TestAConnectionWithManyRejectedHeadersIsClosed(t *testing.T) {
	g, connect, _ := serveCalls(t, Limits{Connections: 10, Streams: 100, Memory: 64 << 10}, hold)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := connect()
	if err := open(ctx, other, &wrapperspb.StringValue{}); err != nil {
		t.Fatal(err)
	}
	conn := connect()
	for n := 0; ; n++ {
		err := open(large(ctx), conn, &wrapperspb.StringValue{})
		if err == nil {
			t.Fatal("a call beyond the memory was accepted")
		}
		if isOverloaded(err) {
			continue
		}
		if n < rejectedHeaders {
			t.Errorf("closed after %d rejections: %v", n, err)
		}
		break
	}
	if g.Memory() != 0 {
		t.Errorf("%d bytes are in use", g.Memory())
	}
	if err := open(ctx, other, &wrapperspb.StringValue{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

// When a connection ends, the contexts of its rejected calls end before their deadlines.
func TestRejectedCallsEndWithTheirConnection(t *testing.T) {
	ctx := caller{}.TagConn(t.Context(), nil)
	rejected, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	caller{}.HandleConn(ctx, &stats.ConnEnd{})
	if rejected.Err() == nil {
		t.Error("its context has not ended")
	}
}
