package show

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// passing lists the fields that change with time alone.
var passing = []protoreflect.Name{"revision", "behind", "renewed", "now", "head_age"}

// Lasting returns a copy of a message without the fields that change with time alone. If
// nothing has happened between two messages, their copies are equal.
func Lasting(m proto.Message) proto.Message {
	m = proto.Clone(m)
	clearPassing(m.ProtoReflect())
	return m
}

func clearPassing(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case slices.Contains(passing, fd.Name()):
			m.Clear(fd)
		case fd.Message() == nil || fd.IsMap():
		case fd.IsList():
			for i := range value.List().Len() {
				clearPassing(value.List().Get(i).Message())
			}
		default:
			clearPassing(value.Message())
		}
		return true
	})
}
