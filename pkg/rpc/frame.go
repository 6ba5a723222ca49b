package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Frame is a message as it stands on the wire. Who forwards frames needs to
// know neither their types nor their newer fields.
type Frame struct {
	Bytes []byte
}

// FrameCodec reads and writes Frames as they are, and every other message as
// protobuf, so that one server can both forward and answer. Use it through
// grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
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

// Unmarshal copies: the frame outlives gRPC's buffer, since a call may be
// repeated.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*Frame); ok {
		f.Bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
