package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"berth.dev/api/fault"
)

// Berth's own calls are not compressed, and its servers and clients refuse messages
// that are: a few kilobytes on the wire could take megabytes of memory before anything
// counts them. That gzip is registered in a process is the doing of OpenTelemetry's
// exporter, which calls a collector.

// uncompressed rejects a call that declares an encoding: its messages may be compressed,
// and gRPC would compress the answers.
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

// RefuseCompressed makes a client refuse compressed answers. Dial does so by itself.
func RefuseCompressed() grpc.DialOption {
	return grpc.WithDecompressor(refusal{}) //nolint:staticcheck // a registered compressor would be that of the whole process
}

// refusal is a grpc.Decompressor of gzip, the only encoding that gRPC brings along.
type refusal struct{}

// Do implements grpc.Decompressor.
func (refusal) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("messages must not be compressed")
}

// Type implements grpc.Decompressor.
func (refusal) Type() string { return "gzip" }
