package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"berth.dev/api/fault"
)

// Berth does not compress its calls. Its servers and clients refuse compressed messages,
// because a few compressed kilobytes could use megabytes of memory before any limit
// applies. They must refuse them explicitly: the exporter of OpenTelemetry registers gzip
// for the whole process.

// uncompressed returns an error if a call declares an encoding. The messages of such a
// call may be compressed, and gRPC would compress the answers.
func uncompressed(ctx context.Context) error {
	call, _ := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if call == nil {
		return fault.New(fault.Internal, fault.ReasonInternal, "the encoding of a call cannot be read")
	}
	if name := call.RecvCompress(); name != "" && name != encoding.Identity {
		return fault.BadField(fault.ReasonInvalid, "grpc-encoding", "messages must not be compressed, got %q", name)
	}
	return nil
}

// RefuseCompressed returns an option that makes a client refuse compressed answers. Dial
// includes this option.
func RefuseCompressed() grpc.DialOption {
	return grpc.WithDecompressor(refusal{}) //nolint:staticcheck // registering one would affect the whole process
}

// refusal is a grpc.Decompressor for gzip, the only encoding that gRPC includes.
type refusal struct{}

// Do implements grpc.Decompressor.
func (refusal) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("messages must not be compressed")
}

// Type implements grpc.Decompressor.
func (refusal) Type() string { return "gzip" }
