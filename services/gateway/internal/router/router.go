// Package router sends each call to the leader of the service that serves the method, so
// that a caller sees a failover as a pause and not as an error.
//
//	gRPC  ── frames, not decoded ──▶ Forward ─┐
//	REST  ── messages ─────────────▶ Invoke ──┴─▶ round robin over the replicas
//	                                             that report the health name
//
// A call waits while the service has no leader. The router retries a call if the replica
// answered NOT_LEADER, or if the call may or may not have taken effect. Retrying is correct
// because every call of Berth is idempotent. If the deadline of a call passes first, the
// caller gets an error. The router forwards no streams.
package router

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpcstats"
)

// Options are the options of a router.
type Options struct {
	// Replicas has the addresses of every replica, by the name of the service.
	Replicas map[string][]string
	// Deadline is the deadline of unary calls without one.
	Deadline time.Duration
	// TLS is the TLS configuration of calls to replicas. If it is nil, the router calls
	// them in the clear.
	TLS *tls.Config
	// Reach returns which replicas of a service answer, for the error of a call that no leader
	// answered in time.
	Reach func(service string) rpc.Reach
	// Life, if not nil, ends calls that wait for a change, so that they do not delay the stop
	// of the process. Their callers repeat them at another gateway.
	Life context.Context
	// Meters, if not nil, receives the metrics of the calls.
	Meters metric.MeterProvider
	// Traces, if not nil, receives a span of each call.
	Traces trace.TracerProvider
}

// Router forwards calls. It is a grpc.ClientConnInterface for all services.
type Router struct {
	conns    map[string]*grpc.ClientConn // by service, to its leader
	routes   map[string]route
	deadline time.Duration
	reach    func(service string) rpc.Reach
	life     context.Context
	watches  sync.WaitGroup
}

// Silence is how long a replica may send nothing before the router sends the replica's calls
// in progress to another replica. Silence and the interval of pings together are below the
// default TTL, so that calls leave a frozen leader before it has a successor.
const Silence = 2 * time.Second

// New connects to the replicas. The replicas need not answer yet.
func New(o Options) (*Router, error) {
	r := &Router{conns: map[string]*grpc.ClientConn{}, deadline: o.Deadline, reach: o.Reach, life: o.Life}
	if r.life == nil {
		r.life = context.Background()
	}
	for _, service := range model.Services {
		conn, err := rpc.Dial(o.Replicas[service], rpc.DialOptions{Health: rpc.LeaderHealth(service), Silence: Silence,
			TLS: o.TLS, Stats: rpcstats.Client(o.Meters, o.Traces)})
		if err != nil {
			r.Close()
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the addresses of %s cannot be used", service).Because(err)
		}
		r.conns[service] = conn
	}
	r.routes = methods(r.conns)
	return r, nil
}

// Watch reports for each gRPC service whether the router reaches the leader that serves it:
// once before it returns, and after each change until Close.
func (r *Router) Watch(report func(service string, reached bool)) {
	for service, conn := range r.conns {
		state := conn.GetState()
		reportAll := func() {
			for _, row := range table {
				if row.service == service {
					report(row.desc.ServiceName, state == connectivity.Ready)
				}
			}
		}
		reportAll()
		r.watches.Go(func() {
			for state != connectivity.Shutdown && conn.WaitForStateChange(context.Background(), state) {
				state = conn.GetState()
				reportAll()
			}
		})
	}
}

// Close ends all calls and waits for the watches.
func (r *Router) Close() error {
	defer r.watches.Wait()
	var errs []error
	for _, conn := range r.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Invoke sends a unary call to the leader of the service that serves the method.
func (r *Router) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	to, ok := r.routes[method]
	if !ok {
		return unknown(method)
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	var trailer metadata.MD
	err := r.call(passOn(ctx, md), to, method, in, out, append(opts, grpc.Trailer(&trailer))...)
	rpc.TakeRevision(ctx, trailer)
	return err
}

// NewStream implements grpc.ClientConnInterface. The router forwards no streams.
func (r *Router) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "streams are not forwarded")
}

// Forward handles the calls of services that the gRPC server does not know. The server must
// use rpc.FrameCodec.
func (r *Router) Forward(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	to, ok := r.routes[method]
	if !ok {
		return unknown(method)
	}
	md, _ := metadata.FromIncomingContext(in.Context()) // a copy
	ctx := passOn(in.Context(), md)
	var request, answer rpc.Frame
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	if err := to.admit(request); err != nil {
		return err
	}
	var header, trailer metadata.MD
	err := r.call(ctx, to, method, &request, &answer, codec, grpc.Header(&header), grpc.Trailer(&trailer))
	rpc.TakeRevision(in.Context(), trailer)
	in.SetTrailer(passed(trailer))
	if err != nil {
		return err
	}
	_ = in.SetHeader(header) // it fails only if the caller has left; then SendMsg returns the reason
	return in.SendMsg(&answer)
}

// passed returns the part of a trailer that the caller receives. It removes the error
// details of the last attempt: gRPC itself writes the details of the call's final error,
// which may be an error of the router.
func passed(trailer metadata.MD) metadata.MD {
	trailer = trailer.Copy()
	trailer.Delete("grpc-status-details-bin")
	return trailer
}

// codec passes the frames of a forwarded call on unchanged.
var codec = grpc.ForceCodecV2(rpc.FrameCodec())

// admit rejects a request that is too large for its service. The limit applies to the whole
// message, so the error names no field.
func (to route) admit(request rpc.Frame) error {
	if len(request.Bytes) <= to.limit {
		return nil
	}
	return fault.New(fault.Invalid, fault.ReasonTooLarge,
		"the request has %d bytes; at most %d are allowed", len(request.Bytes), to.limit)
}

func unknown(method string) error {
	return status.Errorf(codes.Unimplemented, "Berth has no method %s", method)
}

var _ grpc.ClientConnInterface = (*Router)(nil)
