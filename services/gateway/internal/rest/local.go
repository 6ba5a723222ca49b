package rest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"berth.dev/pkg/access"
)

// guarded admits each call before it is sent, and deletes the proofs of its caller.
type guarded struct {
	grpc.ClientConnInterface
	guard *access.Guard
}

// Invoke implements grpc.ClientConnInterface.
func (c guarded) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	request, _ := in.(proto.Message)
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	access.DeleteProofs(md)
	ctx = metadata.NewOutgoingContext(ctx, md)
	return c.guard.Check(ctx, method, request, func() error {
		return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	})
}

// local sends the calls of services that the gateway itself answers to their servers, and
// all other calls on.
type local struct {
	grpc.ClientConnInterface
	methods map[string]localMethod
}

type localMethod struct {
	server  any
	handler grpc.MethodHandler
}

// RegisterService implements grpc.ServiceRegistrar.
func (l local) RegisterService(desc *grpc.ServiceDesc, server any) {
	for _, m := range desc.Methods {
		l.methods["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{server, m.Handler}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (l local) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	m, ok := l.methods[method]
	if !ok {
		return l.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	}
	answer, err := m.handler(m.server, ctx, func(request any) error {
		proto.Merge(request.(proto.Message), in.(proto.Message))
		return nil
	}, nil)
	if err == nil {
		proto.Merge(out.(proto.Message), answer.(proto.Message))
	}
	return err
}
