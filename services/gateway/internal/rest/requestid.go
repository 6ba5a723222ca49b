package rest

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
)

// identified adds a request ID to a mutating call that has none. The router may send the call
// more than once; because of the ID, each repeat returns the first result.
type identified struct {
	grpc.ClientConnInterface
}

func (c identified) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	if m, ok := in.(proto.Message); ok {
		identify(m)
	}
	return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
}

// identify sets the request ID of a mutating request that has none. In an upsert, the
// reservation in the body may have the ID instead.
func identify(m proto.Message) {
	if upsert, ok := m.(*berthv1.UpsertReservationRequest); ok && upsert.GetReservation().GetRequestId() != "" {
		return
	}
	r := m.ProtoReflect()
	field := r.Descriptor().Fields().ByName("request_id")
	if field != nil && r.Get(field).String() == "" {
		r.Set(field, protoreflect.ValueOfString(rand.Text()))
	}
}
