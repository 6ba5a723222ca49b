// Package surface lets each listener of a gateway serve only the methods of its callers, and
// rejects every other method before the request is read.
//
//	--listen           berth.v1                          job services, operators
//	--agents-listen    Register, Heartbeat               agents
//	--internal-listen  the calls between the services    registry, executor-state
//
// All three listeners serve health checks. A method that is not in the table is rejected
// everywhere.
package surface

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// Listener is one listener of a gateway, or a set of them.
type Listener uint8

// The listeners of a gateway.
const (
	Public Listener = 1 << iota
	Agents
	Internal

	// None marks methods that no gateway serves, only services or agents at their own
	// listeners.
	None Listener = 0
	all           = Public | Agents | Internal
)

// String returns the option that sets the listener's address.
func (l Listener) String() string {
	switch l {
	case Public:
		return "--listen"
	case Agents:
		return "--agents-listen"
	case Internal:
		return "--internal-listen"
	}
	return fmt.Sprintf("listeners %03b", uint8(l))
}

// Allow returns nil if the listener serves the method with the given full name. Otherwise it
// returns an error with the code UNIMPLEMENTED. If another listener serves the method, the
// error names the option of that listener.
func (l Listener) Allow(fullMethod string) error {
	served, known := table[fullMethod]
	switch {
	case !known:
		return status.Errorf(codes.Unimplemented, "Berth has no method %s", fullMethod)
	case served&l != 0:
		return nil
	}
	method := strings.TrimPrefix(fullMethod, "/")
	meta := map[string]string{rpc.MetaCalled: l.String()}
	message := method + " is not served by gateways"
	if served != None {
		meta[rpc.MetaServed] = served.String()
		message = method + " is served on " + served.String()
	}
	refusal, err := status.New(codes.Unimplemented, message).WithDetails(&errdetails.ErrorInfo{
		Reason: string(fault.ReasonUnsupported), Domain: fault.Domain, Metadata: meta,
	})
	if err != nil {
		panic(err) // all of it is valid text
	}
	return refusal.Err()
}

// ServerOptions returns options that restrict a gRPC server to the methods that the listener
// allows.
func (l Listener) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (any, error) {
			if err := l.Allow(info.FullMethod); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handler grpc.StreamHandler) error {
			if err := l.Allow(info.FullMethod); err != nil {
				return err
			}
			return handler(srv, stream)
		}),
	}
}

// Methods returns the full names of the methods in the table, sorted, and the listeners that
// serve each method.
func Methods() (names []string, served map[string]Listener) {
	return slices.Sorted(maps.Keys(table)), maps.Clone(table)
}
