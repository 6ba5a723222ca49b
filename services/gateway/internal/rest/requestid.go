package rest

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
)

// identified gives a mutating call a request id when its caller gave none. The
// call may be sent more than once on its way, and the id makes a repeat answer
// the first result.
type identified struct {
	grpc.ClientConnInterface
}

func (c identified) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	if m, ok := in.(proto.Message); ok {
		identify(m)
	}
	return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
}

// identify fills the field that every request which changes something has. The
// body of an upsert may name the id in its stead.
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
