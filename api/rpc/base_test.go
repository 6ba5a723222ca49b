package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
)

// Calls and streams of a server with a base path work with and without it. The interceptors and
// handlers of both sides see the plain methods.
func TestMethodsBelowABasePath(t *testing.T) {
	seen := make(chan string, 10)
	p := &peer{
		get: func(context.Context) (*berthv1.Replica, error) { return &berthv1.Replica{Id: "r"}, nil },
		beat: func(s grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
			method, _ := grpc.MethodFromServerStream(s)
			seen <- method
			return nil
		},
	}
	serve(t, "", rpc.ServerOptions{Base: "/a/b", More: []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			h grpc.UnaryHandler) (any, error) {
			seen <- info.FullMethod
			return h(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
			h grpc.StreamHandler) error {
			seen <- info.FullMethod
			return h(srv, ss)
		}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(s)
			return status.Error(codes.Aborted, method)
		}),
	}}, p)
	for _, base := range []string{"", "/a/b"} {
		called := make(chan string, 1)
		conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{Base: base, More: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				select {
				case called <- method:
				default:
				}
				return invoke(ctx, method, in, out, conn, opts...)
			})}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := within(t, 10*time.Second)
		if r, err := controlv1.NewReplicasClient(conn).GetReplica(ctx, &controlv1.GetReplicaRequest{}); err != nil ||
			r.GetId() != "r" {
			t.Errorf("%q: %v, %v", base, r, err)
		}
		const get, beat = "/berth.control.v1.Replicas/GetReplica", "/berth.control.v1.Heartbeats/Heartbeat"
		if c, s := <-called, <-seen; c != get || s != get {
			t.Errorf("%q: the client calls %s, the server sees %s", base, c, s)
		}
		stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		if first, second := <-seen, <-seen; first != beat || second != beat {
			t.Errorf("%q: the server sees %s and %s, %v", base, first, second, err)
		}
		err = conn.Invoke(ctx, "/berth.v1.Other/Call", &controlv1.GetReplicaRequest{}, &berthv1.Replica{})
		if method := <-seen; method != "/berth.v1.Other/Call" || status.Convert(err).Message() != method {
			t.Errorf("%q: an unknown method is %s: %v", base, method, err)
		}
	}
}

func TestCheckBase(t *testing.T) {
	for _, base := range []string{"/berth", "/a/b/c", "/v2", "/a.b-c_d~", "/x/v1"} {
		if problem := rpc.CheckBase(base); problem != "" {
			t.Errorf("%q %s", base, problem)
		}
	}
	for _, base := range []string{"", "/", "berth", "/berth/", "//berth", "/a/./b", "/..", "/a%20b", "/ä", "/v1", "/v1/x",
		"/session", "/grpc.health.v1.Health", "/berth.v1.Leaders"} {
		if problem := rpc.CheckBase(base); !strings.HasPrefix(problem, "must ") {
			t.Errorf("%q is accepted", base)
		}
	}
}
