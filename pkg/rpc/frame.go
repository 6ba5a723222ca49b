package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
)

// Frame is a message as it stands on the wire. Who forwards frames needs to
// know neither their types nor their newer fields.
type Frame struct {
	Bytes []byte
}

// FrameCodec reads and writes Frames as they are, and every other message as
// protobuf, so that one server can both forward and answer. Every Server uses it;
// clients use it through grpc.ForceCodecV2.
func FrameCodec() encoding.CodecV2 {
	return frameCodec{encoding.GetCodecV2(proto.Name)}
}

// frameCodec keeps the name of the codec it wraps: on the wire nothing differs.
type frameCodec struct {
	encoding.CodecV2
}

func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.Bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// decoding is a message to decode, and why that failed. gRPC itself answers what a
// codec refuses, before anything else sees it, and calls it a failure of the server;
// so the codec refuses nothing, and whoever asked looks at err.
type decoding struct {
	message any
	err     error
}

// Unmarshal copies a Frame: the frame outlives gRPC's buffer, since a call may be
// repeated.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *Frame:
		v.Bytes = data.Materialize()
		return nil
	case *decoding:
		if _, health := v.message.(*healthpb.HealthCheckRequest); health && data.Len() > maxHealthName+3 {
			v.err = errLongName
			return nil
		}
		v.err = c.Unmarshal(data, v.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
