package rest

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
)

// identified gives a mutating call a request id when its caller gave none. The
// call may be sent more than once on its way, and the id makes a repeat answer
// the first result.
type identified struct {
	grpc.ClientConnInterface
}

func (c identified) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	switch m := in.(type) {
	case *berthv1.UpsertReservationRequest:
		if m.RequestId == "" && m.GetReservation().GetRequestId() == "" {
			m.RequestId = rand.Text()
		}
	case *berthv1.CancelReservationRequest:
		if m.RequestId == "" {
			m.RequestId = rand.Text()
		}
	case *berthv1.CancelJobRequest:
		if m.RequestId == "" {
			m.RequestId = rand.Text()
		}
	}
	return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
}
