package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Frame is an encoded message. A process that forwards frames need not know the types and
// the newer fields of the messages.
type Frame struct {
	Bytes []byte
}

// FrameCodec returns a codec that reads and writes Frames unchanged and every other
// message as protobuf. So one server can both forward calls and answer calls. Every
// Server uses this codec; clients set it with grpc.ForceCodecV2.
func FrameCodec() encoding.CodecV2 {
	return frameCodec{CodecV2: encoding.GetCodecV2(proto.Name)}
}

// frameCodec has the name of the codec that it wraps, because the encoding is the same.
type frameCodec struct {
	encoding.CodecV2
	// maxFields is the maximum number of top-level fields of a request; 0 means no limit.
	maxFields int
}

func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.Bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// decoding is a message to decode, and the error of decoding it. If a codec returned the
// error, gRPC would answer the call itself, as a failure of the server. Therefore the
// codec stores the error in err, and the server checks err.
type decoding struct {
	message any
	err     error
}

// Unmarshal copies the data into a Frame, because the frame must outlive gRPC's buffer if
// a call is repeated.
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
		if c.maxFields > 0 {
			buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
			defer buf.Free()
			if moreFields(buf.ReadOnlyData(), c.maxFields) {
				v.err = errManyFields
				return nil
			}
			data = mem.BufferSlice{buf} // so that the codec need not copy it again
		}
		v.err = c.Unmarshal(data, v.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// moreFields reports whether a message has more than n top-level fields, counting each
// element of a repeated field. A decoded field of two bytes uses fifty times as much
// memory as the encoded field.
func moreFields(message []byte, n int) bool {
	for ; len(message) > 0 && n >= 0; n-- {
		_, _, length := protowire.ConsumeField(message)
		if length < 0 {
			return false // the decoder returns the error
		}
		message = message[length:]
	}
	return n < 0
}
