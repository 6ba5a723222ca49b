package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// A request that is not protobuf is an error of the caller. The server does not log it as a
// failure.
func TestUndecodableRequestIsInvalid(t *testing.T) {
	var log bytes.Buffer
	p := serve(t, "", rpc.ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}, &peer{
		get: func(context.Context) (*berthv1.Replica, error) { return nil, errors.New("called") },
		beat: func(s grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
			_, err := s.Recv()
			return err
		},
	})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	garbage, codec := &rpc.Frame{Bytes: []byte{0xff, 0xff, 0xff}}, grpc.ForceCodecV2(rpc.FrameCodec())
	check := func(method string, err error) {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(),
			"the request of "+method+" cannot be decoded as protobuf") {
			t.Errorf("%s was answered %v", method, err)
		}
	}
	const unary, stream = controlv1.Replicas_GetReplica_FullMethodName, controlv1.Heartbeats_Heartbeat_FullMethodName
	check(unary, conn.Invoke(t.Context(), unary, garbage, &rpc.Frame{}, codec))
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, stream, codec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(garbage); err != nil {
		t.Fatal(err)
	}
	check(stream, s.RecvMsg(&rpc.Frame{}))
	if log.Len() > 0 {
		t.Errorf("unexpected log: %s", log.String())
	}
	if err := conn.Invoke(t.Context(), unary, &rpc.Frame{}, &rpc.Frame{}, codec); status.Code(err) != codes.Internal ||
		!strings.Contains(log.String(), "called") {
		t.Errorf("a server failure was answered %v, log %q", err, log.String())
	}
}

// A watch stores the name that it watches, so the length of the name is limited.
func TestHealthNameOverTheLimit(t *testing.T) {
	p := serve(t, "", rpc.ServerOptions{}, &peer{})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	check := func(n int) error {
		_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("x", n)})
		return err
	}
	watch := func(n int) error {
		s, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("x", n)})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	// The server answers before the caller closes its side of the stream.
	openWatch := func(n int) error {
		if n <= 128 {
			return nil
		}
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			healthpb.Health_Watch_FullMethodName)
		if err != nil {
			return err
		}
		if err := s.SendMsg(&healthpb.HealthCheckRequest{Service: strings.Repeat("x", n)}); err != nil {
			return err
		}
		return s.RecvMsg(&healthpb.HealthCheckResponse{})
	}
	for name, call := range map[string]func(int) error{"check": check, "watch": watch, "open watch": openWatch} {
		if err := call(128); status.Code(err) == codes.InvalidArgument {
			t.Errorf("%s: a name of 128 bytes: %v", name, err)
		}
		err := call(129)
		if f := rpc.FromStatus(err); status.Code(err) != codes.InvalidArgument || len(f.Fields) != 1 ||
			f.Fields[0].Name != "service" {
			t.Errorf("%s: a name of 129 bytes: %v", name, err)
		}
	}
}

func TestRecoverReturnsAPanicAsAnInternalError(t *testing.T) {
	err := rpc.Recover(func() error { panic("index out of range") })
	if f := fault.Of(rpc.FromStatus(rpc.ToStatus(err))); f == nil || f.Kind != fault.Internal ||
		strings.Contains(f.Message, "index") {
		t.Errorf("got %v, want an internal error without details", f)
	}
	if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), "index out of range") ||
		!strings.Contains(cause.Error(), "undecodable_test.go") {
		t.Errorf("cause = %v, want the panic value and its location", cause)
	}
	want := errors.New("gone")
	if err := rpc.Recover(func() error { return want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// If a server has a limit of fields, it does not decode a request with more fields. Each
// element of a repeated field may use fifty times the two bytes that it has on the wire.
func TestFieldsOfARequestAreBounded(t *testing.T) {
	called := 0
	p := serve(t, "", rpc.ServerOptions{MaxFields: 3}, &peer{get: func(context.Context) (*berthv1.Replica, error) {
		called++
		return &berthv1.Replica{}, nil
	}})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(n int) error {
		request := &rpc.Frame{Bytes: bytes.Repeat([]byte{0xa2, 0x06, 0}, n)} // field 100
		return conn.Invoke(t.Context(), controlv1.Replicas_GetReplica_FullMethodName, request, &rpc.Frame{},
			grpc.ForceCodecV2(rpc.FrameCodec()))
	}
	if err := call(3); err != nil || called != 1 {
		t.Errorf("3 fields: %v", err)
	}
	if err := call(4); status.Code(err) != codes.InvalidArgument || called != 1 {
		t.Errorf("4 fields: %v", err)
	}
}
